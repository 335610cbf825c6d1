from __future__ import annotations

from functools import cache

import mujoco
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.lab.human import PHASES, HumanHand, HumanMotion, film_camera, grasp_motion, landmarks
from dexloop.lab.human_hand import FINGERS, LANDMARKS, hand_spec
from dexloop.lab.objects import OBJECTS, make
from dexloop.lab.objects.patches import convex
from dexloop.sim.parts import Table, Thing
from dexloop.sim.scene import compose
from dexloop.sim.shape import Shape

FPS = 20.0
every = pytest.mark.parametrize("name", OBJECTS)


def _placed(name: str) -> np.ndarray:
    turn = se3.quat_to_matrix(se3.so3_exp(np.array([0.0, 0.0, 0.25])))
    return se3.from_rt(turn, np.array([0.03, -0.02, 0.0])) @ make(name).T_rest


@cache
def _motion(name: str) -> HumanMotion:
    return grasp_motion(make(name).shape, _placed(name), duration_s=3.0, fps=FPS, seed=5)


@cache
def _distances(name: str) -> dict[str, np.ndarray]:
    """Distance of each bone from the object in every frame [m]."""
    motion, thing = _motion(name), make(name)
    scene = compose(Table(), Thing("it", thing.shape, thing.mass_kg), HumanHand())
    model, data = scene.model, mujoco.MjData(scene.model)
    parts = [model.geom(f"it.{k}").id for k in range(len(thing.shape.parts))]
    bones = ["palm", *(f"{finger}_{k}" for finger in FINGERS for k in (1, 2, 3))]
    out: dict[str, list[float]] = {bone: [] for bone in [*bones, "table"]}
    for i in range(len(motion.t)):
        motion.pose(model, data, i, "it")
        for bone in bones:
            g = model.geom(f"human/{bone}").id
            out[bone].append(min(mujoco.mj_geomDistance(model, data, g, p, 0.05, None) for p in parts))
        table = model.geom("table").id
        out["table"].append(
            min(mujoco.mj_geomDistance(model, data, model.geom(f"human/{b}").id, table, 0.05, None) for b in bones)
        )
    return {bone: np.array(d) for bone, d in out.items()}


@every
def test_hand_closes_on_the_object_and_does_not_enter_it(name: str):
    distance, motion = _distances(name), _motion(name)
    assert min(d.min() for bone, d in distance.items() if bone != "table") > -3e-3
    assert distance["table"].min() > -1e-3
    held = np.array(motion.phase) == "hold"
    touching = [f for f in FINGERS if min(distance[f"{f}_{k}"][held].min() for k in (1, 2, 3)) < 2e-3]
    assert "thumb" in touching
    assert len(touching) >= 3


@every
def test_object_waits_then_moves_with_the_palm(name: str):
    motion, start = _motion(name), _placed(name)
    phase = np.array(motion.phase)
    assert list(dict.fromkeys(motion.phase)) == list(PHASES)
    still = np.isin(phase, ["reach", "close"])
    np.testing.assert_array_equal(motion.T_world_object[still], np.broadcast_to(start, (still.sum(), 4, 4)))
    in_palm = se3.inverse(se3.from_pose(motion.qpos_hand[~still, :7])) @ motion.T_world_object[~still]
    np.testing.assert_allclose(in_palm, np.broadcast_to(in_palm[0], in_palm.shape), atol=1e-9)
    assert motion.T_world_object[-1, 2, 3] - start[2, 3] == pytest.approx(0.10, abs=0.01)


@every
def test_motion_is_smooth_and_as_fast_as_a_person(name: str):
    motion = _motion(name)
    assert len(motion.t) == 60
    np.testing.assert_allclose(np.diff(motion.t), 1 / FPS)
    velocity = np.diff(motion.qpos_hand[:, :3], axis=0) * FPS
    acceleration = np.diff(velocity, axis=0) * FPS
    assert 0.1 < np.linalg.norm(velocity, axis=1).max() < 1.2
    assert np.linalg.norm(acceleration, axis=1).max() < 8.0
    assert np.abs(np.diff(motion.qpos_hand[:, 7:], axis=0)).max() * FPS < 8.0
    jumps = np.linalg.norm(np.diff(motion.T_world_object[:, :3, 3], axis=0), axis=1)
    assert jumps.max() * FPS < 0.6


def test_seed_changes_the_motion_and_repeats_it():
    shape, T = make("spread_jar").shape, _placed("spread_jar")
    first = grasp_motion(shape, T, duration_s=1.0, fps=10, seed=1)
    again = grasp_motion(shape, T, duration_s=1.0, fps=10, seed=1)
    other = grasp_motion(shape, T, duration_s=1.0, fps=10, seed=2)
    np.testing.assert_array_equal(first.qpos_hand, again.qpos_hand)
    assert np.abs(first.qpos_hand - other.qpos_hand).max() > 1e-3


def test_landmarks_are_the_joints_of_a_right_hand():
    motion = _motion("ketchup_bottle")
    points = landmarks(motion)
    assert points.shape == (60, 21, 3)
    np.testing.assert_allclose(points[:, 0], motion.qpos_hand[:, :3], atol=1e-12)
    # Bones keep their lengths, and those are a grown person's.
    bones = [(5, 6, 0.044), (6, 7, 0.026), (9, 10, 0.049), (0, 9, 0.095), (2, 3, 0.034), (17, 18, 0.035)]
    for a, b, length in bones:
        np.testing.assert_allclose(np.linalg.norm(points[:, a] - points[:, b], axis=1), length, atol=5e-4)
    # Of a right hand, fingers x (index - little) points out of the palm's back; fingers bend to the other side.
    across = points[0, 5] - points[0, 17]
    along = points[0, 9] - points[0, 0]
    back = np.cross(along, across)
    assert (points[-1, 12] - points[-1, 9]) @ np.cross(
        points[-1, 9] - points[-1, 0], points[-1, 5] - points[-1, 17]
    ) < 0
    np.testing.assert_allclose(
        back / np.linalg.norm(back), se3.quat_to_matrix(motion.qpos_hand[0, 3:7])[:, 2], atol=0.15
    )


def test_hand_model_has_human_joints():
    model = hand_spec().compile()
    assert model.njnt - 1 >= 20
    assert all(model.site(name).id >= 0 for name in LANDMARKS)
    assert not (model.geom_contype | model.geom_conaffinity).any()


@every
def test_camera_sees_the_whole_demonstration(name: str):
    camera, motion = film_camera(640, 480, target=(0.03, -0.02, 0.11)), _motion(name)
    px = camera.project_world(landmarks(motion))
    inside = (px >= 0).all(axis=-1) & (px[..., 0] < 640) & (px[..., 1] < 480)
    assert inside.mean() > 0.97
    thing = camera.project_world(motion.T_world_object[:, :3, 3])
    assert ((thing > 40) & (thing < [600, 440])).all()


def test_what_cannot_be_done_is_said():
    with pytest.raises(InputError, match="at least 8 frames"):
        grasp_motion(make("cube").shape, make("cube").T_rest, duration_s=0.1, fps=10)
    corners = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T * 0.2
    crate = Shape(convex(corners), None, (convex(corners),))
    with pytest.raises(InputError, match="too large for a hand"):
        grasp_motion(crate, se3.from_rt(np.eye(3), np.array([0, 0, 0.2])))
