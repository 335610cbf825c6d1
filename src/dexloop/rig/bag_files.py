"""Messages out of MCAP files and ROS 2 bags (a folder with `metadata.yaml` and `.mcap` or `.db3` files)."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dexloop.core.errors import InputError, MissingPart
from dexloop.rig.ros_messages import definition, short_name

_METADATA = "metadata.yaml"
_FILE_LINE = r"^\s*-\s+['\"]?([^\s'\"]+\.(?:mcap|db3)(?:\.zstd)?)['\"]?\s*$"


@dataclass(frozen=True)
class Message:
    """One decoded message."""

    topic: str
    datatype: str
    """Such as "sensor_msgs/Image"."""
    log_time: float
    """When the recorder got it [s]."""
    data: SimpleNamespace


@dataclass
class Bag:
    """The files of one bag."""

    path: Path
    files: tuple[Path, ...]
    topics: dict[str, str] = field(default_factory=dict)
    """Datatype by topic."""
    counts: Counter[str] = field(default_factory=Counter)
    """Messages by topic."""

    def messages(self, topics: Collection[str]) -> Iterator[Message]:
        """Reads the messages of some topics, whose types must be `READABLE`, file by file.

        Raises:
            InputError: A file is damaged, or a message cannot be decoded.
        """
        for file in self.files:
            read = _mcap_messages if file.suffix == ".mcap" else _db3_messages
            yield from read(file, topics)


def is_bag(path: Path) -> bool:
    """Whether this is an MCAP file, a `.db3` file or the folder of a ROS 2 bag."""
    return path.suffix in (".mcap", ".db3") or (path.is_dir() and (path / _METADATA).is_file())


def open_bag(path: str | Path) -> Bag:
    """Finds a bag's files and what topics they have.

    Raises:
        InputError: A file is missing, compressed as a whole, or damaged.
        MissingPart: The libraries that read MCAP are not installed.
    """
    path = Path(path)
    _decoder_factory()
    files = (path,) if path.suffix in (".mcap", ".db3") else _files_of_folder(path)
    bag = Bag(path, files)
    for file in files:
        if not file.is_file():
            raise InputError(f"{file} does not exist: copy the whole bag, with every file that {_METADATA} names")
        if file.stat().st_size == 0:
            raise InputError(f"{file} is empty (0 bytes): copy it again")
        for topic, datatype, count in (_mcap_topics if file.suffix == ".mcap" else _db3_topics)(file):
            bag.topics[topic] = datatype
            bag.counts[topic] += count
    return bag


def _files_of_folder(folder: Path) -> tuple[Path, ...]:
    # The one thing that is needed of the YAML file are its lines "- name_0.mcap", which come in the order of recording.
    names = re.findall(_FILE_LINE, (folder / _METADATA).read_text(), re.M)
    if not names:
        raise InputError(f"{folder / _METADATA} names no .mcap or .db3 file: reindex the bag with `ros2 bag reindex`")
    for name in names:
        if name.endswith(".zstd"):
            raise InputError(f"{folder / name} is compressed as a whole: unpack it with `zstd -d`, or convert the bag")
    return tuple(folder / Path(n).name for n in dict.fromkeys(names))


def _decoder_factory() -> Any:
    try:
        from mcap_ros2.decoder import DecoderFactory
    except ImportError as error:
        raise MissingPart("MCAP files and ROS 2 bags need an optional part: pip install 'dexloop[mcap]'") from error
    return DecoderFactory()


class _Decoders:
    """Decodes messages by type, where the bag has no usable definition with that of `ros_messages`."""

    def __init__(self, file: Path):
        self._file, self._factory = file, _decoder_factory()
        self._known: dict[str, Callable[[bytes], Any]] = {}

    def __call__(self, topic: str, datatype: str, text: str | None, data: bytes) -> SimpleNamespace:
        from mcap.records import Schema
        from mcap.well_known import MessageEncoding, SchemaEncoding

        try:
            if datatype not in self._known:
                if text is None:
                    text = definition(datatype)
                schema = Schema(len(self._known) + 1, text.encode(), SchemaEncoding.ROS2, datatype)
                decode = self._factory.decoder_for(MessageEncoding.CDR, schema)
                self._known[datatype] = decode
            return self._known[datatype](data)
        except Exception as error:  # the decoder raises whatever it stumbles over
            raise InputError(
                f"{self._file}: a message on {topic} is no valid {datatype} ({error}); record it again, or check the "
                f"message's definition"
            ) from error


def _mcap_topics(file: Path) -> list[tuple[str, str, int]]:
    from mcap.exceptions import McapError
    from mcap.reader import make_reader

    try:
        with file.open("rb") as stream:
            summary = make_reader(stream).get_summary()
            if summary is not None and summary.statistics is not None:
                counts = summary.statistics.channel_message_counts
                schemas = {i: s.name for i, s in summary.schemas.items()}
                return [
                    (c.topic, short_name(schemas.get(c.schema_id, c.message_encoding)), counts.get(i, 0))
                    for i, c in summary.channels.items()
                ]
            stream.seek(0)  # an MCAP without a summary: everything has to be looked at
            seen: Counter[tuple[str, str]] = Counter()
            for schema, channel, _ in make_reader(stream).iter_messages():
                seen[channel.topic, short_name(schema.name if schema else channel.message_encoding)] += 1
            return [(topic, datatype, n) for (topic, datatype), n in seen.items()]
    except (McapError, EOFError, ValueError, AssertionError, KeyError) as error:
        raise _damaged(file, error) from error
    except Exception as error:
        if type(error).__module__.split(".")[0] in ("struct", "zstandard", "lz4", "builtins"):
            raise _damaged(file, error) from error
        raise


def _mcap_messages(file: Path, topics: Collection[str]) -> Iterator[Message]:
    from mcap.exceptions import McapError
    from mcap.reader import make_reader
    from mcap.well_known import SchemaEncoding

    decode = _Decoders(file)
    with file.open("rb") as stream:
        found = iter(make_reader(stream).iter_messages(topics=list(topics)))
        while True:
            try:
                schema, channel, message = next(found)
            except StopIteration:
                return
            except (McapError, EOFError, ValueError, AssertionError) as error:
                raise _damaged(file, error) from error
            if schema is None:
                raise InputError(f"{file}: topic {channel.topic} has no message type; record it with its schema")
            text = schema.data.decode() if schema.encoding == SchemaEncoding.ROS2 else None
            datatype = short_name(schema.name)
            data = decode(channel.topic, schema.name, text, message.data)
            yield Message(channel.topic, datatype, message.log_time * 1e-9, data)


def _damaged(file: Path, error: Exception) -> InputError:
    why = str(error) or type(error).__name__
    return InputError(f"{file} is damaged or truncated ({why}): repair it with `mcap recover`, or record it again")


def _db3_topics(file: Path) -> list[tuple[str, str, int]]:
    query = (
        "SELECT topics.name, topics.type, COUNT(messages.id) FROM topics LEFT JOIN messages "
        "ON messages.topic_id = topics.id GROUP BY topics.id"
    )
    return [(name, short_name(kind), count) for name, kind, count in _rows(file, query)]


def _db3_messages(file: Path, topics: Collection[str]) -> Iterator[Message]:
    decode = _Decoders(file)
    marks = ",".join("?" * len(topics))
    query = (
        "SELECT topics.name, topics.type, messages.timestamp, messages.data FROM messages JOIN topics "
        f"ON messages.topic_id = topics.id WHERE topics.name IN ({marks}) ORDER BY messages.timestamp, messages.id"
    )
    for topic, kind, stamp, data in _rows(file, query, tuple(topics)):
        yield Message(topic, short_name(kind), stamp * 1e-9, decode(topic, kind, None, data))


def _rows(file: Path, query: str, values: tuple[str, ...] = ()) -> Iterator[tuple]:
    database = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
    try:
        yield from database.execute(query, values)
    except sqlite3.DatabaseError as error:
        raise InputError(f"{file} is no intact ROS 2 bag ({error}): copy it again, or record it again") from error
    finally:
        database.close()
