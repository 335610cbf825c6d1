from __future__ import annotations

import mujoco
import numpy as np
import pytest

from dexloop.robots.pointcloud import collides, surface

SHAPES = {
    "box": ('type="box" size="1 2 3"', (1, 2, 3)),
    "sphere": ('type="sphere" size="2"', (2, 2, 2)),
    "ellipsoid": ('type="ellipsoid" size="1 2 3"', (1, 2, 3)),
    "capsule": ('type="capsule" size="1 2"', (1, 1, 3)),
    "cylinder": ('type="cylinder" size="1 2"', (1, 1, 2)),
    "mesh": ('type="mesh" mesh="m"', (1, 1, 1)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_points_reach_the_ends_of_every_shape(shape: str) -> None:
    geom, half = SHAPES[shape]
    cube = "1 1 1  1 1 -1  1 -1 1  1 -1 -1  -1 1 1  -1 1 -1  -1 -1 1  -1 -1 -1"
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><asset><mesh name="m" vertex="{cube}"/></asset><worldbody>'
        f'<geom {geom} pos="10 0 0" contype="0" conaffinity="0"/></worldbody></mujoco>'
    )
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    points = surface(model, data, [0]) - [10, 0, 0]
    np.testing.assert_allclose(points.max(axis=0), half, rtol=0.02)
    np.testing.assert_allclose(points.min(axis=0), np.negative(half), rtol=0.02)
    assert not collides(model, 0)


def test_no_geoms_no_points() -> None:
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    assert surface(model, mujoco.MjData(model), []).shape == (0, 3)
