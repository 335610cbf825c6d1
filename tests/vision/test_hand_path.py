from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError, MissingPart, StorageError
from dexloop.lab import Lab, LabCfg
from dexloop.lab.human import landmarks as true_landmarks
from dexloop.vision import hand_bundle
from dexloop.vision.hand_path import HandPath, load_landmarks, locate
from dexloop.vision.hand_skeleton import TIPS, bone_lengths
from dexloop.vision.hands import HandTrack, detect_hands
from tests.vision import hand_motions
from tests.vision.hand_motions import HAND_M

CAMERA, T = hand_motions.camera(), hand_motions.times()


def _world(points: np.ndarray) -> np.ndarray:
    assert CAMERA.T_world_camera is not None
    return se3.transform(CAMERA.T_world_camera, points)


def _without(track: HandTrack, frames: slice | list[int]) -> HandTrack:
    """The hand is not found in some frames."""
    found, pixels, world = track.found.copy(), track.landmarks_px.copy(), track.world.copy()
    found[frames], pixels[frames], world[frames] = False, np.nan, np.nan
    return replace(track, found=found, landmarks_px=pixels, world=world)


def _path(n: int = 20) -> HandPath:
    points = _world(hand_motions.posture(n).landmarks())
    seen = np.ones(n, bool)
    seen[5:7] = False
    return HandPath(T[:n], points, seen, False, np.where(seen, 0.7, 0.0), bone_lengths(points)[0])


def test_planted_hand_is_located_in_the_world():
    hand = hand_motions.posture(stretch=0.05)
    path = locate(hand_motions.track(hand, CAMERA, noise_px=1.0), CAMERA, T, hand_length_m=HAND_M)
    true = _world(hand.landmarks())
    assert path.landmarks.shape == (40, 21, 3)
    assert path.seen.all()
    assert path.right
    assert (path.confidence > 0.05).all()
    assert path.confidence.max() == pytest.approx(0.95)
    np.testing.assert_array_equal(path.t, T)
    assert np.median(np.linalg.norm(path.landmarks - true, axis=-1)) < 0.01
    np.testing.assert_allclose(bone_lengths(path.landmarks), np.tile(path.bone_lengths, (40, 1)), atol=1e-9)
    off = np.linalg.norm(CAMERA.project_world(path.landmarks) - CAMERA.project_world(true), axis=-1)
    assert np.median(off) < 1.5


def test_left_hand_is_a_right_hand_in_a_mirror():
    hand = hand_motions.posture()
    right = locate(hand_motions.track(hand, CAMERA), CAMERA, T)
    left = locate(hand_motions.track(hand, CAMERA, right=False), CAMERA, T)
    assert not left.right
    assert CAMERA.T_world_camera is not None
    mirrored = [se3.transform(se3.inverse(CAMERA.T_world_camera), p.landmarks) for p in (right, left)]
    np.testing.assert_allclose(mirrored[1], mirrored[0] * [-1.0, 1.0, 1.0], atol=1e-9)


def test_distance_goes_with_the_size_of_the_hand():
    track = hand_motions.track(hand_motions.posture(), CAMERA)
    near, far = (locate(track, CAMERA, T, hand_length_m=m) for m in (0.08, 0.1))
    assert CAMERA.T_world_camera is not None
    eye = CAMERA.T_world_camera[:3, 3]
    ratio = np.linalg.norm(far.landmarks - eye, axis=-1) / np.linalg.norm(near.landmarks - eye, axis=-1)
    np.testing.assert_allclose(ratio, 1.25, rtol=0.01)
    np.testing.assert_allclose(far.bone_lengths / near.bone_lengths, 1.25, rtol=0.01)


def test_gaps_are_bridged_and_ends_left_out():
    hand = hand_motions.posture()
    track = _without(_without(hand_motions.track(hand, CAMERA), slice(17, 25)), [0, 1, 38, 39])
    track.right[30:32] = False  # for two frames it was taken for the other hand
    path = locate(track, CAMERA, T, hand_length_m=HAND_M)
    np.testing.assert_array_equal(path.t, T[2:38])
    assert np.flatnonzero(~path.seen).tolist() == [*range(15, 23), 28, 29]
    assert (path.confidence[~path.seen] == 0).all()
    error = np.linalg.norm(path.landmarks - _world(hand.landmarks())[2:38], axis=-1)
    assert np.median(error) < 6e-3
    assert error[~path.seen].max() < 0.02
    np.testing.assert_allclose(bone_lengths(path.landmarks), np.tile(path.bone_lengths, (36, 1)), atol=1e-9)


def test_long_gaps_are_refused_unless_asked_for():
    track = _without(hand_motions.track(hand_motions.posture(), CAMERA), slice(14, 26))
    with pytest.raises(InputError, match=r"out of sight from 0\.65 s to 1\.30 s.*cut the video there, or raise gap_s"):
        locate(track, CAMERA, T)
    assert len(locate(track, CAMERA, T, gap_s=0.7).t) == 40
    stray = _without(hand_motions.track(hand_motions.posture(), CAMERA), slice(3, 16))
    assert locate(stray, CAMERA, T).t[0] == T[16]


def test_what_cannot_be_located_is_said():
    track = hand_motions.track(hand_motions.posture(), CAMERA)
    nothing = _without(track, slice(None))
    with pytest.raises(InputError, match="no hand was found in the video: film one hand"):
        locate(nothing, CAMERA, T)
    flips = replace(track, right=np.arange(40) % 5 < 3)
    with pytest.raises(InputError, match="60% of the frames show a right hand and the others a left one"):
        locate(flips, CAMERA, T)
    assert locate(flips, CAMERA, T, right=True).right
    with pytest.raises(InputError, match="a right hand is seen in 7 of 40 frames, which is too few"):
        locate(_without(track, slice(7, 40)), CAMERA, T)
    with pytest.raises(InputError, match="a left hand is seen in 0 of 40 frames"):
        locate(track, CAMERA, T, right=False)
    with pytest.raises(InputError, match="never seen in 8 frames"):
        locate(_without(track, slice(5, 35)), CAMERA, T)
    with pytest.raises(InputError, match="39 times for 40 frames"):
        locate(track, CAMERA, T[1:])
    with pytest.raises(InputError, match=r"do not increase \(after frame 4"):
        locate(track, CAMERA, np.where(np.arange(40) == 5, 0.0, T))
    with pytest.raises(InputError, match="milliseconds, divide them by 1000"):
        locate(track, CAMERA, 1e3 * T)
    with pytest.raises(InputError, match="'phone' has no place in the world"):
        locate(track, replace(CAMERA, T_world_camera=None), T)
    with pytest.raises(InputError, match="no hand is 90 m from wrist"):
        locate(track, CAMERA, T, hand_length_m=90.0)


def test_saved_path_is_read_back(tmp_path: Path):
    path = _path()
    path.save(tmp_path / "hand.npz")
    again = load_landmarks(tmp_path / "hand.npz")
    for name in ("t", "landmarks", "seen", "confidence"):
        np.testing.assert_array_equal(getattr(again, name), getattr(path, name))
    np.testing.assert_allclose(again.bone_lengths, path.bone_lengths)
    assert not again.right
    with pytest.raises(InputError, match=r"ends in \.npz"):
        path.save(tmp_path / "hand.csv")
    with pytest.raises(StorageError):
        path.save(tmp_path / "missing" / "hand.npz")


@pytest.mark.parametrize("header", ["", "t," + ",".join(f"{a}{k}" for k in range(21) for a in "xyz") + "\n"])
def test_tables_are_read(tmp_path: Path, header: str):
    path = _path()
    rows = np.concatenate([path.t[:, None], path.landmarks.reshape(20, 63)], axis=1)
    lines = [",".join(f"{v:.9g}" for v in row) for row in rows]
    lines[3] = ",".join(["0.15", *[""] * 63])
    lines[4] = lines[4].rsplit(",", 1)[0] + ",nan"
    file = tmp_path / "hand.csv"
    file.write_text(header + "\n".join(lines) + "\n")
    read = load_landmarks(file)
    assert read.right
    assert not load_landmarks(file, right=False).right
    assert np.flatnonzero(~read.seen).tolist() == [3, 4]
    assert (read.confidence == read.seen).all()
    assert np.abs(read.landmarks - path.landmarks).max() < 1e-3  # bridged by the smoothest curve
    np.testing.assert_allclose(read.landmarks[read.seen], path.landmarks[read.seen], atol=1e-8)


def test_ends_that_were_not_measured_are_left_out(tmp_path: Path):
    points = _path().landmarks.copy()
    points[[0, 1, 19]] = np.nan
    np.savez(tmp_path / "a.npz", t=T[:20], landmarks=points)
    read = load_landmarks(tmp_path / "a.npz")
    np.testing.assert_array_equal(read.t, T[2:19])
    points[6:17] = np.nan
    np.savez(tmp_path / "a.npz", t=T[:20], landmarks=points)
    with pytest.raises(InputError, match="whole frames of 20"):
        load_landmarks(tmp_path / "a.npz")


def test_files_that_hold_no_hand_are_refused(tmp_path: Path):
    points, t, file = _path().landmarks, T[:20], tmp_path / "a.npz"

    def refuses(match: str, **arrays: np.ndarray) -> None:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
        with pytest.raises(InputError, match=match):
            load_landmarks(file)

    refuses("looks like millimetres, not metres: divide the landmarks by 1000", t=t, landmarks=1e3 * points)
    refuses("looks like centimetres, not metres: divide the landmarks by 100", t=t, landmarks=1e2 * points)
    refuses("which no hand has", t=t, landmarks=5 * points)
    refuses(r"landmarks of shape \(20, 63\)", t=t, landmarks=points.reshape(20, 63))
    refuses(r"t of shape \(19,\)", t=t[1:], landmarks=points)
    refuses("lacks landmarks: it holds points, t", t=t, points=points)
    refuses("do not increase", t=t[::-1], landmarks=points)
    refuses("not all numbers", t=np.where(t == 0, np.nan, t), landmarks=points)
    refuses("milliseconds", t=1e3 * t, landmarks=points)
    refuses(r"seen of shape \(3,\)", t=t, landmarks=points, seen=np.ones(3, bool))
    with pytest.raises(InputError, match=r"neither \.npz nor \.csv"):
        load_landmarks(tmp_path / "a.txt")
    with pytest.raises(InputError, match="cannot be read"):
        load_landmarks(tmp_path / "none.csv")
    table = tmp_path / "a.csv"
    table.write_text("t,x\n0,1\n")
    with pytest.raises(InputError, match="line 2 has 2 columns: write 64"):
        load_landmarks(table)
    table.write_text(",".join(["0"] * 64) + "\n" + ",".join(["0"] * 63) + ",left\n")
    with pytest.raises(InputError, match="line 2: could not convert string to float: 'left'"):
        load_landmarks(table)


def test_demonstrator_is_located_to_a_finger_s_width():
    try:
        bundle = hand_bundle.bundle_path()
    except MissingPart as error:
        pytest.skip(f"no hand model: {error}")
    lab = Lab(LabCfg(object="spread_jar", seed=1))
    info, film = lab.rig().operator.demonstrate(duration_s=2.4, fps=12.0)
    t, frames = zip(*((f.t[0], f.image[0]) for f in film), strict=True)
    path = locate(detect_hands(frames, 12.0, bundle=bundle), info.camera, np.array(t))
    true = true_landmarks(lab.demonstration(duration_s=2.4, fps=12.0))[np.searchsorted(t, path.t)]
    assert path.right
    assert path.seen.mean() > 0.8
    off = path.landmarks[:, TIPS] - true[:, TIPS]
    assert np.median(np.linalg.norm(off, axis=-1)) < 0.035
    # What one camera cannot tell, how far away it all is, taken out.
    assert np.median(np.linalg.norm(off - np.median(off, axis=(0, 1)), axis=-1)) < 0.02
