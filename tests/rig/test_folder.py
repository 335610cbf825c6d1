"""What a folder may say; `tests/capture/test_importing.py` has what it may not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dexloop.core.errors import InputError, UnknownName
from dexloop.rig.folder import read_folder
from dexloop.vision.video import VideoWriter


def make(folder: Path, toml: str, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "capture.toml").write_text(toml)
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def stream(folder: Path):
    (recording,) = read_folder(folder)
    (found,) = recording.streams
    return found


def test_units_are_converted(tmp_path: Path):
    toml = """
        [streams.q]
        kind = "joint_position"
        unit = ["deg", "mm"]
        time_unit = "ms"
        limits = [[-90, 90], [0, 50]]
    """
    found = stream(make(tmp_path, toml, q="t,turn,slide\n1000,90,5\n1010,45,6\n"))
    assert found.t == pytest.approx([1.0, 1.01])
    assert found.value == pytest.approx(np.array([[np.pi / 2, 0.005], [np.pi / 4, 0.006]]))
    assert found.info.units == ("rad", "m")
    assert np.array(found.info.limits) == pytest.approx(np.array([[-np.pi / 2, np.pi / 2], [0, 0.05]]))


def test_a_wrench_in_newton_millimetres(tmp_path: Path):
    toml = '[streams.w]\nkind = "wrench"\nunit = ["kN", "Nmm"]\n'
    found = stream(make(tmp_path, toml, w="t,tx,ty,tz,fx,fy,fz\n0,1,2,3,4,5,6\n0.01,1,2,3,4,5,6\n"))
    assert found.value[0] == pytest.approx([4000, 5000, 6000, 0.001, 0.002, 0.003])


@pytest.mark.parametrize(
    ("order", "header", "row"),
    [
        ("", "x,y,z,qw,qx,qy,qz", "1,2,3,0.8,0.6,0,0"),
        ("", "x,y,z,qx,qy,qz,qw", "1,2,3,0.6,0,0,0.8"),
        ("xyzw", "x,y,z,qx,qy,qz,qw", "1,2,3,0.6,0,0,0.8"),
        ("xyzw", "px,py,pz,a,b,c,d", "1,2,3,0.6,0,0,0.8"),
        ("wxyz", "px,py,pz,a,b,c,d", "1,2,3,0.8,0.6,0,0"),
    ],
)
def test_quaternions_become_w_x_y_z(tmp_path: Path, order: str, header: str, row: str):
    toml = '[streams.p]\nkind = "pose"\n' + (f'quaternion = "{order}"\n' if order else "")
    found = stream(make(tmp_path, toml, p=f"t,{header}\n0,{row}\n0.01,{row}\n"))
    assert found.value[0] == pytest.approx([1, 2, 3, 0.8, 0.6, 0, 0])
    assert found.info.channels == ("x", "y", "z", "qw", "qx", "qy", "qz")


def test_text_as_spreadsheets_and_editors_write_it(tmp_path: Path):
    text = '\ufefft, "a" ,b\r\n0, 1 ,+2\r\n\r\n0.01,1e0,"2"\r\n0.02,1,2\r\n\r\n'
    found = stream(make(tmp_path, '[streams.x]\nkind = "touch"\nignore = ["b"]\n', x=text))
    assert found.info.channels == ("a",)
    assert found.value.tolist() == [[1], [1], [1]]


def test_a_slow_stream_is_taken_if_it_is_said(tmp_path: Path):
    toml = '[streams.x]\nkind = "scalar"\nunit = "K"\n'
    text = "t,temperature\n0,300\n5,301\n10,302\n"
    with pytest.raises(InputError, match="rate_hz if it is truly that slow"):
        read_folder(make(tmp_path, toml, x=text))
    assert len(stream(make(tmp_path, toml + "rate_hz = 0.2\n", x=text)).t) == 3


def test_markers_and_scene(tmp_path: Path):
    toml = '[scene]\nobject = "cube"\n[markers]\nrelease = 1\n[streams.x]\nkind = "touch"\n'
    (recording,) = read_folder(make(tmp_path / "night", toml, x="t,a\n0,1\n0.1,1\n"))
    assert (recording.name, recording.scene, recording.markers) == ("night", {"object": "cube"}, {"release": 1.0})


def test_folders_inside_are_recordings(tmp_path: Path):
    inner = '[streams.x]\nkind = "joint_effort"\n'
    make(tmp_path, '[robot]\nname = "r"\njoints = ["a"]\n[scene]\ntable_z = 0.1\n')
    make(tmp_path / "b", inner, x="t,a\n0,1\n0.1,1\n")
    make(tmp_path / "a", "[scene]\n" + inner, x="t,a\n0,1\n0.1,1\n")
    first, second = read_folder(tmp_path)
    assert (first.name, second.name) == ("a", "b")
    assert first.robot["name"] == second.robot["name"] == "r"
    assert (first.scene, second.scene) == ({}, {"table_z": 0.1})
    make(tmp_path, inner, x="t,a\n0,1\n0.1,1\n")
    with pytest.raises(InputError, match="also recordings in a, b"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("keys", "t", "clock"),
    [
        ("", np.arange(6) / 20, "cam"),
        ("fps = 10\n", np.arange(6) / 10, "cam"),
        ("fps = 10\nstart = 2.5\n", 2.5 + np.arange(6) / 10, "host"),
        ('times = "cam.csv"\ntime_unit = "ms"\n', np.arange(6) ** 2 / 100 + np.arange(6) / 100, "host"),
        ('times = "cam.csv"\ntime_unit = "ms"\nclock = "own"\n', np.arange(6) ** 2 / 100 + np.arange(6) / 100, "own"),
    ],
)
def test_times_of_frames(tmp_path: Path, keys: str, t: np.ndarray, clock: str):
    irregular = "frame,t\n" + "".join(f"{i},{10 * (i * i + i)}\n" for i in range(6))
    make(tmp_path, f"[videos.cam]\nfov_y_deg = 40\n{keys}", **({"cam": irregular} if "times" in keys else {}))
    with VideoWriter(tmp_path / "cam.mp4", 64, 48, 20) as writer:
        for i in range(6):
            writer.write(np.full((48, 64, 3), 40 * i, np.uint8))
    (recording,) = read_folder(tmp_path)
    (video,) = recording.videos
    assert video.t == pytest.approx(t, abs=1e-4)
    assert video.info.clock == clock
    assert recording.notes == ()


def test_a_camera_that_stands(tmp_path: Path):
    pose = "[[1,0,0,0.5],[0,-1,0,0],[0,0,-1,0.8],[0,0,0,1]]"
    make(tmp_path, f"[videos.cam]\nfx = 70\nfy = 71\ncx = 31.5\ncy = 23.5\nT_world_camera = {pose}\n")
    with VideoWriter(tmp_path / "cam.mp4", 64, 48, 20) as writer:
        for _ in range(3):
            writer.write(np.zeros((48, 64, 3), np.uint8))
    camera = read_folder(tmp_path)[0].videos[0].info.camera
    assert camera.T_world_camera is not None
    assert camera.T_world_camera[:3, 3].tolist() == [0.5, 0, 0.8]
    assert (camera.fx, camera.fy, camera.width) == (70, 71, 64)


def test_an_unknown_key_of_the_robot(tmp_path: Path):
    toml = '[robot]\njoint = ["a"]\n[streams.x]\nkind = "touch"\n'
    with pytest.raises(UnknownName, match=r"unknown key 'joint' \(did you mean 'joints'"):
        read_folder(make(tmp_path, toml, x="t,a\n0,1\n0.1,1\n"))


def test_a_file_that_nobody_named_and_a_marker_outside_are_told(tmp_path: Path) -> None:
    (tmp_path / "capture.toml").write_text(
        '[markers]\nrelease = 1e9\n[streams.force]\nkind = "scalar"\nunit = "N"\nchannels = ["f"]\n'
    )
    rows = "\n".join(f"{k / 100},{k % 7}" for k in range(50))
    (tmp_path / "force.csv").write_text(f"t,f\n{rows}\n")
    (tmp_path / "forgotten.csv").write_text(f"t,f\n{rows}\n")
    notes = {note.code: note.message for note in read_folder(tmp_path)[0].notes}
    assert "forgotten.csv" in notes["left_out"]
    assert "release" in notes["markers"]
