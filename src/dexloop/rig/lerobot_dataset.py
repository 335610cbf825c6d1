"""LeRobot datasets of version 3 as a source: one recording an episode.

A dataset packs many episodes into each Parquet and MP4 file; `meta/episodes` says where each one lies. It says nothing
of units, so these are asked for: LeRobot robots report degrees, or fractions of their range, as they were set up.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dexloop.core.capture import Stream, StreamInfo, VideoInfo
from dexloop.core.errors import InputError, UnknownName
from dexloop.core.status import Level, Status
from dexloop.rig.imported import ImportedRecording, ImportedVideo, guessed_camera
from dexloop.rig.units import Unit, unit
from dexloop.rig.validation import check_stream
from dexloop.vision.video import Picture, VideoProbe, read_frames

_INFO = Path("meta") / "info.json"
_BOOKKEEPING = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_KINDS = {"observation.state": "joint_position", "action": "joint_command"}
_CLOCK = "dataset"


def is_lerobot_dataset(path: Path) -> bool:
    """Whether a folder holds a LeRobot dataset of any version."""
    return (path / _INFO).is_file()


def read_lerobot_dataset(
    folder: str | Path,
    *,
    units: Mapping[str, str | Sequence[str]] | None = None,
    episodes: Sequence[int] | None = None,
) -> list[ImportedRecording]:
    """Reads episodes of a dataset.

    Args:
        folder: The dataset's root, which holds `meta`, `data` and `videos`.
        units: For `observation.state` and `action`: one unit, or one for each channel. "1" where a value is a fraction
            of a range (such as a gripper from 0 to 100): those channels become a stream of their own, of kind scalar.
        episodes: Which ones, by their index; all if left out.

    Raises:
        InputError: The dataset is of another version, damaged, or a unit is missing.
        UnknownName: There is no such episode, feature or unit.
    """
    folder = Path(folder)
    info = _read_info(folder)
    units = dict(units or {})
    numeric = [k for k, f in info["features"].items() if k not in _BOOKKEEPING and _is_numeric(f)]
    for key in units:
        if key not in numeric:
            raise UnknownName("feature", key, numeric, f"A unit was given for it, but {folder} has no such feature.")
    table = _read_parquets(sorted((folder / "meta" / "episodes").glob("chunk-*/file-*.parquet")), folder)
    rows = {int(row["episode_index"]): row for row in table}
    chosen = sorted(rows) if episodes is None else list(episodes)
    for index in chosen:
        if index not in rows:
            raise UnknownName("episode", str(index), [f"{min(rows)} to {max(rows)}"], f"{folder} was asked for it.")
    return [_read_episode(folder, info, rows[index], units) for index in chosen]


def _is_numeric(feature: Mapping[str, Any]) -> bool:
    return feature["dtype"].startswith(("float", "int")) and len(feature["shape"]) == 1


def _read_info(folder: Path) -> dict[str, Any]:
    file = folder / _INFO
    try:
        info = json.loads(file.read_text())
        version = str(info["codebase_version"])
        if not version.startswith("v3."):
            raise InputError(
                f"{folder} is a LeRobot dataset of version {version}: convert it to v3.0 with LeRobot's "
                f"convert_dataset_v21_to_v30"
            )
        return {k: info.get(k) if k in ("robot_type", "video_path") else info[k] for k in _NEEDED}
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is damaged ({error}): copy the dataset again") from error


_NEEDED = ("fps", "features", "data_path", "video_path", "robot_type")


def _read_parquets(files: list[Path], folder: Path) -> list[dict[str, Any]]:
    """Reads what the rows of `meta/episodes` say, without the statistics."""
    import pyarrow as pa
    from pyarrow import parquet

    if not files:
        raise InputError(f"{folder} has no meta/episodes/chunk-*/file-*.parquet: copy the whole dataset")
    rows: list[dict[str, Any]] = []
    for file in files:
        try:
            found = parquet.ParquetFile(file)
            wanted = [n for n in found.schema_arrow.names if not n.startswith("stats/")]
            rows += found.read(columns=wanted).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise _damaged(file, error) from error
    return rows


def _damaged(file: Path, error: Exception) -> InputError:
    return InputError(f"{file} is damaged or not closed ({str(error).splitlines()[0]}): copy the dataset again")


def _read_episode(
    folder: Path, info: dict[str, Any], row: dict[str, Any], units: Mapping[str, str | Sequence[str]]
) -> ImportedRecording:
    index, fps = int(row["episode_index"]), float(info["fps"])
    data, file = _read_data(folder, info, row)
    # Timestamps are stored in single precision; the frame's number gives the same time exactly.
    t = np.asarray(data["frame_index"].to_numpy(), np.float64) / fps
    if np.abs(np.asarray(data["timestamp"].to_numpy(), np.float64) - t).max(initial=0.0) > 0.5 / fps:
        raise InputError(f"{file}: the timestamps of episode {index} are not frame_index / {fps:g}; convert it again")
    streams: list[Stream] = []
    videos: list[ImportedVideo] = []
    notes: list[Status] = []
    for key, feature in info["features"].items():
        if key in _BOOKKEEPING:
            continue
        if feature["dtype"] in ("video", "image"):
            about = {**(feature.get("info") or {}), **(feature.get("video_info") or {})}
            if about.get("is_depth_map") or about.get("video.is_depth_map"):
                notes.append(_left_out(key, "it is a depth map, not a colour picture"))
                continue
            video, odd = _read_video(folder, info, row, key, t, data, fps)
            videos.append(video)
        elif _is_numeric(feature) and key in data.column_names:
            found, odd = _read_streams(folder, file, key, feature, data, t, fps, units)
            streams += found
        else:
            odd = [_left_out(key, f"{feature['dtype']} of shape {feature['shape']} is no stream of numbers")]
        notes += odd
    joints = list(dict.fromkeys(c for s in streams if s.info.kind.startswith("joint") for c in s.info.channels))
    return ImportedRecording(
        name=f"episode_{index:06d}",
        robot={"name": info["robot_type"] or "", "joints": joints} if joints else {},
        scene={"tasks": list(row.get("tasks") or [])},
        streams=tuple(streams),
        videos=tuple(videos),
        place=f"{folder}, episode {index}",
        notes=tuple(notes),
    )


def _read_data(folder: Path, info: dict[str, Any], row: dict[str, Any]) -> tuple[Any, Path]:
    import pyarrow as pa
    from pyarrow import compute, parquet

    index = int(row["episode_index"])
    file = folder / info["data_path"].format(
        chunk_index=int(row["data/chunk_index"]), file_index=int(row["data/file_index"])
    )
    if not file.is_file():
        raise InputError(f"{file} does not exist, but episode {index} lies in it: copy the whole dataset")
    try:
        table = parquet.read_table(file, filters=compute.field("episode_index") == index)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(file, error) from error
    if table.num_rows != int(row["length"]):
        raise InputError(
            f"{file} has {table.num_rows} rows of episode {index}, meta/episodes says {row['length']}: copy it again"
        )
    return table, file


def _read_streams(
    folder: Path,
    file: Path,
    key: str,
    feature: Mapping[str, Any],
    data: Any,
    t: np.ndarray,
    fps: float,
    units: Mapping[str, str | Sequence[str]],
) -> tuple[list[Stream], list[Status]]:
    count = int(feature["shape"][0])
    column = data[key].combine_chunks()
    cells = column.flatten() if hasattr(column, "flatten") and hasattr(column.type, "value_type") else column
    value = np.asarray(cells.to_numpy(zero_copy_only=False), np.float64)
    if value.size != len(t) * count:
        raise InputError(f"{file}: {key} has {value.size} values in {len(t)} frames, not {count} in each")
    value = value.reshape(len(t), count)
    names = _channel_names(feature, count)
    said = _channel_units(folder, key, units.get(key), count)
    kind = _KINDS.get(key, "scalar")
    streams, notes = [], []
    measured = [i for i, u in enumerate(said) if kind == "scalar" or u.si in ("rad", "m")]
    scaled = [i for i in range(count) if i not in measured]
    for name, columns, of_kind in ((key, measured, kind), (f"{key}.unscaled", scaled, "scalar")):
        if not columns:
            continue
        info = StreamInfo(
            name, of_kind, tuple(names[i] for i in columns), tuple(said[i].si for i in columns), _CLOCK, fps
        )
        stream = Stream(info, t, value[:, columns] * [said[i].factor for i in columns])
        checked, odd = check_stream(stream, lambda row, c: f"{file}, frame {row}, {key} {c!r}", whole=f"{file}, {key}")
        streams.append(checked)
        notes += odd
    return streams, notes


def _channel_names(feature: Mapping[str, Any], count: int) -> list[str]:
    """Returns the channels' names without LeRobot's ".pos", from either way in which datasets write them."""
    names = feature.get("names")
    if isinstance(names, dict):
        names = [n for group in names.values() for n in (group if isinstance(group, list) else [group])]
    if not names or len(names) != count:
        return [f"channel_{i}" for i in range(count)]
    return [str(n).removesuffix(".pos") for n in names]


def _channel_units(folder: Path, key: str, said: str | Sequence[str] | None, count: int) -> list[Unit]:
    if said is None:
        if key not in _KINDS:
            return [unit("1")] * count
        raise InputError(
            f"{folder} does not say in what unit {key} is: give units, such as {{'{key}': 'deg'}}, or one for each of "
            f"the {count} channels, with '1' where a value is a fraction of a range"
        )
    names = [said] if isinstance(said, str) else list(said)
    if len(names) not in (1, count):
        raise InputError(f"{len(names)} units were given for the {count} channels of {key}: give one, or one for each")
    found = [unit(n, place=f"It was given for {key}.") for n in names]
    if key in _KINDS and any(u.si not in ("rad", "m", "1") for u in found):
        raise InputError(f"{said!r} is no unit of {key}: joints are measured in rad, deg, m, mm, or '1'")
    return found * count if len(found) == 1 else found


def _read_video(
    folder: Path, info: dict[str, Any], row: dict[str, Any], key: str, t: np.ndarray, data: Any, fps: float
) -> tuple[ImportedVideo, list[Status]]:
    feature = info["features"][key]
    name = key.removeprefix("observation.images.").removeprefix("observation.image.")
    if feature["dtype"] == "image":
        first, source, place = _stored_pictures(folder, key, data)
    else:
        first, source, place = _filmed_pictures(folder, info, row, key, len(t), fps)
    height, width = first.shape[:2]
    camera, note = guessed_camera(name, VideoProbe(width, height, fps, len(t), len(t) / fps))
    return ImportedVideo(VideoInfo(name, camera, _CLOCK, fps), t, source, place), [note]


def _stored_pictures(folder: Path, key: str, data: Any) -> tuple[Picture, Any, str]:
    from PIL import Image, UnidentifiedImageError

    place = f"{folder}, {key}"

    def pictures() -> Iterator[Picture]:
        for cell in data[key]:
            try:
                with Image.open(io.BytesIO(cell.as_py()["bytes"])) as image:
                    yield _even(np.asarray(image.convert("RGB")))
            except (UnidentifiedImageError, OSError, TypeError) as error:
                raise InputError(f"{place}: a picture is damaged ({error}); copy the dataset again") from error

    return next(iter(pictures())), pictures, place


def _filmed_pictures(
    folder: Path, info: dict[str, Any], row: dict[str, Any], key: str, count: int, fps: float
) -> tuple[Picture, Any, str]:
    file = folder / str(info["video_path"]).format(
        video_key=key,
        chunk_index=int(row[f"videos/{key}/chunk_index"]),
        file_index=int(row[f"videos/{key}/file_index"]),
    )
    start = round(float(row[f"videos/{key}/from_timestamp"]) * fps)

    def pictures() -> Iterator[Picture]:
        for picture in read_frames(file, range(start, start + count)):
            yield _even(picture)

    return next(iter(pictures())), pictures, str(file)


def _even(picture: Picture) -> Picture:
    """Cuts off the last row or column of an odd size, which H.264 cannot hold."""
    return picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2]


def _left_out(key: str, why: str) -> Status:
    return Status(Level.WARN, "feature_left_out", f"feature {key} is left out: {why}", "nothing, if you do not need it")
