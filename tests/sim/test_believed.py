from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dexloop.core.artifact import save_arrays, writing
from dexloop.core.artifacts import Belief
from dexloop.core.errors import InputError
from dexloop.robots.catalog import load
from dexloop.sim.believed import Draws, draw, mean_of, middle
from dexloop.sim.parts import Primitive, Robot, Table, Thing
from dexloop.sim.scene import SceneCfg, compose
from dexloop.sim.world import World
from tests.sim.scenes import push_scene

LABELS = ["object.mass", "clock.camera", "object.com.x", "object.com.y", "object.com.z", "gain.joint_effort",
          "table.friction"]  # fmt: skip


def belief(folder: Path, labels: list[str] = LABELS, count: int = 200) -> Belief:
    rng = np.random.default_rng(0)
    samples = np.stack([rng.uniform(0.1 * (k + 1), 0.1 * (k + 1) + 0.05, count) for k in range(len(labels))], axis=1)
    with writing(folder / "belief", Belief) as draft:
        save_arrays(draft.folder / "posterior.npz", mean=samples.mean(0), covariance=np.cov(samples.T), samples=samples)
        draft.meta["labels"] = labels
    return Belief.open(folder / "belief")


def test_draws_are_rows_of_the_belief_without_what_is_of_sensors(tmp_path: Path):
    made, scene = belief(tmp_path), push_scene()
    draws = draw(made, scene, 50, seed=1)
    assert draws.names == ("object.mass", "object.com", "table.friction")
    assert draws.sizes == (1, 3, 1)
    with np.load(made.path / "posterior.npz") as file:
        samples = file["samples"][:, [0, 2, 3, 4, 6]]
    for row in draws.values:
        assert (np.abs(samples - row).sum(axis=1) == 0).any()
    assert len(np.unique(draws.values[:, 0])) > 20
    np.testing.assert_array_equal(draw(made, scene, 50, seed=1).values, draws.values)


def test_a_world_takes_them_whatever_their_order(tmp_path: Path):
    scene = push_scene()
    draws = draw(belief(tmp_path, [*reversed(LABELS[:1]), "table.friction"]), scene, 4)
    draws = draws.with_values("table.friction", np.array([0.1, 0.2, 0.3, 0.4]))
    world = World(scene, 4, parameters=draws.names)
    world.set(draws.by_name())
    at = [p.name for p in world.parameters].index("table.friction")
    np.testing.assert_allclose(world.values[:, at], [0.1, 0.2, 0.3, 0.4])


def test_values_are_replaced_or_added(tmp_path: Path):
    draws = draw(belief(tmp_path), push_scene(), 3)
    heavier = draws.with_values("object.mass", np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(heavier.by_name()["object.mass"][:, 0], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(heavier.by_name()["object.com"], draws.by_name()["object.com"])
    more = draws.with_values("fingertip.friction", np.array([0.5, 0.6, 0.7]))
    np.testing.assert_array_equal(more.by_name()["fingertip.friction"][:, 0], [0.5, 0.6, 0.7])
    np.testing.assert_array_equal(more[1:].by_name()["fingertip.friction"][:, 0], [0.6, 0.7])
    assert len(more[1:]) == 2


def test_a_belief_about_something_else_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"speaks of mug\.mass"):
        draw(belief(tmp_path, ["mug.mass", "clock.camera"]), push_scene(), 3)


def test_the_whole_hand_slides_as_its_fingertips_do(tmp_path: Path):
    labels = ["object.mass", "fingertip.friction"]
    scene = compose(
        Table(), Robot(load("dex16@wrist")), Thing("cube", Primitive("box", (0.02, 0.02, 0.02)), 0.1),
        cfg=SceneCfg(max_delay_s=0.0),
    )  # fmt: skip
    draws = draw(belief(tmp_path, labels), scene, 5)
    drawn = draws.by_name()
    np.testing.assert_array_equal(drawn["object.friction"], drawn["fingertip.friction"])
    other = draws.with_hand_friction(np.full(5, 0.7)).by_name()
    assert (other["object.friction"] == 0.7).all()
    assert (other["fingertip.friction"] == 0.7).all()


def test_the_mean_of_one_number_or_what_is_said_otherwise(tmp_path: Path):
    made = belief(tmp_path)
    with np.load(made.path / "posterior.npz") as file:
        clock = file["samples"][:, 1].mean()
    assert mean_of(made, "clock.camera", otherwise=9.0) == pytest.approx(clock)
    assert 0.2 < clock < 0.25
    assert mean_of(made, "gain.touch", otherwise=9.0) == 9.0


def test_the_middle_of_many_worlds_is_one_world():
    draws = Draws(("object.mass", "object.com"), (1, 3), np.array([[1.0, 0, 5, 1], [2, 1, 6, 1], [9, 2, 4, 1]]))
    one = middle(draws)
    assert (one.names, one.sizes, len(one)) == (draws.names, draws.sizes, 1)
    np.testing.assert_array_equal(one.values, [[2.0, 1, 5, 1]])


def test_worlds_are_put_together_by_name_and_what_one_lacks_is_one():
    few = Draws(("object.com", "object.mass"), (3, 1), np.array([[1.0, 2, 3, 0.5]]))
    more = Draws(("object.mass", "actuator.gain", "object.com"), (1, 1, 3), np.array([[0.7, 1.4, 4.0, 5, 6]] * 2))
    both = Draws.together(few, more)
    assert both.names == more.names
    np.testing.assert_array_equal(both.values, [[0.5, 1.0, 1, 2, 3], [0.7, 1.4, 4, 5, 6], [0.7, 1.4, 4, 5, 6]])
