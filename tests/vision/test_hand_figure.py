from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from dexloop.core import se3
from dexloop.vision.hand_figure import hand_figure
from dexloop.vision.hand_path import HandPath
from dexloop.vision.hand_skeleton import TIPS, bone_lengths
from tests.vision import hand_motions

GREY = 120


def _drawn(n: int = 11) -> tuple[HandPath, np.ndarray, np.ndarray]:
    camera, t = hand_motions.camera(), 5.0 + hand_motions.times(n)
    assert camera.T_world_camera is not None
    points = se3.transform(camera.T_world_camera, hand_motions.posture(n).landmarks())
    seen = np.ones(n, bool)
    seen[3:5] = False
    path = HandPath(t, points, seen, True, seen.astype(float), bone_lengths(points)[0])
    return path, t, np.full((n, 480, 640, 3), GREY, np.uint8)


def test_skeleton_lies_on_the_hand_and_bridged_frames_are_marked():
    path, t, frames = _drawn()
    figure = hand_figure(list(frames), t, hand_motions.camera(), path)
    shown = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in shown] == ["5.00 s", "5.10 s", "5.20 s, bridged", "5.30 s", "5.40 s", "5.50 s"]
    colourful = []
    for axes in shown:
        picture = np.asarray(axes.images[0].get_array()).astype(int)
        drawn = np.abs(picture - GREY).max(axis=-1) > 20
        assert 0.02 < drawn.mean() < 0.3
        rows, columns = np.flatnonzero(drawn.any(axis=1)), np.flatnonzero(drawn.any(axis=0))
        assert rows[0] > 0  # all of it is inside
        assert columns[0] > 0
        assert max(rows[-1], columns[-1]) < len(picture) - 1
        colourful.append(bool((np.ptp(picture, axis=-1) > 100).any()))
    assert colourful == [True, True, False, True, True, True]
    assert [axes.spines["left"].get_visible() for axes in shown] == [False, False, True, False, False, False]
    assert to_rgb(shown[2].spines["left"].get_edgecolor())[0] > 0.8
    FigureCanvasAgg(figure).draw()
    assert (frames == GREY).all(), "the frames themselves are left as they are"


def test_close_up_shows_what_is_under_the_landmark():
    """A white spot at the tip of the index finger comes to lie under the tip that is drawn there."""
    path, t, frames = _drawn(9)
    camera = hand_motions.camera()
    u, v = np.round(camera.project_world(path.landmarks[0, TIPS[1]])).astype(int)
    frames[0, v - 9 : v + 10, u - 9 : u + 10] = 255
    picture = np.asarray(hand_figure(list(frames), t, camera, path).axes[0].images[0].get_array()).astype(int)
    white = np.argwhere((picture > 240).all(axis=-1)).mean(axis=0)
    green = np.argwhere((picture[..., 1] - picture[..., [0, 2]].max(axis=-1)) > 100)
    assert np.linalg.norm(green - white, axis=1).min() < 12


def test_curves_are_those_of_the_path():
    path, t, frames = _drawn()
    figure = hand_figure(list(frames), t, hand_motions.camera(), path)
    moved, opening = (axes for axes in figure.axes if not axes.images)
    wrist = 1e3 * (path.landmarks[:, 0] - path.landmarks[0, 0])
    for c in range(3):
        np.testing.assert_allclose(moved.lines[c].get_ydata(), wrist[:, c])
    pinch = 1e3 * np.linalg.norm(path.landmarks[:, 8] - path.landmarks[:, 4], axis=1)
    np.testing.assert_allclose(opening.lines[0].get_ydata(), pinch)
    assert len(moved.patches) == 2  # the two bridged frames are shaded
