from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.robots.builtin import parts


def test_a_servo_is_a_spring_and_a_damper_up_to_its_limit() -> None:
    spec = parts.new_spec("x")
    body = spec.worldbody.add_body(name="b")
    parts.joint(body, "j", (0, 0, 1), (-1, 1), {"armature": 0.0, "damping": 0.0, "frictionloss": 0.0})
    parts.solid(body, "box", parts.finish_name("x", "shell"), 2.0, size=[0.1, 0.1, 0.1])
    parts.servo(spec, "j", (-1, 1), kp=10.0, kv=0.5, effort=3.0)
    model = spec.compile()
    assert model.body_mass.sum() == pytest.approx(2.0)
    data = mujoco.MjData(model)
    data.ctrl[0], data.qpos[0], data.qvel[0] = 0.2, 0.1, 0.4
    mujoco.mj_forward(model, data)
    assert data.actuator_force[0] == pytest.approx(10 * (0.2 - 0.1) - 0.5 * 0.4)
    data.ctrl[0] = 0.9
    mujoco.mj_forward(model, data)
    assert data.actuator_force[0] == 3.0


def test_trim_weighs_nothing_and_touches_nothing() -> None:
    spec = parts.new_spec("x")
    body = spec.worldbody.add_body(name="b")
    parts.trim(body, "sphere", parts.finish_name("x", "metal"), size=[0.1])
    model = spec.compile()
    assert model.body_mass.sum() == 0
    np.testing.assert_array_equal([model.geom_contype[0], model.geom_conaffinity[0]], 0)


def test_a_model_leaves_options_to_its_scene() -> None:
    scene = mujoco.MjSpec()
    scene.option.timestep, scene.option.impratio = 0.0005, 20
    scene.attach(parts.new_spec("x"), frame=scene.worldbody.add_frame(), prefix="x_")
    assert scene.compile().opt.impratio == 20
