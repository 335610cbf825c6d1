from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from dexloop.core import se3
from dexloop.vision.appearance import MeshAppearance
from dexloop.vision.track_figure import outlines, track_figure
from dexloop.vision.tracking import Track
from tests.vision import films


def test_shows_the_outline_where_the_object_is_and_red_where_it_was_lost():
    poses = films.slide(0.0305, 4)
    frames = np.full((4, 240, 320, 3), 128, np.uint8)
    lost = np.array([False, True, False, False])
    covariance = np.tile(np.diag([1e-6] * 3 + [1e-4] * 3), (4, 1, 1))
    found = Track(se3.to_pose(poses), covariance, 0 * covariance, lost, np.ones(4))
    with MeshAppearance(films.cube()) as appearance:
        figure = track_figure(frames, films.camera(), appearance, found)
    strip = np.asarray(figure.axes[0].images[0].get_array())
    close_ups = np.split(strip.astype(int), 4, axis=1)
    green = [int(((c[..., 1] - c[..., 0]) > 60).sum()) for c in close_ups]
    red = [int(((c[..., 0] - c[..., 1]) > 60).sum()) for c in close_ups]
    assert [g > 100 for g in green] == [True, False, True, True]
    assert [r > 100 for r in red] == [False, True, False, False]
    shift = figure.axes[1].lines[0].get_ydata()
    np.testing.assert_allclose(shift, 1e3 * (poses[:, 0, 3] - poses[0, 0, 3]), atol=1e-9)
    FigureCanvasAgg(figure).draw()
    assert (frames == 128).all(), "the frames themselves are left as they are"


def test_outlines_run_around_holes_too():
    mask = np.zeros((20, 20), bool)
    mask[4:16, 4:16] = True
    mask[8:12, 8:12] = False
    assert len(outlines(mask)) == 2
