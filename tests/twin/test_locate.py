from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.twin.locate import locate
from tests.twin import BOARD, CAMERA, errors_m, scan, table


def test_cameras_are_found_to_a_millimetre_with_a_wrong_focal_length() -> None:
    frames, T = scan()
    nominal = replace(CAMERA, fx=CAMERA.fx * 1.008, fy=CAMERA.fy * 1.008)
    found = locate([replace(f, camera=nominal) for f in frames], board=BOARD, T_world_board=table()[1])
    assert len(found.views) == len(frames)
    assert found.quality.with_board < len(frames)  # the others were joined by what they share
    assert np.median(errors_m(found.views, T)) < 1e-3
    assert found.quality.reprojection_px < 0.5
    assert found.views[0].camera.fx == pytest.approx(CAMERA.fx, rel=3e-3)
    assert found.quality.around == 1.0
    # Half of the shared points lie on the print, and none below it.
    assert np.median(np.abs(found.points[:, 2])) < 1e-3
    assert np.percentile(found.points[:, 2], 1) > -3e-3


def test_a_bent_lens_is_straightened() -> None:
    frames, T = scan()
    bend = np.array([-0.12, 0.02, 0.0, 0.0, 0.0])
    u, v = np.meshgrid(np.arange(400.0), np.arange(300.0))
    straight = cv2.undistortPoints(np.stack([u, v], -1).reshape(-1, 1, 2), CAMERA.K, bend, P=CAMERA.K).reshape(
        300, 400, 2
    )
    maps = straight.astype(np.float32)
    bent = [replace(f, rgb=cv2.remap(f.rgb, maps[..., 0], maps[..., 1], cv2.INTER_CUBIC)) for f in frames]
    found = locate(bent, camera_known=False, board=BOARD, T_world_board=table()[1])
    assert np.median(errors_m(found.views, T)) < 1.5e-3
    assert found.quality.reprojection_px < 0.6
    # In the straightened picture the board's corners are where a pinhole camera puts them.
    worst = [
        np.abs(
            view.camera.project(se3.transform(se3.inverse(view.T_world_camera) @ table()[1], b.corners_board))
            - b.corners_px
        )
        for view in found.views
        if (b := BOARD.detect(view.rgb, view.camera)) is not None
    ]
    assert np.median(np.concatenate(worst)) < 0.3


def test_pictures_that_share_nothing_are_refused() -> None:
    frames, _ = scan()
    rng = np.random.default_rng(0)
    board = {k for k, f in enumerate(frames) if BOARD.detect(f.rgb, f.camera)}
    keep = sorted(board)[0]
    noise = [cv2.resize(rng.integers(0, 255, (60, 80, 3), dtype=np.uint8), (400, 300)) for _ in frames]
    mixed = [f if k == keep else replace(f, rgb=noise[k]) for k, f in enumerate(frames)]
    with pytest.raises(InputError, match=r"only 1 of 14 pictures could be located.*[Ff]ilm again"):
        locate(mixed, board=BOARD)
    plain = [f if k == keep else replace(f, rgb=np.full_like(f.rgb, 90)) for k, f in enumerate(frames)]
    with pytest.raises(InputError, match="hardly any detail"):
        locate(plain, board=BOARD)
    with pytest.raises(InputError, match="too few"):
        locate(frames[:4], board=BOARD)
