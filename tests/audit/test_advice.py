from __future__ import annotations

import pytest

from dexloop.audit.advice import MOTIONS, next_action, verdict_of
from dexloop.audit.causes import Cause, Suspect, suspects
from dexloop.audit.divergence import Divergence
from dexloop.robots.outcome import CRUSHED, DROPPED, HELD, LATE, SLIPPED, STOPPED

OUT = Divergence("force", 0, 1.0, 3.0, 0.0, 1.0, 5.0)
HEAVY, LATER = Cause(Suspect("object.mass", 1.9, "×"), 0.8), Cause(Suspect("actuator.delay", 0.02, "s"), 0.3)
ASIDE = Cause(Suspect("camera", 0.01, "m", (0.01, 0.0, 0.0)), 0.5)


@pytest.mark.parametrize(
    ("diverged", "held", "share", "said"),
    [([], True, 1.0, "agrees"), ([], False, 0.4, "agrees"), ([OUT], True, 0.5, "diverges"),
     ([OUT], False, 0.0, "diverges"), ([], True, 0.4, "contradicts"), ([OUT], False, 1.0, "contradicts")],
)  # fmt: skip
def test_a_verdict_tells_outcomes_from_signals(diverged: list, held: bool, share: float, said: str):
    assert verdict_of(diverged, held, share) == said


@pytest.mark.parametrize(
    ("causes", "do", "parameters"),
    [([HEAVY, LATER], "re-identify", ["object.mass", "actuator.delay"]), ([LATER], "add a delay", ["actuator.delay"]),
     ([ASIDE, HEAVY], "collect a scan", ["camera", "object.mass"])],
)  # fmt: skip
def test_the_best_explanation_says_what_to_do_and_with_which_motion(causes: list, do: str, parameters: list[str]):
    found = next_action(DROPPED, causes, [OUT], 1.0)
    assert found["do"] == do
    assert found["parameters"] == parameters
    assert found["motion"] == MOTIONS[parameters[0]]
    assert f"{100 * causes[0].explains:.0f} %" in found["why"]
    assert str(causes[0].suspect) in found["why"]


@pytest.mark.parametrize(
    ("signature", "share", "do", "word"),
    [(STOPPED, 1.0, "look", "gate"), (HELD, 1.0, "nothing", "held"), (CRUSHED, 1.0, "shift", "too hard"),
     (SLIPPED, 0.25, "widen", "75 %"), (SLIPPED, 1.0, "widen", "it slipped"), (LATE, 1.0, "widen", "too late")],
)  # fmt: skip
def test_without_an_explanation_it_is_what_happened_that_says(signature: str, share: float, do: str, word: str):
    found = next_action(signature, [], [OUT], share)
    assert found["do"] == do
    assert word in found["why"]
    assert found["motion"] is None


def test_a_stop_comes_before_any_explanation():
    assert next_action(STOPPED, [HEAVY], [OUT], 1.0)["do"] == "look"


def test_what_held_only_in_reality_was_not_as_predicted():
    assert verdict_of([], True, 0.0) == "contradicts"
    found = next_action(HELD, [], [], 0.0)
    assert found["do"] == "re-identify"
    assert found["parameters"] == ["object.mass", "fingertip.friction"]
    assert "only in 0 % of simulations" in found["why"]


def test_every_suspect_has_a_motion_that_tells_it():
    names = {s.name for s in suspects(("object.mass", "actuator.delay"))}
    assert names == set(MOTIONS)
    from dexloop.capture import plans

    for motion in MOTIONS.values():
        options = dict(motion)
        getattr(plans, options.pop("plan"))(**options)  # it can be made, with these options
