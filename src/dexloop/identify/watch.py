"""The object's pose from the recording's own video, as a stream with a covariance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from dexloop.core import se3
from dexloop.core.capture import POSE_CHANNELS, Recording, Stream, StreamInfo
from dexloop.core.errors import InputError
from dexloop.sim.scene import Scene
from dexloop.sim.shape import shape_of
from dexloop.vision.appearance import SplatAppearance
from dexloop.vision.tracking import track_recording

Array = np.ndarray

SCAN_ERROR = (1e-3,) * 3 + (1e-2,) * 3
"""How exactly a scanned twin can follow what it is a twin of [m, rad]: its surface is not quite where it should be, so
that it is seen a little wrong, and touched and carried a little wrong."""


def watch(
    scene: Scene,
    recording: Recording,
    tell: Callable[[str, float], None],
    *,
    splats: SplatAppearance | None = None,
    seen_at: Float[Array, "4 4"] | None = None,
) -> tuple[Stream, Float[Array, "m 6 6"], list[str]]:
    """Tracks the scene's object in the recording's first video.

    Args:
        scene: With the object where it stood when its twin was made.
        recording: With a video.
        tell: Told what is going on.
        splats: Where the twin was made of a scan: what it looks like, else it is a textured mesh. A scanned twin's axes
            are its own, not the rig's.
        seen_at: What the rig said at the scan about where the object was, if it did: with what it says now, that tells
            how the twin has moved since.

    Returns:
        The pose as a stream, what turns its errors into ones of unit covariance, and notes.

    Raises:
        InputError: The model has no single object, or the object was not found in the video.
    """
    if "object" not in scene.roles:
        raise InputError("the model has not exactly one free object: there is nothing to track in the video")
    body = scene.roles["object"].bodies[0]
    name = next(iter(recording.videos))
    text = f"tracking the object in {recording.name}"
    looks = splats or shape_of(scene.model, body)
    T_start = None
    if splats is not None:
        adr = int(scene.model.jnt_qposadr[scene.model.body_jntadr[scene.model.body(body).id]])
        T_start = se3.from_pose(scene.model.qpos0[adr : adr + 7])
        if seen_at is not None and "T_world_object_rough" in recording.scene:
            now = np.asarray(recording.scene["T_world_object_rough"], dtype=np.float64)
            T_start = now @ se3.inverse(seen_at) @ T_start
    track = track_recording(
        recording, looks, video=name, T_start=T_start, progress=lambda _, done: tell(text, done)
    )  # fmt: skip
    video = recording.video(name)
    found = ~track.lost
    if found.sum() < 8:
        raise InputError(f"the object was not found in the video of {recording.name!r}: check the camera's calibration")
    notes = []
    if not found.all():
        notes.append(f"{recording.name}: the object was lost in {int((~found).sum())} of {len(found)} frames")
    units = ("m",) * 3 + ("1",) * 4
    info = StreamInfo("video_pose", "pose", POSE_CHANNELS, units, video.info.clock, video.info.fps, about="object")
    # The tracker's covariance is in the object's axes, errors here are in the world's.
    turn = np.zeros((int(found.sum()), 6, 6))
    turn[:, :3, :3] = turn[:, 3:, 3:] = se3.quat_to_matrix(track.pose[found, 3:])
    covariance = turn @ track.covariance[found] @ np.swapaxes(turn, -1, -2)
    if splats is not None:
        covariance += np.diag(np.square(SCAN_ERROR))
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    return Stream(info, video.t[: len(found)][found], track.pose[found]), whiten, notes
