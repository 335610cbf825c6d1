"""Where fingers touch an object, what wrench their forces make together, and how firmly they enclose it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from dexloop.core.errors import InputError

_EDGES = 8
"""Directions of sliding that a search for the weakest wrench begins with, at each contact."""
_STARTS = 8
"""Directions from which it is followed down."""


@dataclass(frozen=True, eq=False)
class Contacts:
    """Points where fingers touch an object.

    A contact carries f = (normal, tangent, tangent) with |tangents| ≤ µ · normal. A soft finger also carries a torque
    about the normal, and the two share the friction: |(tangents, torque / radius)| ≤ µ · normal.
    """

    points: Float[np.ndarray, "n 3"]
    """In the world [m]."""
    normals: Float[np.ndarray, "n 3"]
    """Unit vectors into the object, in the world: the way the finger pushes."""
    mu: Float[np.ndarray, " n"]
    """Sliding friction."""
    fingers: tuple[str, ...] = ()
    """Which finger each belongs to: a fingertip of the embodiment, or a body of the robot. Only needed for torques."""
    radius_m: Float[np.ndarray, " n"] | None = None
    """Of soft fingers: friction torque about the normal over sliding friction, about two thirds of the patch's radius
    [m]. MuJoCo's torsional coefficient is µ times this. None where all are hard points."""
    frames: Float[np.ndarray, "n 3 3"] = field(init=False)
    """Columns are the normal and two tangents, a right-handed basis in world axes."""

    def __post_init__(self) -> None:
        n = len(self.points)
        shapes = {"points": (n, 3), "normals": (n, 3), "mu": (n,)}
        if self.radius_m is not None:
            shapes["radius_m"] = (n,)
        for name, shape in shapes.items():
            array = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            if array.shape != shape or not np.isfinite(array).all():
                raise InputError(f"{name} of contacts must be finite numbers of shape {list(shape)}")
            object.__setattr__(self, name, array)
        if n == 0:
            raise InputError("a grasp needs at least one contact")
        lengths = np.sqrt(np.einsum("ij,ij->i", self.normals, self.normals))
        if (abs(lengths - 1.0) > 1e-3).any():
            raise InputError("normals of contacts must be unit vectors into the object")
        if (self.mu < 0).any() or (self.radius_m is not None and (self.radius_m < 0).any()):
            raise InputError("friction and radius of contacts cannot be negative")
        if self.fingers and len(self.fingers) != n:
            raise InputError(f"{n} contacts need {n} fingers, not {len(self.fingers)}")
        object.__setattr__(self, "frames", frames(self.normals / lengths[:, None]))

    def __len__(self) -> int:
        return len(self.points)

    @property
    def width(self) -> int:
        """How many numbers describe the force at one contact: 4 with soft fingers, else 3."""
        return 3 if self.radius_m is None else 4

    def moved(self, T: Float[np.ndarray, "4 4"]) -> Contacts:
        """Returns the contacts carried along by a motion, such as T_world_object of contacts known on the object."""
        return replace(self, points=self.points @ T[:3, :3].T + T[:3, 3], normals=self.normals @ T[:3, :3].T)


def frames(normals: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3 3"]:
    """Returns right-handed bases whose columns are the normal and two tangents."""
    away = np.eye(3)[np.argmin(abs(normals), axis=1)]
    first = np.cross(normals, away)
    first /= np.sqrt(np.einsum("ij,ij->i", first, first))[:, None]
    return np.stack([normals, first, np.cross(normals, first)], axis=2)


def grasp_matrix(
    points: Float[np.ndarray, "n 3"], normals: Float[np.ndarray, "n 3"], centre: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "6 3*n"]:
    """Returns G, which makes of contact forces the wrench on the object: w = G f.

    Args:
        points: Contacts in the world [m].
        normals: Unit vectors into the object.
        centre: Where torques are taken about, in the world [m].

    Returns:
        Three columns a contact, for a force [N] along its normal and its two tangents (see `frames`). Rows are force
        [N] and torque [N·m] in world axes.
    """
    return _columns(frames(np.asarray(normals, dtype=np.float64)), points - centre)


def contact_columns(contacts: Contacts, centre: Float[np.ndarray, "3"]) -> Float[np.ndarray, "6 m"]:
    """Returns the grasp matrix with `width` columns a contact; a soft finger's fourth is for torque / radius [N]."""
    pushes = _columns(contacts.frames, contacts.points - centre)
    if contacts.radius_m is None:
        return pushes
    columns = np.zeros((6, len(contacts), 4))
    columns[:, :, :3] = pushes.reshape(6, -1, 3)
    columns[3:, :, 3] = (contacts.radius_m[:, None] * contacts.normals).T
    return columns.reshape(6, -1)


def _columns(frames: Float[np.ndarray, "n 3 3"], levers: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "6 3*n"]:
    first, second = [1, 2, 0], [2, 0, 1]
    torque = levers[:, first, None] * frames[:, second] - levers[:, second, None] * frames[:, first]
    return np.concatenate([frames, torque], axis=1).transpose(1, 0, 2).reshape(6, -1)


def size_of(contacts: Contacts, centre: Float[np.ndarray, "3"]) -> float:
    """Returns the largest distance of a contact from the centre [m]: the length that compares torques with forces."""
    return max(float(np.linalg.norm(contacts.points - centre, axis=1).max()), 1e-6)


def closure(
    contacts: Contacts, *, centre: Sequence[float] | np.ndarray | None = None, size_m: float | None = None
) -> float:
    """Measures how well a grasp withstands the wrench it is worst at (Ferrari and Canny's quality).

    It is the radius of the largest ball around zero in the set of wrenches that the contacts can make with normal
    forces of one newton in all, with true round cones: any wrench up to that size can be made for each newton of
    squeeze. It changes steadily with the contacts, so finite differences tell how to improve a grasp.

    Args:
        contacts: Where fingers touch.
        centre: Where torques are taken about, in the world [m]; the contacts' mean by default. Give the centre of mass.
        size_m: Length that torques are divided by [m]; the farthest contact's distance from the centre by default.

    Returns:
        The radius; 1 would be the best. Positive only for force closure. Where zero is outside the set, minus its
        distance from it; 0 where the contacts can make no wrench at all in some direction, as two hard points cannot
        about the line between them.
    """
    middle = contacts.points.mean(axis=0) if centre is None else np.asarray(centre, dtype=np.float64)
    G = contact_columns(contacts, middle)
    G[3:] /= size_of(contacts, middle) if size_m is None else size_m
    reach = _Reach(G.T.reshape(len(contacts), contacts.width, 6), contacts.mu)
    outside = _distance(reach)
    if outside > 0:
        return -outside
    if np.linalg.svd(reach.edges(), compute_uv=False)[-1] < 1e-9:
        return 0.0
    radius = _radius(reach)
    return radius if radius > 1e-6 else 0.0


class _Reach:
    """The set of wrenches at one newton of normal force, known by its extreme points."""

    def __init__(self, columns: Float[np.ndarray, "n w 6"], mu: Float[np.ndarray, " n"]):
        self.normal = columns[:, 0]
        self.slide = mu[:, None, None] * columns[:, 1:]

    def extents(self, directions: Float[np.ndarray, "d 6"]) -> tuple[np.ndarray, np.ndarray]:
        """Returns how far each contact reaches in each direction [d, n], and its farthest point [d, n, 6]."""
        along = np.einsum("nwk,dk->dnw", self.slide, directions)
        unit = along / np.maximum(np.linalg.norm(along, axis=2, keepdims=True), 1e-300)
        points = self.normal + np.einsum("dnw,nwk->dnk", unit, self.slide)
        return np.einsum("dnk,dk->dn", points, directions), points

    def edges(self) -> Float[np.ndarray, "e 6"]:
        """Returns some extreme points: sliding in a few directions at each contact, and twisting."""
        angle = 2 * np.pi * np.arange(_EDGES) / _EDGES
        ways = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        if self.slide.shape[1] == 3:
            ways = np.concatenate([np.pad(ways, ((0, 0), (0, 1))), [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])
        return (self.normal[:, None] + np.einsum("ew,nwk->nek", ways, self.slide)).reshape(-1, 6)


def _distance(reach: _Reach) -> float:
    """Returns how far the set is from zero; 0 where zero is in it."""
    from scipy.optimize import nnls

    points, distance = reach.edges(), 0.0
    for _ in range(30):
        # The nearest mixture of the points known so far; the last row makes the weights add up to one.
        weights, _ = nnls(np.vstack([points.T, np.full(len(points), 1e3)]), np.r_[np.zeros(6), 1e3])
        nearest = weights @ points / weights.sum()
        distance = float(np.linalg.norm(nearest))
        if distance < 1e-6:
            return 0.0
        extents, further = reach.extents(-nearest[None] / distance)
        if distance + extents.max() < 1e-5 * distance:
            break
        points = np.vstack([points, further[0]])
    return distance


def _radius(reach: _Reach) -> float:
    """Returns the distance from zero, which is inside, to the boundary: the least extent in any direction.

    The extent has many local minima, near the facets of the hull of a few extreme points. The lowest of these are
    followed down on the true, round set.
    """
    from scipy.optimize import minimize
    from scipy.spatial import ConvexHull

    # Symmetric grasps have many points in one facet, which qhull only takes well when it may shake them (QJ).
    facets = ConvexHull(reach.edges(), qhull_options="QJ Pp").equations[:, :-1]
    extents = reach.extents(facets)[0].max(axis=1)
    starts: list[np.ndarray] = []
    for k in np.argsort(extents):
        if len(starts) < _STARTS and all(facets[k] @ other < 0.95 for other in starts):
            starts.append(facets[k])
    # Least t with extent_i(d) <= t for every contact, |d| = 1.
    rule = [
        {
            "type": "ineq",
            "fun": lambda v: v[6] - reach.extents(v[None, :6])[0][0],
            "jac": lambda v: np.c_[-reach.extents(v[None, :6])[1][0], np.ones(len(reach.normal))],
        },
        {"type": "eq", "fun": lambda v: v[:6] @ v[:6] - 1.0, "jac": lambda v: np.r_[2.0 * v[:6], 0.0]},
    ]
    least = float(extents.min())
    for start in starts:
        found = minimize(
            lambda v: v[6], np.r_[start, reach.extents(start[None])[0].max()], jac=lambda v: np.eye(7)[6],
            constraints=rule, method="SLSQP", options={"maxiter": 60, "ftol": 1e-9},
        ).x  # fmt: skip
        way = found[:6] / np.linalg.norm(found[:6])
        least = min(least, float(reach.extents(way[None])[0].max()))
    return least
