from __future__ import annotations

import numpy as np

from dexloop.vision.background import Background, cut


def test_learns_around_the_object_and_under_it_once_it_left():
    scene = np.full((40, 50), 90.0, np.float32)
    frame = scene.copy()
    frame[10:20, 10:20] = 200.0
    covered = np.zeros((40, 50), bool)
    covered[8:22, 8:22] = True
    background = Background((40, 50))
    background.learn(frame, ~covered)
    grey, known = background.region(0, 0, 50, 40)
    assert known[15, 15] == 0.0
    np.testing.assert_allclose(grey, 90.0, atol=1e-3, err_msg="what was never seen is guessed from around it")
    background.learn(scene, np.ones((40, 50), bool))
    assert background.region(0, 0, 50, 40)[1].all()


def test_a_passing_hand_is_no_background_but_what_stays_is():
    scene, hand = np.full((10, 10), 90.0, np.float32), np.full((10, 10), 30.0, np.float32)
    everywhere = np.ones((10, 10), bool)
    background = Background((10, 10))
    background.learn(scene, everywhere)
    for _ in range(3):
        background.learn(hand, everywhere)
    assert (background.grey == 90.0).all()
    for _ in range(10):
        background.learn(hand, everywhere)
    assert (background.grey == 30.0).all()


def test_cut_reaches_beyond_the_picture():
    picture = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(cut(picture, -1, 1, 3, 3), [[0, 4, 5], [0, 8, 9], [0, 0, 0]])
    assert not cut(picture, 10, 10, 2, 2).any()
    # A mask of a region, put back into the whole picture.
    np.testing.assert_array_equal(cut(cut(picture, 1, 1, 2, 2), -1, -1, 4, 3)[1:3, 1:3], picture[1:3, 1:3])
