from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from dexloop.capture.importing import ImportCfg, import_capture
from dexloop.core.errors import InputError, UnknownName
from dexloop.rig.lerobot_dataset import read_lerobot_dataset
from dexloop.vision.video import VideoWriter, read_video

FPS = 20
LENGTHS = (12, 15, 9)
NAMES = ["pan.pos", "lift.pos", "gripper.pos"]
UNITS = {"observation.state": ("deg", "deg", "1"), "action": "deg"}


def state(episode: int, frame: np.ndarray) -> np.ndarray:
    return np.column_stack([frame + 0.0, 10.0 * episode + 0 * frame, 50.0 + frame]).astype(np.float32)


def write_dataset(root: Path, *, images: bool = False, version: str = "v3.0") -> Path:
    """Writes a dataset in the layout of LeRobot v3: two episodes in the first files, one in the second."""
    vector = {"dtype": "float32", "shape": [3], "names": NAMES}
    key = "observation.images.front"
    film = {"dtype": "image" if images else "video", "shape": [48, 64, 3], "names": ["height", "width", "channels"]}
    single = {"shape": [1], "names": None}
    info = {
        "codebase_version": version, "robot_type": "so101_follower", "total_episodes": 3, "total_frames": sum(LENGTHS),
        "total_tasks": 1, "chunks_size": 1000, "fps": FPS, "splits": {"train": "0:3"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {
            "observation.state": vector, "action": {**vector, "names": {"motors": NAMES}}, key: film,
            "next.done": {"dtype": "bool", **single}, "timestamp": {"dtype": "float32", **single},
            **{k: {"dtype": "int64", **single} for k in ("frame_index", "episode_index", "index", "task_index")},
        },
    }  # fmt: skip
    (root / "meta").mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps(info))
    rows, index = [], 0
    for file, episodes in enumerate(([0, 1], [2])):
        columns: dict[str, list] = {}
        video = root / "videos" / key / "chunk-000" / f"file-{file:03d}.mp4"
        video.parent.mkdir(parents=True, exist_ok=True)
        writer = None if images else VideoWriter(video, 64, 48, FPS)
        filmed = 0
        for episode in episodes:
            n = LENGTHS[episode]
            frame = np.arange(n)
            pictures = [np.full((48, 64, 3), 60 * episode + 4 * i, np.uint8) for i in frame]
            part = {
                "observation.state": list(state(episode, frame)), "action": list(state(episode, frame + 1)),
                "next.done": list(frame == n - 1), "timestamp": list((frame / FPS).astype(np.float32)),
                "frame_index": list(frame), "episode_index": [episode] * n, "index": list(index + frame),
                "task_index": [0] * n,
            }  # fmt: skip
            if images:
                part[key] = [{"bytes": _png(p), "path": None} for p in pictures]
            for name, values in part.items():
                columns.setdefault(name, []).extend(values)
            row = {
                "episode_index": episode, "tasks": ["push the cube"], "length": n, "data/chunk_index": 0,
                "data/file_index": file, "dataset_from_index": index, "dataset_to_index": index + n,
                "stats/action/mean": [0.0, 0.0, 0.0], "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0,
            }  # fmt: skip
            if writer is not None:
                for p in pictures:
                    writer.write(p)
                row |= {
                    f"videos/{key}/chunk_index": 0, f"videos/{key}/file_index": file,
                    f"videos/{key}/from_timestamp": filmed / FPS, f"videos/{key}/to_timestamp": (filmed + n) / FPS,
                }  # fmt: skip
            rows.append(row)
            index, filmed = index + n, filmed + n
        if writer is not None:
            writer.close()
        data = root / "data" / "chunk-000" / f"file-{file:03d}.parquet"
        data.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(columns), data)
    meta = root / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
    meta.parent.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(rows), meta)
    return root


def _png(picture: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("images", [False, True])
def test_each_episode_becomes_a_recording(tmp_path: Path, images: bool):
    dataset = write_dataset(tmp_path / "set", images=images)
    capture = import_capture(dataset, tmp_path / "out", cfg=ImportCfg(units=UNITS))
    assert list(capture.recordings) == [f"episode_{i:06d}" for i in range(3)]
    for episode, length in enumerate(LENGTHS):
        recording = capture.recording(f"episode_{episode:06d}")
        frame = np.arange(length)
        joints = recording.stream("observation.state")
        assert joints.info.kind == "joint_position"
        assert joints.info.channels == ("pan", "lift")
        assert np.array_equal(joints.t, frame / FPS)
        assert joints.value == pytest.approx(np.radians(state(episode, frame)[:, :2]))
        gripper = recording.stream("observation.state.unscaled")
        assert (gripper.info.kind, gripper.info.units) == ("scalar", ("1",))
        assert gripper.value[:, 0] == pytest.approx(50 + frame)
        assert recording.stream("action").info.kind == "joint_command"
        assert recording.stream("action").value == pytest.approx(np.radians(state(episode, frame + 1)))
        video = recording.video("front")
        assert read_video(video.path).mean(axis=(1, 2, 3)) == pytest.approx(60 * episode + 4 * frame, abs=2)
        assert np.array_equal(video.t, frame / FPS)
        assert recording.robot["name"] == "so101_follower"
        assert recording.scene == {"tasks": ["push the cube"]}
        assert any("next.done is left out" in c.message for c in recording.checks)


def test_chosen_episodes(tmp_path: Path):
    dataset = write_dataset(tmp_path / "set")
    found = read_lerobot_dataset(dataset, units=UNITS, episodes=[2, 0])
    assert [r.name for r in found] == ["episode_000002", "episode_000000"]
    with pytest.raises(UnknownName, match="unknown episode '7': there is 0 to 2"):
        read_lerobot_dataset(dataset, units=UNITS, episodes=[7])


@pytest.mark.parametrize(
    ("units", "words"),
    [
        ({}, r"does not say in what unit observation\.state is.*'deg'.*3 channels"),
        ({**UNITS, "action": ("deg", "deg")}, "2 units were given for the 3 channels of action"),
        ({**UNITS, "action": "N"}, r"'N' is no unit of action"),
        ({**UNITS, "action": "feet"}, "unknown unit 'feet'"),
        ({**UNITS, "state": "deg"}, r"unknown feature 'state'.*observation\.state"),
        ({**UNITS, "action": "rad"}, r"file-000\.parquet, frame 0, action 'gripper': 51 rad.*degrees"),
    ],
)
def test_units_must_be_said(tmp_path: Path, units: dict, words: str):
    dataset = write_dataset(tmp_path / "set")
    with pytest.raises((InputError, UnknownName), match=words):
        read_lerobot_dataset(dataset, units=units)


def test_damage_is_told(tmp_path: Path):
    dataset = write_dataset(tmp_path / "set")
    video = next(dataset.glob("videos/*/chunk-000/file-001.mp4"))
    data = dataset / "data" / "chunk-000" / "file-001.parquet"
    meta = dataset / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
    cfg = ImportCfg(units=UNITS)
    for file, words in (
        (video, "file-001.mp4"),
        (data, "file-001.parquet is damaged or not closed"),
        (meta, "file-000.parquet is damaged or not closed"),
        (dataset / "meta" / "info.json", "info.json is damaged"),
    ):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(InputError, match=words):
            import_capture(dataset, tmp_path / "out", cfg=cfg)
        file.write_bytes(whole)
    data.unlink()
    with pytest.raises(InputError, match="copy the whole dataset"):
        import_capture(dataset, tmp_path / "out", cfg=cfg)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match=r"version v2\.1: convert it to v3\.0"):
        read_lerobot_dataset(write_dataset(tmp_path / "old", version="v2.1"))
