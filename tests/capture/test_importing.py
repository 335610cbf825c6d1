from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dexloop.capture.importing import ImportCfg, import_capture
from dexloop.core.capture import Capture
from dexloop.core.errors import InputError, SetupError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.vision.video import VideoWriter, read_video

TOML = """
[robot]
name = "finger"
joints = ["a", "b"]

[streams.joints]
kind = "joint_position"
clock = "robot"

[streams.efforts]
kind = "joint_effort"
clock = "robot"

[streams.box]
kind = "pose"
about = "object"
clock = "tracker"

[streams.wrist]
kind = "wrench"
clock = "robot"

[videos.front]
times = "front.csv"
clock = "camera"
fov_y_deg = 45
"""


def csv(header: str, rows: np.ndarray) -> str:
    return header + "\n" + "".join(",".join(f"{v:.9g}" for v in row) + "\n" for row in rows)


@pytest.fixture(scope="session")
def film(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    with VideoWriter(path, 64, 48, 30) as writer:
        for i in range(20):
            writer.write(np.full((48, 64, 3), 20 + 5 * i, np.uint8))
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path: Path, film: bytes) -> Path:
    """A folder with nothing wrong in it; each test spoils one thing."""
    path = tmp_path / "push"
    path.mkdir()
    t = np.arange(100) / 250
    (path / "capture.toml").write_text(TOML)
    (path / "joints.csv").write_text(csv("t,a,b", np.column_stack([t, np.sin(t), np.cos(t)])))
    (path / "efforts.csv").write_text(csv("t,b,a", np.column_stack([t, 0.1 * t, 0.2 * t])))
    half = 0.5 * np.arange(60) / 100
    pose = np.column_stack(
        [np.arange(60) / 100, 0.3 + half, 0 * half, 0 * half, np.cos(half), 0 * half, 0 * half, np.sin(half)]
    )
    (path / "box.csv").write_text(csv("t,x,y,z,qw,qx,qy,qz", pose))
    (path / "wrist.csv").write_text(csv("t,fx,fy,fz,tx,ty,tz", np.column_stack([t, np.zeros((100, 6)) + np.arange(6)])))
    (path / "front.mp4").write_bytes(film)
    (path / "front.csv").write_text(csv("t", (np.arange(20) / 30)[:, None]))
    return path


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, f"the test looks for {old!r} in {file.name}"
    file.write_text(text.replace(old, new, 1))


def set_line(file: Path, line: int, text: str) -> None:
    """Replaces a line, counted from 1."""
    lines = file.read_text().splitlines()
    lines[line - 1] = text
    file.write_text("\n".join(lines) + "\n")


def toml(old: str, new: str) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "capture.toml", old, new)


def line(name: str, number: int, text: str) -> Callable[[Path], None]:
    return lambda folder: set_line(folder / name, number, text)


def whole(name: str, content: str | bytes) -> Callable[[Path], None]:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data) and None


def scaled(name: str, factor: float, columns: slice) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        header, *rows = (folder / name).read_text().splitlines()
        data = np.array([[float(c) for c in r.split(",")] for r in rows])
        data[:, columns] *= factor
        (folder / name).write_text(csv(header, data))

    return spoil


def cut(name: str, keep: float) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(keep * len(data))])

    return spoil


def _other_joints(folder: Path) -> None:
    edit(folder / "capture.toml", '[robot]\nname = "finger"\njoints = ["a", "b"]\n', "")
    set_line(folder / "efforts.csv", 1, "t,b,c")


def _late_efforts(folder: Path) -> None:
    t = 100 + np.arange(100) / 250
    (folder / "efforts.csv").write_text(csv("t,b,a", np.column_stack([t, 0.1 * t, 0.2 * t])))


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "no capture.toml": (remove("capture.toml"), r"has no capture\.toml.*capture-format"),
    "toml syntax": (toml('kind = "pose"', 'kind = "pose'), r"capture\.toml is no valid TOML.*line 15"),
    "toml in utf-16": (lambda f: whole("capture.toml", TOML.encode("utf-16"))(f), r"capture\.toml is not UTF-8"),
    "stream named twice": (
        toml("[streams.efforts]", "[streams.joints]"),
        r"capture\.toml is no valid TOML.*streams.*twice.*line 10",
    ),
    "nothing named": (whole("capture.toml", "name = 'x'"), r"capture\.toml names nothing to import: add \[streams"),
    "unknown key at the top": (toml("[robot]", "colour = 1\n[robot]"), r"unknown key 'colour'.*streams, videos"),
    "unknown key of a stream": (
        toml('clock = "tracker"', 'clocks = "x"'),
        r"unknown key 'clocks' \(did you mean 'clock'.*streams\.box",
    ),
    "unknown key of a video": (toml("fov_y_deg", "fov"), r"unknown key 'fov'.*fov_y_deg.*videos\.front"),
    "value of the wrong type": (
        toml("fov_y_deg = 45", 'fov_y_deg = "wide"'),
        r"videos\.front: fov_y_deg must be a number",
    ),
    "no kind": (toml('kind = "pose"\n', ""), r"streams\.box has no kind.*joint_position"),
    "unknown kind": (toml('"pose"', '"poses"'), r"unknown kind 'poses' \(did you mean 'pose'"),
    "unknown unit": (toml('about = "object"', 'unit = "feet"'), r"unknown unit 'feet'.*mm.*streams\.box"),
    "unit of something else": (
        toml('"joint_position"', '"joint_position"\nunit = "N"'),
        r"streams\.joints: 'N' is no unit of a joint_position.*deg",
    ),
    "unknown time unit": (toml('about = "object"', 'time_unit = "min"'), r"unknown time unit 'min'.*s, ms, us, ns"),
    "missing csv": (remove("box.csv"), r"box\.csv does not exist"),
    "empty csv": (whole("box.csv", ""), r"box\.csv is empty: write a header"),
    "header only": (whole("box.csv", "t,x,y,z,qw,qx,qy,qz\n"), r"box\.csv has a header but no data"),
    "one sample": (whole("box.csv", "t,x,y,z,qw,qx,qy,qz\n0,0,0,0,1,0,0,0\n"), r"box\.csv has only 1 sample"),
    "no header": (whole("joints.csv", "0,1,2\n1,2,3\n"), r"joints\.csv, line 1 has numbers.*name the columns"),
    "no time column": (line("joints.csv", 1, "time,a,b"), r"joints\.csv, line 1: the first column must be 't'.*'time'"),
    "time not first": (line("joints.csv", 1, "a,t,b"), r"first column must be 't'.*comes later"),
    "missing column": (line("joints.csv", 1, "t,a,c"), r"joints\.csv, line 1: column 'b' is missing.*there is a, c"),
    "column not wanted": (
        whole("joints.csv", "t,a,b,temperature\n0,0,0,20\n0.01,0,0,20\n"),
        r"column 'temperature' is not wanted.*ignore = \[\"temperature\"\]",
    ),
    "column twice": (line("joints.csv", 1, "t,a,a"), r"joints\.csv, line 1 names column 'a' twice"),
    "ignored column that is not there": (
        toml('"joint_position"', '"joint_position"\nignore = ["x"]'),
        r"unknown column 'x'.*ignored",
    ),
    "no number": (line("joints.csv", 7, "0.020,oops,1"), r"joints\.csv, line 7, column 'a': 'oops' is not a number"),
    "empty cell": (line("joints.csv", 7, "0.020,,1"), r"joints\.csv, line 7, column 'a': the cell is empty"),
    "short line": (line("joints.csv", 7, "0.020,1"), r"joints\.csv, line 7 has 2 cells, the header names 3"),
    "decimal comma": (line("joints.csv", 7, "0,020,1,1"), r"line 7 has 4 cells.*decimal comma"),
    "semicolons": (whole("joints.csv", "t;a;b\n0;1;2\n"), r"joints\.csv, line 1 is separated by semicolons"),
    "nan": (line("joints.csv", 7, "0.020,nan,1"), r"joints\.csv, line 7, column 'a': NaN is no measurement"),
    "infinity": (line("joints.csv", 8, "0.024,1,-inf"), r"joints\.csv, line 8, column 'b': infinity"),
    "nan time": (line("joints.csv", 8, "nan,1,1"), r"joints\.csv, line 8, column 't': NaN"),
    "time backwards": (
        line("joints.csv", 7, "0.001,1,1"),
        r"joints\.csv, line 7, column 't'.*backwards from 0\.016 to 0\.001 s.*sort",
    ),
    "time twice": (line("joints.csv", 7, "0.016,1,1"), r"joints\.csv, line 7, column 't'.*0\.016 s comes twice"),
    "milliseconds": (
        scaled("joints.csv", 1e3, slice(0, 1)),
        r"joints\.csv would have 0\.25 samples a second.*time_unit = \"ms\"",
    ),
    "nanoseconds": (scaled("joints.csv", 1e9, slice(0, 1)), r"look like nanoseconds; say time_unit = \"ns\""),
    "seconds declared as microseconds": (
        toml('about = "object"', 'time_unit = "us"'),
        r"box\.csv would have 1e\+08 samples.*correct time_unit",
    ),
    "quaternion norm": (line("box.csv", 5, "0.03,0.3,0,0,1,0.5,0,0"), r"box\.csv, line 5.*norm 1\.118, not 1"),
    "quaternion order not said": (
        line("box.csv", 1, "t,x,y,z,a,b,c,d"),
        r"say quaternion = \"wxyz\" or \"xyzw\".*a, b, c, d",
    ),
    "quaternion order contradicted": (
        toml('about = "object"', 'quaternion = "xyzw"'),
        r"quaternion = 'xyzw', but the columns",
    ),
    "unknown quaternion order": (toml('about = "object"', 'quaternion = "zyxw"'), r"unknown quaternion order 'zyxw'"),
    "quaternion of a wrench": (
        toml('kind = "wrench"', 'kind = "wrench"\nquaternion = "wxyz"'),
        r"quaternion means nothing for a wrench",
    ),
    "millimetres": (
        scaled("box.csv", 1e3, slice(1, 4)),
        r"box\.csv, line 2, column 'x': 300 m.*millimetres; say unit = \"mm\"",
    ),
    "millimetres by speed": (
        whole(
            "box.csv", csv("t,x,y,z,qw,qx,qy,qz", np.array([[i / 100, (-1) ** i, 0, 0, 1, 0, 0, 0] for i in range(9)]))
        ),
        r"box\.csv moves at 200 m/s.*millimetres",
    ),
    "degrees": (
        scaled("joints.csv", 57.3, slice(1, 3)),
        r"joints\.csv, line 58, column 'a': 12\.7281 rad.*degrees; say unit = \"deg\"",
    ),
    "pose with six columns": (
        whole("box.csv", "t,x,y,z,rx,ry,rz\n0,0,0,0,0,0,0\n1,0,0,0,0,0,0\n"),
        r"a pose has 7 channels.*the file has 6",
    ),
    "wrench with three columns": (
        whole("wrist.csv", "t,fx,fy,fz\n0,0,0,0\n1,0,0,0\n"),
        r"a wrench has 6 channels.*the file has 3",
    ),
    "joints that do not agree": (
        _other_joints,
        r"stream 'efforts' has other joints than stream 'joints': without a; besides c",
    ),
    "no moment in common": (
        _late_efforts,
        r"'efforts' \(100 to 100\.396 s\) have no moment in common on clock 'robot'.*own clock",
    ),
    "scalar without unit": (toml('"joint_effort"', '"scalar"'), r"streams\.efforts: a scalar needs its unit"),
    "limits of the wrong length": (
        toml('"joint_effort"', '"joint_effort"\nlimits = [[0, 1]]'),
        r"limits must be one \[low, high\] for each of the 2",
    ),
    "csv in utf-16": (
        whole("joints.csv", "t,a,b\n0,1,2\n".encode("utf-16")),
        r"joints\.csv is UTF-16 text: save it as UTF-8",
    ),
    "binary junk": (whole("joints.csv", bytes(range(256)) * 9), r"joints\.csv is binary data"),
    "latin-1 header": (
        whole("joints.csv", "t,a,größe\n0,1,2\n".encode("latin-1")),
        r"joints\.csv, line 1 is not UTF-8",
    ),
    "path out of the folder": (
        toml('"joint_position"', '"joint_position"\nfile = "../joints.csv"'),
        r"'\.\./joints\.csv' leads out of",
    ),
    "absolute path": (
        toml('"joint_position"', '"joint_position"\nfile = "/etc/passwd"'),
        r"'/etc/passwd' leads out of",
    ),
    "path on another drive": (toml('"joint_position"', "\"joint_position\"\nfile = 'C:\\x.csv'"), r"leads out of"),
    "missing video": (remove("front.mp4"), r"front\.mp4 does not exist"),
    "empty video": (whole("front.mp4", b""), r"front\.mp4 is empty"),
    "truncated video": (
        cut("front.mp4", 0.5),
        r"front\.csv has 20 times but .*front\.mp4 has 15 frames|front\.mp4 is a damaged",
    ),
    "video cut in its head": (cut("front.mp4", 0.01), r"front\.mp4 is a damaged or truncated MP4"),
    "no video": (whole("front.mp4", "hello" * 99), r"front\.mp4 is no video"),
    "fewer times than frames": (line("front.csv", 21, ""), r"front\.csv has 19 times but .*front\.mp4 has 20 frames"),
    "frame time backwards": (line("front.csv", 5, "0.001"), r"front\.csv, line 5, column 't'.*backwards"),
    "frame times without t": (line("front.csv", 1, "time"), r"front\.csv, line 1: there is no column 't'"),
    "times and fps": (toml("fov_y_deg = 45", "fps = 30"), r"start and fps mean nothing; remove them"),
    "calibration with a hole": (toml("fov_y_deg = 45", "fx = 100\nfy = 100"), r"videos\.front: cx, cy missing"),
    "camera pose that is no motion": (
        toml("fov_y_deg = 45", "T_world_camera = [[2,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"),
        r"T_world_camera is no rigid motion",
    ),
    "name that no file can have": (
        toml("[robot]", 'name = "a/b"\n[robot]'),
        r"recording name 'a/b' cannot be a file's name",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_clear_message_and_writes_nothing(folder: Path, tmp_path: Path, case: str):
    spoil, words = BAD[case]
    spoil(folder)
    with pytest.raises(SetupError, match=words) as caught:
        import_capture(folder, tmp_path / "out")
    assert isinstance(caught.value, InputError | UnknownName)
    assert "\n" not in str(caught.value).replace(str(folder), "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["push"]


def test_a_good_folder_is_imported(folder: Path, tmp_path: Path):
    capture = import_capture(folder, tmp_path / "out")
    capture.verify()
    assert capture.status.level is Level.OK
    push = capture.recording("push")
    t = np.arange(100) / 250
    assert push.robot == {"name": "finger", "joints": ["a", "b"]}
    assert np.allclose(push.stream("joints").value, np.column_stack([np.sin(t), np.cos(t)]), atol=1e-8)
    # The columns of this file come in another order than the robot's joints.
    assert np.allclose(push.stream("efforts").value, np.column_stack([0.2 * t, 0.1 * t]), atol=1e-8)
    box = push.stream("box")
    assert box.info.about == "object"
    assert box.info.units == ("m", "m", "m", "1", "1", "1", "1")
    assert np.allclose(np.linalg.norm(box.value[:, 3:], axis=1), 1.0, atol=1e-15)
    assert push.stream("wrist").value[0].tolist() == [0, 1, 2, 3, 4, 5]
    video = push.video("front")
    assert video.info.camera.fy == pytest.approx(24 / np.tan(np.radians(22.5)))
    assert len(read_video(video.path)) == len(video.t) == 20
    assert {s.clock for s in push.streams.values()} == {"robot", "tracker"}


def test_the_check_joins_the_notes_worst_first(folder: Path, tmp_path: Path):
    edit(folder / "capture.toml", "fov_y_deg = 45", "")

    def check(recording):
        return (Status(Level.FAIL, "still", f"{len(recording.stream('joints').t)} samples"),)

    capture = import_capture(folder, tmp_path / "out", check=check)
    assert [c.code for c in capture.recording().checks] == ["still", "camera_guessed"]
    assert capture.status.message == "100 samples"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere", "nowhere does not exist"),
        ("push/joints.csv", r"one file of a folder.*capture\.toml"),
        ("push/notes.txt", r"cannot be imported.*\.mp4"),
    ],
)
def test_what_is_no_source(folder: Path, tmp_path: Path, source: str, words: str):
    (folder / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match=words):
        import_capture(tmp_path / source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("cfg", "words"),
    [
        (ImportCfg(fps=30), r"fps means nothing for a folder, only for a video.*capture\.toml"),
        (ImportCfg(episodes=(0,)), "episodes means nothing"),
        (ImportCfg(units={"a": "m"}), "units means nothing"),
    ],
)
def test_an_option_without_effect_is_an_error(folder: Path, tmp_path: Path, cfg: ImportCfg, words: str):
    with pytest.raises(InputError, match=words):
        import_capture(folder, tmp_path / "out", cfg=cfg)


def test_an_exact_half_turn_is_doubted(folder: Path, tmp_path: Path):
    t = np.arange(10) / 100
    pose = np.column_stack([t, 0.3 + t, t, t, np.zeros((10, 3)), np.ones(10)])
    (folder / "box.csv").write_text(csv("t,x,y,z,qw,qx,qy,qz", pose))
    assert import_capture(folder, tmp_path / "out").status.code == "quaternion_order"


def test_a_bare_video(tmp_path: Path, film: bytes):
    path = tmp_path / "My scan (1).mp4"
    path.write_bytes(film)
    guessed = import_capture(path, tmp_path / "a")
    assert guessed.status.code == "camera_guessed"
    assert list(guessed.recordings) == ["My_scan__1_"]
    cfg = ImportCfg(fps=60, intrinsics=(50.0, 51.0, 31.5, 23.5))
    known = import_capture([path], tmp_path / "b", cfg=cfg)
    video = known.recording().video("camera")
    assert known.status.level is Level.OK
    assert np.array_equal(video.t, np.arange(20) / 60)
    assert video.info.camera.K.tolist() == [[50, 0, 31.5], [0, 51, 23.5], [0, 0, 1]]
    with pytest.raises(InputError, match="exists already"):
        import_capture(path, tmp_path / "b")
    with pytest.raises(InputError, match="twice"):
        import_capture(path, tmp_path / "c", cfg=ImportCfg(fov_y_deg=40, intrinsics=(1, 1, 1, 1)))


def test_several_sources_make_one_capture(folder: Path, tmp_path: Path, film: bytes):
    (tmp_path / "scan.mp4").write_bytes(film)
    capture = import_capture([folder, tmp_path / "scan.mp4"], tmp_path / "out", cfg=ImportCfg(fov_y_deg=50))
    assert list(capture.recordings) == ["push", "scan"]
    with pytest.raises(InputError, match="two recordings are called 'Push'"):
        other = tmp_path / "other"
        other.mkdir()
        (other / "joints.csv").write_bytes((folder / "joints.csv").read_bytes())
        (other / "capture.toml").write_text('name = "Push"\n[streams.joints]\nkind = "joint_position"\n')
        import_capture([folder, other], tmp_path / "no")


def test_the_docs_example_can_be_followed(tmp_path: Path, repository: Path):
    page = (repository / "docs" / "capture-format.md").read_text()
    files = dict(re.findall(r'```\w+ title="(.+?)"\n(.*?)```', page, re.S))
    assert set(files) == {"capture.toml", "joints.csv", "box.csv"}
    folder = tmp_path / "my_push"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    capture = import_capture(folder, tmp_path / "my_capture")
    assert capture.status.level is Level.OK
    recording = Capture.open(tmp_path / "my_capture").recording("my_push")
    assert recording.stream("box").value[0].tolist() == pytest.approx([0.3, 0, 0.025, 1, 0, 0, 0])
    assert recording.stream("joints").value[0] == pytest.approx(np.radians([10, 45]))
    assert recording.robot["joints"] == ["shoulder", "elbow"]
    assert recording.stream("box").info.clock != recording.stream("joints").info.clock


def test_the_docs_name_every_key_kind_and_unit(repository: Path):
    from dataclasses import fields

    from dexloop.core.capture import KINDS
    from dexloop.rig.capture_toml import CaptureEntry, StreamEntry, VideoEntry
    from dexloop.rig.units import UNITS

    page = (repository / "docs" / "capture-format.md").read_text()
    keys = [f.name for kind in (StreamEntry, VideoEntry) for f in fields(kind)]
    tables = [f.name for f in fields(CaptureEntry) if f.name != "name"]
    for name in (*keys, *KINDS, *UNITS):
        assert f"`{name}`" in page, name
    for name in tables:
        assert f"[{name}" in page, name


def test_a_long_csv_is_read_fast(tmp_path: Path):
    rows = 250_000
    data = np.random.default_rng(0).normal(size=(rows, 8))
    data[:, 0] = np.arange(rows) / 250
    text = "t," + ",".join("abcdefg") + "\n" + "\n".join(",".join(map(repr, r)) for r in data.tolist())
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "x.csv").write_text(text)
    (tmp_path / "long" / "capture.toml").write_text('[streams.x]\nkind = "scalar"\nunit = "A"\n')
    from dexloop.rig.folder import read_folder

    begin = time.perf_counter()
    (found,) = read_folder(tmp_path / "long")
    took = time.perf_counter() - begin
    assert np.array_equal(found.streams[0].value, data[:, 1:])
    # About half a second on a quiet machine; a loop over rows takes more than four.
    assert took < 3.0
