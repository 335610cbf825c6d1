"""Figures of recordings: what was seen and what was felt."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from dexloop.core.capture import Capture, Recording, Video

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 4
"""Pictures from a video, side by side."""


def recording_figure(recording: Recording) -> Figure:
    """Draws one recording: a strip of pictures, where the object went, what the fingertips and joints felt."""
    from matplotlib.figure import Figure

    strip = _strip(recording)
    panels = [name for name in ("path", "touch", "effort", "tracking") if _has(recording, name)]
    rows = (1 if strip is not None else 0) + (1 if panels else 0)
    figure = Figure(figsize=(11, 2.5 * rows + 0.3), layout="constrained")
    if not rows:
        figure.set_figheight(0.8)
        figure.suptitle(f"{recording.name}: nothing here that this figure shows", fontsize=10, x=0.01, ha="left")
        return figure
    grid = figure.add_gridspec(rows, max(len(panels), 1))
    if strip is not None:
        axes = figure.add_subplot(grid[0, :])
        axes.imshow(strip)
        axes.axis("off")
    for k, name in enumerate(panels):
        axes = figure.add_subplot(grid[rows - 1, k])
        _PANELS[name](axes, recording)
        axes.tick_params(labelsize=7)
        axes.title.set_fontsize(9)
    figure.suptitle(f"{recording.name}: {_plan(recording)}", fontsize=10, x=0.01, ha="left")
    return figure


def capture_figure(capture: Capture) -> UInt8[np.ndarray, "h w 3"]:
    """Draws all recordings of a Capture, one below the other."""
    pictures = [pixels(recording_figure(r)) for r in capture.recordings.values()]
    width = max(p.shape[1] for p in pictures)
    padded = [np.pad(p, ((0, 12), (0, width - p.shape[1]), (0, 0)), constant_values=255) for p in pictures]
    return np.concatenate(padded)


def png(picture: UInt8[np.ndarray, "h w 3"]) -> bytes:
    """Returns a picture as a PNG file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def pixels(figure: Figure) -> UInt8[np.ndarray, "h w 3"]:
    """Returns a figure as a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    figure.set_dpi(110)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _plan(recording: Recording) -> str:
    plan = dict(recording.plan)
    name = plan.pop("plan", "imported")
    return f"{name}  " + ", ".join(f"{k} = {v}" for k, v in plan.items())


def _strip(recording: Recording) -> UInt8[np.ndarray, "h w 3"] | None:
    if not recording.videos:
        return None
    from dexloop.vision.video import read_frames

    video = recording.video(next(iter(recording.videos)))
    if len(video.t) == 0:
        return None
    wanted = np.unique(np.linspace(0, len(video.t) - 1, _SHOWN).astype(int))
    return np.concatenate(list(read_frames(video.path, indices=wanted.tolist())), axis=1)


def _has(recording: Recording, panel: str) -> bool:
    kinds = {info.kind for info in recording.streams.values()}
    wanted = {"path": {"pose"}, "touch": {"touch"}, "effort": {"joint_effort"}}
    return wanted.get(panel, {"joint_position", "joint_command"}) <= kinds


def _path(axes: Any, recording: Recording) -> None:
    if recording.plan.get("plan") == "Lift":
        for stream in recording.of_kind("pose"):
            axes.plot(stream.t, 1e3 * (stream.value[:, 2] - stream.value[0, 2]), lw=1.0)
        axes.set_title("object's height [mm] over time [s]")
        return
    for stream in recording.of_kind("pose"):
        x, y = 1e3 * stream.value[:, 0], 1e3 * stream.value[:, 1]
        axes.plot(x, y, lw=1.2, label=stream.info.about or stream.info.name)
        axes.plot(x[0], y[0], "o", ms=4, color="k")
        # The same scale both ways, and at least 60 mm, so that noise looks like the dot it is.
        half = max(0.55 * float(np.ptp(x)), 0.55 * float(np.ptp(y)), 30.0)
        axes.set_xlim(0.5 * (x.min() + x.max()) - half, 0.5 * (x.min() + x.max()) + half)
        axes.set_ylim(0.5 * (y.min() + y.max()) - half, 0.5 * (y.min() + y.max()) + half)
    axes.set_aspect("equal")
    axes.set_title("object seen from above [mm]")


def _touch(axes: Any, recording: Recording) -> None:
    stream = recording.of_kind("touch")[0]
    axes.plot(stream.t, stream.value, lw=0.9, label=[c.removesuffix("_tip") for c in stream.info.channels])
    axes.legend(fontsize=6, frameon=False, loc="upper right")
    _mark(axes, recording)
    axes.set_title("fingertips [N] over time [s]")


def _effort(axes: Any, recording: Recording) -> None:
    stream = recording.of_kind("joint_effort")[0]
    busiest = np.argsort(np.ptp(stream.value, axis=0))[::-1][:4]
    axes.plot(stream.t, stream.value[:, busiest], lw=0.9)
    axes.legend([f"{stream.info.channels[k]} [{stream.info.units[k]}]" for k in busiest], fontsize=6, frameon=False)
    _mark(axes, recording)
    axes.set_title("busiest efforts over time [s]")


def _tracking(axes: Any, recording: Recording) -> None:
    position, command = recording.of_kind("joint_position")[0], recording.of_kind("joint_command")[0]
    moved = int(np.argmax(np.ptp(command.value, axis=0)))
    name = command.info.channels[moved]
    axes.plot(command.t, command.value[:, moved], lw=0.9, label="sent")
    axes.plot(position.t, position.value[:, position.info.channels.index(name)], lw=0.9, label="measured")
    axes.legend(fontsize=6, frameon=False)
    axes.set_title(f"{name} [{command.info.units[moved]}]")


def _mark(axes: Any, recording: Recording) -> None:
    for name, t in recording.markers.items():
        axes.axvline(t, color="0.6", lw=0.7, ls="--")
        axes.annotate(
            name,
            (t, 1.0),
            xycoords=("data", "axes fraction"),
            fontsize=6,
            rotation=90,
            va="top",
            ha="right",
            color="0.4",
        )


_PANELS = {"path": _path, "touch": _touch, "effort": _effort, "tracking": _tracking}


def embedded(picture: UInt8[np.ndarray, "h w 3"] | Figure | bytes, words: str) -> str:
    """Returns HTML that holds a picture, a figure or a PNG file itself.

    Args:
        picture: What is shown.
        words: What it shows.
    """
    if isinstance(picture, bytes):
        data = picture
    elif isinstance(picture, np.ndarray):
        data = png(picture)
    else:
        buffer = io.BytesIO()
        picture.savefig(buffer, format="png", dpi=110)
        data = buffer.getvalue()
    words, source = html.escape(words), f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return f'<figure><img alt="{words}" src="{source}"><figcaption>{words}</figcaption></figure>'


def film(video: Video, words: str) -> str:
    """Returns a film as HTML that needs no other file."""
    data = base64.b64encode(video.path.read_bytes()).decode()
    return (
        f"<figure><video controls muted loop playsinline src='data:video/mp4;base64,{data}'></video>"
        f"<figcaption>{html.escape(words)}</figcaption></figure>"
    )
