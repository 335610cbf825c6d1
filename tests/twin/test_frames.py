from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from dexloop.core.camera import Camera
from dexloop.core.capture import Recording, VideoInfo
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.twin.frames import choose_frames, guess_camera
from dexloop.vision.video import VideoWriter
from tests.twin import table


def pan(x: np.ndarray, size: tuple[int, int] = (240, 180)) -> list[np.ndarray]:
    """Pictures of the print, at x pixels from its left edge."""
    texture, _ = table()
    w, h = size
    return [np.ascontiguousarray(texture[200 : 200 + h, round(v) : round(v) + w]) for v in x]


def save(folder: Path, pictures: list[np.ndarray]) -> Path:
    folder.mkdir(exist_ok=True)
    for k, picture in enumerate(pictures):
        cv2.imwrite(str(folder / f"{k:03d}.png"), picture[..., ::-1])
    return folder


def codes(statuses) -> set[str]:
    return {s.code for s in statuses}


def test_frames_are_spread_over_the_motion_not_over_time(tmp_path: Path) -> None:
    # Half of the time is spent on a tenth of the way.
    x = np.concatenate([np.linspace(0, 60, 30), np.linspace(65, 600, 30)])
    found = choose_frames(save(tmp_path / "a", pan(x)), count=15)
    steps = np.diff(x[[f.index for f in found.frames]])
    assert 10 <= len(found.frames) <= 15
    assert steps.max() < 3 * np.median(steps)
    assert sum(f.index < 30 for f in found.frames) <= 4


def test_shaken_pictures_are_left_out(tmp_path: Path) -> None:
    pictures = pan(np.linspace(0, 500, 40))
    shaken = [3, 11, 12, 27]
    for k in shaken:
        pictures[k] = cv2.blur(pictures[k], (13, 1))
    found = choose_frames(save(tmp_path / "a", pictures), count=40)
    assert not {f.index for f in found.frames} & set(shaken)
    assert "shaken" in codes(found.statuses)


def test_a_scan_that_is_blurred_throughout_is_said_so(tmp_path: Path) -> None:
    pictures = [cv2.GaussianBlur(p, (0, 0), 4) for p in pan(np.linspace(0, 500, 20))]
    found = choose_frames(save(tmp_path / "a", pictures))
    assert "blurred" in codes(found.statuses)
    sharp = choose_frames(save(tmp_path / "b", pan(np.linspace(0, 500, 20))))
    assert "blurred" not in codes(sharp.statuses)


def test_the_same_picture_is_used_once(tmp_path: Path) -> None:
    pictures = pan(np.linspace(0, 500, 20))
    twice = [p for p in pictures for _ in range(3)] + pictures[:5]
    found = choose_frames(save(tmp_path / "a", twice), count=60)
    assert len(found.frames) == 20
    assert "duplicates" in codes(found.statuses)


def test_a_camera_that_never_moves_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    still = [np.clip(p + rng.normal(0, 1.5, p.shape), 0, 255).astype(np.uint8) for p in pan(np.zeros(30))]
    with pytest.raises(InputError, match="1 different pictures"):
        choose_frames(save(tmp_path / "a", still))


@pytest.mark.parametrize(("level", "word"), [(0, "black"), (128, "grey")])
def test_empty_pictures_are_named(tmp_path: Path, level: int, word: str) -> None:
    with pytest.raises(InputError, match=word):
        choose_frames(save(tmp_path / "a", [np.full((60, 80, 3), level, np.uint8)] * 10))


def test_a_broken_file_among_good_ones_is_named(tmp_path: Path) -> None:
    folder = save(tmp_path / "a", pan(np.linspace(0, 500, 20)))
    (folder / "004.png").write_bytes(b"no picture")
    found = choose_frames(folder)
    assert "004.png" in next(s.message for s in found.statuses if s.code == "broken_pictures")
    assert {f.index for f in found.frames} == set(range(20)) - {4}


def test_mixed_sizes_are_each_a_camera_of_their_own(tmp_path: Path) -> None:
    pictures = pan(np.linspace(0, 250, 10)) + [cv2.resize(p, (320, 240)) for p in pan(np.linspace(260, 500, 10))]
    found = choose_frames(save(tmp_path / "a", pictures), camera=Camera("c", 480, 360, 500, 500, 239.5, 179.5))
    assert "mixed_sizes" in codes(found.statuses)
    for frame in found.frames:
        assert frame.rgb.shape[:2] == (frame.camera.height, frame.camera.width)
        assert frame.camera.fx / frame.camera.width == pytest.approx(500 / 480)


def test_an_unknown_camera_is_guessed_and_said_so(tmp_path: Path) -> None:
    found = choose_frames(save(tmp_path / "a", pan(np.linspace(0, 500, 20))))
    assert not found.camera_known
    assert "camera_guessed" in codes(found.statuses)


def test_videos_are_read_and_made_smaller(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "scan.mp4", 240, 180, 10.0) as writer:
        for picture in pan(np.linspace(0, 500, 24)):
            writer.write(picture)
    found = choose_frames(tmp_path / "scan.mp4", count=10, max_side_px=120)
    assert 8 <= len(found.frames) <= 10
    assert found.frames[0].rgb.shape == (90, 120, 3)
    assert found.frames[0].name == "scan_00000"


def test_a_recording_brings_its_camera(tmp_path: Path) -> None:
    camera = Camera("phone", 240, 180, 200.0, 200.0, 119.5, 89.5)
    (tmp_path / "videos").mkdir()
    with VideoWriter(tmp_path / "videos" / "phone.mp4", 240, 180, 10.0) as writer:
        for picture in pan(np.linspace(0, 500, 12)):
            writer.write(picture)
    np.savez(tmp_path / "videos" / "phone.npz", t=np.arange(12) / 10)
    videos = {"phone": VideoInfo("phone", camera, "phone", 10.0)}
    recording = Recording("scan", tmp_path, {}, {}, {}, {}, videos)
    found = choose_frames(recording)
    assert found.camera_known
    assert found.frames[0].camera == camera
    guessed = replace(recording, checks=(Status(Level.WARN, "camera_guessed", ""),))
    assert not choose_frames(guessed).camera_known
    with pytest.raises(UnknownName, match="video"):
        choose_frames(replace(recording, videos={}))


def test_too_few_and_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only 5 different"):
        choose_frames(save(tmp_path / "a", pan(np.linspace(0, 500, 5))))
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match="holds no picture"):
        choose_frames(tmp_path / "b")
    (tmp_path / "c.mp4").write_bytes(b"\0\0\0\x20ftypisom" + b"\0" * 100)
    with pytest.raises(InputError, match=r"MP4|video"):
        choose_frames(tmp_path / "c.mp4")


def test_a_guessed_camera_is_a_phone() -> None:
    assert guess_camera(640, 480).fx == pytest.approx(522, abs=2)
