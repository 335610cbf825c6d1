"""A figure of a retargeting: the human's skeleton above the robot hand, seen from the same place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from jaxtyping import Float, UInt8

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.demonstrate.chains import chains
from dexloop.demonstrate.retarget import Retargeted
from dexloop.demonstrate.skeleton import KNUCKLES, WRIST, check
from dexloop.robots.describe import qpos_addresses
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.kinematics import Kinematics
from dexloop.sim.render import Renderer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE_PX = 420
_FOV_RAD = 0.5
_COLOURS = {"thumb": "#d1495b", "index": "#edae49", "middle": "#4f9d69", "ring": "#3d7ea6", "little": "#7a5195"}


def retarget_figure(
    landmarks: Float[np.ndarray, "n 21 3"],
    retargeted: Retargeted,
    embodiment: Embodiment,
    *,
    shown: int = 5,
    R_world_view: Float[np.ndarray, "3 3"] | None = None,
    pictures: Sequence[UInt8[np.ndarray, "h w 3"]] = (),
) -> Figure:
    """Draws some frames: pictures of the human if there are any, the skeleton, and the robot where it was put.

    Dots on the robot's picture are the human's fingertips, coloured by finger; there are none of a mirrored hand.

    Args:
        landmarks: That were followed.
        retargeted: What came of it.
        embodiment: The robot.
        shown: How many frames.
        R_world_view: Axes of the view (x right, y down, z forward) in the landmarks' frame; that frame's own axes by
            default, as `detect_hands` gives landmarks in those of the camera.
        pictures: One for each landmark's frame, or none.
    """
    from matplotlib.figure import Figure

    points = check(landmarks)
    chosen = np.unique(np.linspace(0, len(points) - 1, shown).astype(int))
    rows = 3 if len(pictures) else 2
    figure = Figure(figsize=(3.0 * len(chosen), 3.0 * rows), layout="constrained")
    axes = np.asarray(figure.subplots(rows, len(chosen), squeeze=False))
    R = np.eye(3) if R_world_view is None else np.asarray(R_world_view, dtype=np.float64)
    distance = 0.5 * _width(points, retargeted) / np.tan(0.5 * _FOV_RAD)
    cameras = [_camera(points[k], retargeted.T_world_palm[k], R, distance) for k in chosen]
    drawn = zip(chosen, _robot(retargeted, embodiment, chosen, cameras), cameras, strict=True)
    for column, (k, picture, camera) in enumerate(drawn):
        if len(pictures):
            axes[0, column].imshow(pictures[int(k)])
        _skeleton(axes[-2, column], camera.project_world(points[k]))
        axes[-1, column].imshow(picture)
        for finger in () if retargeted.mirrored else retargeted.fingers.values():
            u, v = camera.project_world(points[k, KNUCKLES[finger] + 3])
            axes[-1, column].plot(u, v, "o", ms=4, color=_COLOURS[finger], mec="white", mew=0.6)
        off = 1e3 * float(retargeted.residual_m[k].mean())
        axes[0, column].set_title(f"frame {k}", fontsize=9)
        axes[-1, column].set_title(f"{embodiment.name}, {off:.1f} mm off", fontsize=8)
    for ax in axes.flat:
        ax.axis("off")
    return figure


def _width(points: np.ndarray, retargeted: Retargeted) -> float:
    """How much must be in view [m]: the human's hand, and a robot's that is larger."""
    span = float(np.ptp(points, axis=1).max())
    return 1.5 * span * max(1.0, retargeted.scale)


def _camera(points: np.ndarray, T_world_palm: np.ndarray, R: np.ndarray, distance: float) -> Camera:
    middle = 0.5 * (points.mean(axis=0) + T_world_palm[:3, 3])
    T = se3.from_rt(R, middle - distance * R[:, 2])
    return Camera.from_fov("view", _SIDE_PX, _SIDE_PX, _FOV_RAD, T)


def _skeleton(axes: Any, uv: Float[np.ndarray, "21 2"]) -> None:
    ring = [WRIST, *(KNUCKLES[f] for f in ("index", "middle", "ring", "little")), WRIST]
    axes.plot(*uv[ring].T, color="0.6", lw=3, solid_capstyle="round")
    axes.plot(*uv[[WRIST, KNUCKLES["thumb"]]].T, color="0.6", lw=3, solid_capstyle="round")
    for finger, first in KNUCKLES.items():
        axes.plot(*uv[first : first + 4].T, "o-", color=_COLOURS[finger], lw=3, ms=4, solid_capstyle="round")
    axes.set_xlim(0, _SIDE_PX)
    axes.set_ylim(_SIDE_PX, 0)
    axes.set_aspect("equal")


def _robot(
    retargeted: Retargeted, embodiment: Embodiment, chosen: np.ndarray, cameras: Sequence[Camera]
) -> list[UInt8[np.ndarray, "h w 3"]]:
    """Draws the robot on white, each camera moved along as the robot's own world has its palm elsewhere."""
    spec = embodiment.make_spec()
    spec.visual.quality.shadowsize, spec.visual.quality.offsamples = 1024, 4
    spec.visual.headlight.ambient, spec.visual.headlight.diffuse = [0.35] * 3, [0.55] * 3
    spec.visual.global_.offwidth = spec.visual.global_.offheight = _SIDE_PX
    kinematics = Kinematics(embodiment, spec.compile())
    model, data = kinematics.model, kinematics.data
    hand = chains(embodiment)  # knows the joints that only follow others, too
    found = []
    with Renderer(model, _SIDE_PX, _SIDE_PX) as renderer:
        for k, camera in zip(chosen, cameras, strict=True):
            data.qpos[qpos_addresses(model, embodiment.joints)] = embodiment.home
            data.qpos[qpos_addresses(model, hand.names)] = hand.positions(hand.reduce(retargeted.q[k : k + 1]))[0]
            mujoco.mj_forward(model, data)
            site = data.site(embodiment.palm)
            T_model_palm = se3.from_rt(site.xmat.reshape(3, 3), site.xpos)
            assert camera.T_world_camera is not None
            T = T_model_palm @ se3.inverse(retargeted.T_world_palm[k]) @ camera.T_world_camera
            moved = Camera.from_json({**camera.to_json(), "T_world_camera": T.tolist()})
            nothing = renderer.segmentation(data, moved) < 0
            found.append(np.where(nothing[..., None], np.uint8(255), renderer.rgb(data, moved)))
    return found
