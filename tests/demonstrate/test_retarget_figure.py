from __future__ import annotations

import numpy as np

from dexloop.core import se3
from dexloop.demonstrate.retarget import Retargeter
from dexloop.demonstrate.retarget_figure import retarget_figure


def test_draws_the_robot_where_the_humans_fingertips_are(robot, motion: np.ndarray):
    """Dots are the human's fingertips: under each of the thumb's and the fingers' there must be robot, not paper."""
    e = robot("dex16")
    found = Retargeter(e).retarget(motion)
    view = se3.look_at(np.zeros(3), np.array([0.3, 0.2, -1.0]))[:3, :3]
    figure = retarget_figure(motion, found, e, shown=2, R_world_view=view)
    axes = np.array(figure.axes).reshape(2, 2)
    hits = 0
    for ax in axes[1]:
        picture = np.asarray(ax.images[0].get_array())
        assert 0.05 < (picture < 250).any(axis=-1).mean() < 0.7
        dots = [line.get_xydata()[0] for line in ax.lines]
        assert len(dots) == 4
        for u, v in np.round(dots).astype(int):
            patch = picture[max(v - 8, 0) : v + 9, max(u - 8, 0) : u + 9]
            hits += int((patch < 250).any())
    assert hits >= 7
    assert all(len(ax.lines) == 7 for ax in axes[0])  # palm, thumb's root and five fingers


def test_pictures_come_on_top(robot, motion: np.ndarray):
    e = robot("gripper")
    found = Retargeter(e).retarget(motion)
    pictures = [np.full((8, 8, 3), k, dtype=np.uint8) for k in range(len(motion))]
    figure = retarget_figure(motion, found, e, shown=3, pictures=pictures)
    axes = np.array(figure.axes).reshape(3, 3)
    assert [int(np.asarray(ax.images[0].get_array())[0, 0, 0]) for ax in axes[0]] == [0, 29, 59]
