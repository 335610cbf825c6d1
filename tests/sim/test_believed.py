from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dexloop.core.artifact import save_arrays, writing
from dexloop.core.artifacts import Belief
from dexloop.core.errors import InputError
from dexloop.robots.catalog import load
from dexloop.sim.believed import draw
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
