from __future__ import annotations

import json

import pytest

from dexloop.core.status import Level, Status, worst

OK = Status(Level.OK, "ok", "complete")
WARN = Status(Level.WARN, "dropped_frames", "3 of 150 frames are missing", "Record again if it matters.")
FAIL = Status(Level.FAIL, "motionless", "the object moved by 0.1 mm", "Push harder.")
FAIL_TOO = Status(Level.FAIL, "clock_jump", "the clock went back by 2 s", "Record again.")


@pytest.mark.parametrize("status", [OK, WARN, FAIL])
def test_json_round_trip(status: Status) -> None:
    assert Status.from_json(json.loads(json.dumps(status.to_json()))) == status


def test_json_is_plain_text_without_enums() -> None:
    assert WARN.to_json() == {
        "level": "warn",
        "code": "dropped_frames",
        "message": "3 of 150 frames are missing",
        "action": "Record again if it matters.",
    }


def test_action_may_be_absent_in_json() -> None:
    assert Status.from_json({"level": "ok", "code": "ok", "message": "complete"}) == OK


def test_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="perfect"):
        Status.from_json({"level": "perfect", "code": "ok", "message": ""})


def test_text_says_what_to_do_next() -> None:
    assert str(FAIL) == "fail: the object moved by 0.1 mm → Push harder."
    assert str(OK) == "ok: complete"


def test_worst_is_the_first_of_the_worst_level() -> None:
    assert worst([OK, WARN, FAIL, FAIL_TOO], otherwise=OK) is FAIL
    assert worst([WARN, OK], otherwise=OK) is WARN
    assert worst([], otherwise=OK) is OK
    assert worst(iter([OK, FAIL_TOO, FAIL]), otherwise=OK) is FAIL_TOO
