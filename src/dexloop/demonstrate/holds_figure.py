"""A picture of ways to hold an object: the hand as it touches, from two sides."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.robots.describe import qpos_addresses
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.hold import Hold
from dexloop.robots.pickup import Load, Pickup
from dexloop.sim.render import Renderer
from dexloop.sim.scene import Scene

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE_PX = 360
_FOV_RAD = 0.7
_SIDES_RAD = (-0.9, 2.2)
"""From where it is looked at, about the vertical."""
_MOST = 5
_AMBIENT, _DIFFUSE = 0.45, 0.5
"""Light from the camera: a twin's scene has no lamps."""


def holds_figure(
    robot: Embodiment,
    scene: Scene,
    thing: str,
    holds: Sequence[Hold],
    titles: Sequence[str],
    T_world_object: Float[np.ndarray, "4 4"],
    load: Load,
) -> Figure:
    """Draws the first few holds side by side, each seen from two sides.

    Args:
        robot: That holds.
        scene: With the robot and the object.
        thing: The object's name.
        holds: To be drawn; the robot reaches them.
        titles: One for each.
        T_world_object: Where the object stands.
        load: What is believed of it.
    """
    from matplotlib.figure import Figure

    shown = holds[:_MOST]
    figure = Figure(figsize=(3.0 * len(shown), 6.2), layout="constrained")
    axes = figure.subplots(2, len(shown), squeeze=False)
    model = copy.copy(scene.model)
    model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:] = _AMBIENT, _DIFFUSE
    data = mujoco.MjData(model)
    joints, free = qpos_addresses(model, robot.joints), int(model.joint(f"{thing}.free").qposadr[0])
    middle = T_world_object[:3, 3]
    with Renderer(model, _SIDE_PX, _SIDE_PX) as renderer:
        for column, (hold, title) in enumerate(zip(shown, titles, strict=False)):
            data.qpos[joints] = Pickup(robot, model, hold, T_world_object, load).touch
            data.qpos[free : free + 7] = se3.to_pose(T_world_object)
            mujoco.mj_forward(model, data)
            for row, side in enumerate(_SIDES_RAD):
                eye = middle + 0.42 * np.array([np.cos(side), np.sin(side), 0.45])
                camera = Camera.from_fov("side", _SIDE_PX, _SIDE_PX, _FOV_RAD, se3.look_at(eye, middle))
                picture = renderer.rgb(data, camera)
                picture[renderer.segmentation(data, camera) < 0] = 255
                axes[row, column].imshow(picture)
                axes[row, column].set_axis_off()
            axes[0, column].set_title(title, fontsize=9)
    return figure
