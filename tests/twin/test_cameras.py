from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.twin.cameras import assess, look_at_point, table_points
from dexloop.vision.views import View
from tests.twin import CAMERA, path, scan


def test_half_a_walk_is_said_to_be_one_sided() -> None:
    frames, T = scan()
    views = [View(f.name, CAMERA, pose, f.rgb) for f, pose in zip(frames, T, strict=True)][:8]
    none = np.zeros((0, 3))
    found = assess(
        views, none, none.astype(np.uint8), given=8, with_board=0, reprojection_px=0.3, board_px=None,
        position_sd_m=None, scale_sd=1e-3,
    )  # fmt: skip
    assert found.status.code == "one_sided"
    first, last = (np.degrees(np.arctan2(T[k, 1, 3], T[k, 0, 3] + 0.02)) for k in (0, 7))
    assert found.quality.widest_gap_deg == pytest.approx((first - last) % 360, abs=0.1)


def test_pixels_on_the_table() -> None:
    view = View("v", CAMERA, path(3)[1], np.zeros((300, 400, 3), np.uint8))
    p = np.array([[0.1, -0.05, 0.0], [0.0, 0.03, 0.0]])
    uv = CAMERA.project(se3.transform(se3.inverse(view.T_world_camera), p))
    np.testing.assert_allclose(table_points(view, uv), p, atol=1e-9)
    level = replace(view, T_world_camera=se3.look_at(np.array([0, 0, 0.3]), np.array([1.0, 0, 0.3])))
    assert np.isnan(table_points(level, np.array([[200.0, 10.0]]))).all()
    np.testing.assert_allclose(
        look_at_point([replace(view, T_world_camera=T) for T in path(5)]), [-0.02, 0, 0.03], atol=1e-9
    )
