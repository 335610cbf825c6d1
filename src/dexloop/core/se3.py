"""Rigid motions. Quaternions are w, x, y, z; poses are either 4x4 matrices or `[x, y, z, qw, qx, qy, qz]`.

All functions are vectorised over leading dimensions. `T_a_b` maps coordinates in b to coordinates in a, so that
`T_a_c = T_a_b @ T_b_c`. Tangent vectors of SE(3) are `[v, w]`: translation first, rotation second.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

Array = np.ndarray


def quat_multiply(a: Float[Array, "*#n 4"], b: Float[Array, "*#n 4"]) -> Float[Array, "*n 4"]:
    """Returns the Hamilton product a ⊗ b: the rotation b, then the rotation a."""
    aw, ax, ay, az = np.moveaxis(a, -1, 0)
    bw, bx, by, bz = np.moveaxis(b, -1, 0)
    return np.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        axis=-1,
    )


def quat_inverse(q: Float[Array, "*n 4"]) -> Float[Array, "*n 4"]:
    """Returns the inverse of a unit quaternion."""
    return q * np.array([1.0, -1.0, -1.0, -1.0])


def quat_rotate(q: Float[Array, "*#n 4"], v: Float[Array, "*#n 3"]) -> Float[Array, "*n 3"]:
    """Rotates vectors by unit quaternions."""
    u = q[..., 1:]
    t = 2.0 * np.cross(u, v)
    return v + q[..., :1] * t + np.cross(u, t)


def quat_to_matrix(q: Float[Array, "*n 4"]) -> Float[Array, "*n 3 3"]:
    """Returns the rotation matrices of unit quaternions."""
    w, x, y, z = np.moveaxis(q, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def quat_from_matrix(R: Float[Array, "*n 3 3"]) -> Float[Array, "*n 4"]:
    """Returns unit quaternions with w >= 0, by the largest of the four components (no loss near half turns)."""
    m = np.moveaxis(R, (-2, -1), (0, 1))
    squared = np.stack(
        [
            1 + m[0, 0] + m[1, 1] + m[2, 2],
            1 + m[0, 0] - m[1, 1] - m[2, 2],
            1 - m[0, 0] + m[1, 1] - m[2, 2],
            1 - m[0, 0] - m[1, 1] + m[2, 2],
        ],
        axis=-1,
    )
    # Row k holds the quaternion multiplied by 4 times its own k-th component.
    candidates = np.stack(
        [
            np.stack([squared[..., 0], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]], axis=-1),
            np.stack([m[2, 1] - m[1, 2], squared[..., 1], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]], axis=-1),
            np.stack([m[0, 2] - m[2, 0], m[0, 1] + m[1, 0], squared[..., 2], m[1, 2] + m[2, 1]], axis=-1),
            np.stack([m[1, 0] - m[0, 1], m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], squared[..., 3]], axis=-1),
        ],
        axis=-2,
    )
    best = np.argmax(squared, axis=-1)
    q = np.take_along_axis(candidates, best[..., None, None], axis=-2)[..., 0, :]
    q = q / np.linalg.norm(q, axis=-1, keepdims=True)
    return np.where(q[..., :1] < 0, -q, q)


def so3_exp(w: Float[Array, "*n 3"]) -> Float[Array, "*n 4"]:
    """Returns the unit quaternions of rotation vectors."""
    half = 0.5 * np.linalg.norm(w, axis=-1, keepdims=True)
    return np.concatenate([np.cos(half), 0.5 * np.sinc(half / np.pi) * w], axis=-1)


def so3_log(q: Float[Array, "*n 4"]) -> Float[Array, "*n 3"]:
    """Returns the rotation vectors of unit quaternions, of length at most pi."""
    q = np.where(q[..., :1] < 0, -q, q)
    sine = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
    angle = 2.0 * np.arctan2(sine, q[..., :1])
    small = sine < 1e-8
    return q[..., 1:] * np.where(small, 2.0, angle / np.where(small, 1.0, sine))


def hat(w: Float[Array, "*n 3"]) -> Float[Array, "*n 3 3"]:
    """Returns the cross-product matrices: `hat(w) @ v == cross(w, v)`."""
    x, y, z = np.moveaxis(w, -1, 0)
    o = np.zeros_like(x)
    return np.stack([np.stack(r, axis=-1) for r in ([o, -z, y], [z, o, -x], [-y, x, o])], axis=-2)


def _so3_left_jacobian(w: Float[Array, "*n 3"]) -> Float[Array, "*n 3 3"]:
    angle = np.linalg.norm(w, axis=-1)[..., None, None]
    small = angle < 1e-4
    safe = np.where(small, 1.0, angle)
    a = 0.5 * np.sinc(angle / (2 * np.pi)) ** 2  # (1 - cos) / angle², which loses half its digits if written so
    b = np.where(small, 1 / 6 - angle**2 / 120, (safe - np.sin(safe)) / safe**3)
    W = hat(w)
    return np.eye(3) + a * W + b * (W @ W)


def exp(xi: Float[Array, "*n 6"]) -> Float[Array, "*n 4 4"]:
    """Returns the SE(3) exponential of tangent vectors [v, w]."""
    v, w = xi[..., :3], xi[..., 3:]
    T = np.zeros((*xi.shape[:-1], 4, 4))
    T[..., :3, :3] = quat_to_matrix(so3_exp(w))
    T[..., :3, 3] = (_so3_left_jacobian(w) @ v[..., None])[..., 0]
    T[..., 3, 3] = 1.0
    return T


def log(T: Float[Array, "*n 4 4"]) -> Float[Array, "*n 6"]:
    """Returns the SE(3) logarithm [v, w]; the rotation part has length at most pi."""
    w = so3_log(quat_from_matrix(T[..., :3, :3]))
    v = np.linalg.solve(_so3_left_jacobian(w), T[..., :3, 3:])[..., 0]
    return np.concatenate([v, w], axis=-1)


def inverse(T: Float[Array, "*n 4 4"]) -> Float[Array, "*n 4 4"]:
    """Returns T_b_a of T_a_b."""
    Rt = np.swapaxes(T[..., :3, :3], -1, -2)
    out = np.zeros_like(T)
    out[..., :3, :3] = Rt
    out[..., :3, 3] = -(Rt @ T[..., :3, 3:])[..., 0]
    out[..., 3, 3] = 1.0
    return out


def transform(T: Float[Array, "*#n 4 4"], p: Float[Array, "*#n 3"]) -> Float[Array, "*n 3"]:
    """Maps points: `p_a = transform(T_a_b, p_b)`."""
    return (T[..., :3, :3] @ p[..., None])[..., 0] + T[..., :3, 3]


def from_pose(pose: Float[Array, "*n 7"]) -> Float[Array, "*n 4 4"]:
    """Returns matrices of poses `[x, y, z, qw, qx, qy, qz]` (unit quaternions)."""
    T = np.zeros((*pose.shape[:-1], 4, 4))
    T[..., :3, :3] = quat_to_matrix(pose[..., 3:])
    T[..., :3, 3] = pose[..., :3]
    T[..., 3, 3] = 1.0
    return T


def to_pose(T: Float[Array, "*n 4 4"]) -> Float[Array, "*n 7"]:
    """Returns poses `[x, y, z, qw, qx, qy, qz]` of matrices."""
    return np.concatenate([T[..., :3, 3], quat_from_matrix(T[..., :3, :3])], axis=-1)


def from_rt(R: Float[Array, "*#n 3 3"], p: Float[Array, "*#n 3"]) -> Float[Array, "*n 4 4"]:
    """Returns matrices of a rotation and a translation."""
    T = np.zeros((*np.broadcast_shapes(R.shape[:-2], p.shape[:-1]), 4, 4))
    T[..., :3, :3], T[..., :3, 3], T[..., 3, 3] = R, p, 1.0
    return T


def interpolate(t: Float[Array, " m"], times: Float[Array, " n"], poses: Float[Array, "n 7"]) -> Float[Array, "m 7"]:
    """Interpolates poses in time: linear in position, constant angular speed in rotation; ends are held."""
    i = np.clip(np.searchsorted(times, t, side="right") - 1, 0, max(len(times) - 2, 0))
    j = np.minimum(i + 1, len(times) - 1)
    span = np.where(j > i, times[j] - times[i], 1.0)
    s = np.clip((t - times[i]) / span, 0.0, 1.0)[:, None]
    a, b = poses[i], poses[j]
    step = so3_log(quat_multiply(quat_inverse(a[:, 3:]), b[:, 3:]))
    return np.concatenate([(1 - s) * a[:, :3] + s * b[:, :3], quat_multiply(a[:, 3:], so3_exp(s * step))], axis=-1)


def look_at(
    eye: Float[Array, "3"], target: Float[Array, "3"], up: tuple[float, float, float] = (0.0, 0.0, 1.0)
) -> Float[Array, "4 4"]:
    """Returns T_world_camera (OpenCV axes: x right, y down, z forward) of a camera at `eye` that sees `target`."""
    z = (target - eye) / np.linalg.norm(target - eye)
    x = np.cross(z, np.asarray(up))
    if np.linalg.norm(x) < 1e-9:  # looking along `up`: any right-hand direction will do
        x = np.cross(z, np.array([0.0, 1.0, 0.0] if abs(z[1]) < 0.9 else [0.0, 0.0, 1.0]))
    x = x / np.linalg.norm(x)
    return from_rt(np.stack([x, np.cross(z, x), z], axis=-1), eye)
