"""The report's section about a twin: does it look right, is its surface fit for simulation, how long did it take."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from jaxtyping import UInt8

from dexloop.core import se3
from dexloop.core.artifacts import Twin
from dexloop.core.camera import Camera
from dexloop.core.errors import MissingPart
from dexloop.core.status import Status
from dexloop.report.figures import embedded, pixels
from dexloop.sim.parts import COLLISION_GROUP, FixedCamera, Light
from dexloop.sim.render import Renderer
from dexloop.sim.saving import ModelFile
from dexloop.sim.scene import SceneCfg, compose
from dexloop.vision.coupled import CoupledRenderer, cameras_of
from dexloop.vision.splats import splats_of, surroundings_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE_PX = 360
_ERROR = 0.25
"""Where the scale of error maps ends, of full brightness."""
_WORDS = {
    "psnr_db": ("kept-back views, PSNR [dB]", "{:.1f}"),
    "ssim": ("kept-back views, SSIM", "{:.3f}"),
    "splats": ("splats", "{:d}"),
    "seen": ("part of the surface that some picture shows", "{:.0%}"),
    "volume_m3": ("volume [m³]", "{:.3g}"),
    "parts": ("convex parts", "{:d}"),
    "volume_over_mesh": ("their volume over the mesh's", "{:.3f}"),
    "concavity_m": ("how far they stand out from the mesh [m]", "{:.2g}"),
    "moved_m": ("moved until it rested [m]", "{:.2g}"),
    "drift_m": ("drift in half a second at rest [m]", "{:.2g}"),
}


def twin_section(twin: Twin) -> str:
    """Returns the section as HTML that needs no other file; the status is the page's to say."""
    meta = twin.header.meta
    parts = []
    if meta.get("geometry") == "given":
        parts.append("<p>The shape is given, not scanned; mass, friction and all the rest are not.</p>")
    for name in meta.get("objects", []):
        about = meta.get("about", {}).get(name, {})
        parts += [f"<h3>{html.escape(name)}</h3>", _sides(twin, name), _table(about)]
        if about.get("checks"):
            figure = checks_figure(twin.path / "objects" / name / "checks", about["checks"])
            parts.append(embedded(pixels(figure), "pictures that were kept back, and what the splats make of them"))
        words = [*about.get("problems", []), *about.get("notes", [])]
        parts.append("".join(f"<p>{html.escape(note)}</p>" for note in words))
    parts += [_whole(twin), _cameras(meta), _seconds(meta.get("seconds", {})), _statuses(meta)]
    return "\n".join(part for part in parts if part)


def whole(twin: Twin) -> UInt8[np.ndarray, "h w 3"] | None:
    """Draws all of a scanned twin by its splats, as the scan's first camera saw it; None for any other twin.

    Raises:
        MissingPart: This machine cannot draw.
    """
    around, cameras = surroundings_of(twin), cameras_of(twin)
    if around is None or not cameras:
        return None
    scene = compose(ModelFile(twin.path / "scene.xml"), cfg=SceneCfg(max_delay_s=0.0))
    data = mujoco.MjData(scene.model)
    mujoco.mj_forward(scene.model, data)
    camera = cameras[0]
    with CoupledRenderer(scene.model, {**splats_of(twin), "world": around}, camera.width, camera.height) as renderer:
        return renderer.draw(data, camera).rgb


def _whole(twin: Twin) -> str:
    try:
        picture = whole(twin)
    except MissingPart as error:
        return f"<p>{html.escape(str(error))}</p>"
    if picture is None:
        return ""
    about = twin.header.meta["surroundings"]
    said = f"{about['splats']} splats, kept-back views {about['psnr_db']:.1f} dB"
    return f"<h3>With its surroundings</h3>{embedded(picture, 'all of the twin, drawn by its splats')}<p>{said}</p>"


def sides(twin: Twin, name: str) -> UInt8[np.ndarray, "h w 3"]:
    """Draws an object from four sides: its texture above, its convex parts below.

    Raises:
        MissingPart: This machine cannot draw.
    """
    alone = compose(ModelFile(twin.path / "scene.xml"), cfg=SceneCfg(max_delay_s=0.0))
    body = alone.model.body(name)
    data = mujoco.MjData(alone.model)
    mujoco.mj_forward(alone.model, data)
    own = [g for g in range(alone.model.ngeom) if alone.model.geom_bodyid[g] == body.id]
    radius = max(float(alone.model.geom_rbound[g]) for g in own)
    centre = np.mean([data.geom_xpos[g] for g in own], axis=0)
    cameras = []
    for k in range(4):
        angle = np.pi / 4 + k * np.pi / 2
        eye = centre + 3.4 * radius * np.array([np.cos(angle), np.sin(angle), 0.55])
        place = se3.look_at(eye, centre)
        cameras.append(FixedCamera(Camera.from_fov(f"side{k}", _SIDE_PX, _SIDE_PX, 0.75, place)))
    scene = compose(
        ModelFile(twin.path / "scene.xml"), Light("lamp", (1.0, -1.0, 2.0)), *cameras, cfg=SceneCfg(max_delay_s=0.0)
    )
    model, data = scene.model, mujoco.MjData(scene.model)
    mujoco.mj_forward(model, data)
    rows = []
    with Renderer(model, _SIDE_PX, _SIDE_PX) as renderer:
        rows.append(np.concatenate([renderer.rgb(data, f"side{k}") for k in range(4)], axis=1))
        _show_parts(model, model.body(name).id)
        rows.append(np.concatenate([renderer.rgb(data, f"side{k}") for k in range(4)], axis=1))
    return np.concatenate(rows)


def checks_figure(folder: Path, psnr_db: Mapping[str, float]) -> Figure:
    """Draws pictures that were kept back beside the splats' and where they differ."""
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(8.0, 2.4 * len(psnr_db)), layout="constrained")
    axes = figure.subplots(len(psnr_db), 3, squeeze=False)
    for row, (name, value) in zip(axes, psnr_db.items(), strict=True):
        photo, drawn = (np.asarray(Image.open(folder / f"{name}.{kind}.png")) for kind in ("photo", "drawn"))
        error = np.abs(photo.astype(float) - drawn).mean(axis=-1) / 255.0
        row[0].imshow(photo)
        row[1].imshow(drawn)
        shown = row[2].imshow(error, cmap="magma", vmin=0.0, vmax=_ERROR)
        row[0].set_ylabel(f"{name}\n{value:.1f} dB")
        figure.colorbar(shown, ax=row[2], shrink=0.8)
        for cell in row:
            cell.set_xticks([])
            cell.set_yticks([])
    for cell, title in zip(axes[0], ("photo", "splats", "difference"), strict=True):
        cell.set_title(title)
    return figure


def _show_parts(model: mujoco.MjModel, body: int) -> None:
    """Makes the convex parts visible, each in a colour of its own, and the rest of the body invisible."""
    from matplotlib import colormaps

    own = [g for g in range(model.ngeom) if model.geom_bodyid[g] == body]
    parts = [g for g in own if model.geom_group[g] == COLLISION_GROUP]
    for k, g in enumerate(parts):
        model.geom_group[g], model.geom_matid[g] = 0, -1
        model.geom_rgba[g] = colormaps["tab20"](k % 20)
    for g in set(own) - set(parts):
        model.geom_rgba[g, 3], model.geom_group[g] = 0.0, 5


def _sides(twin: Twin, name: str) -> str:
    try:
        return embedded(sides(twin, name), f"{name} from four sides: its texture, and its convex parts")
    except MissingPart as error:
        return f"<p>No picture of the mesh: {html.escape(str(error))}</p>"


def _table(about: Mapping[str, Any]) -> str:
    rows = [
        (words, form.format(about[key]))
        for key, (words, form) in _WORDS.items()
        if about.get(key) is not None and np.isfinite(about[key])
    ]
    if "fit" in about:
        rows.append(("fit for simulation", "yes" if about["fit"] else "no"))
    return _rows(rows)


def _cameras(meta: Mapping[str, Any]) -> str:
    found = meta.get("cameras")
    if not found:
        return ""
    rows = [(key.replace("_", " "), f"{v:.4g}" if isinstance(v, float) else str(v)) for key, v in found.items()]
    return f"<h3>cameras</h3>{_rows(rows)}"


def _seconds(seconds: Mapping[str, float]) -> str:
    if not seconds:
        return ""
    rows = [(part, f"{s:.1f} s") for part, s in seconds.items()]
    return f"<h3>time</h3>{_rows([*rows, ('together', f'{sum(seconds.values()):.1f} s')])}"


def _statuses(meta: Mapping[str, Any]) -> str:
    words = [str(Status.from_json(s)) for s in meta.get("statuses", [])]
    return "".join(f"<p>{html.escape(w)}</p>" for w in words)


def _rows(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td>{html.escape(a)}</td><td>{html.escape(b)}</td></tr>" for a, b in rows)
    return f"<table>{cells}</table>" if cells else ""
