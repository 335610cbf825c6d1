"""Gaussian splats: a cloud of coloured, anisotropic Gaussians that looks like a thing from all sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from dexloop.core import se3
from dexloop.core.artifacts import Twin
from dexloop.core.errors import InputError

SH_C0 = 0.28209479177387814
"""The constant spherical harmonic: colour = 0.5 + SH_C0 * sh[0] + ... ."""
MOST_DEGREE = 3
"""Of spherical harmonics, as in every reader of the format."""
FLAT = 0.2
"""Thickness over width of a splat that lies on a surface."""
_FIRST_OPACITY = 0.1
"""Of splats made from points: low enough that wrong ones are soon gone."""


@dataclass(frozen=True, eq=False)
class Splats:
    """Gaussians, as they are optimised: every number may be any finite one."""

    means: Float[np.ndarray, "n 3"]
    """[m]"""
    log_scales: Float[np.ndarray, "n 3"]
    """Natural logarithm of the standard deviations along the own axes [m]."""
    quats: Float[np.ndarray, "n 4"]
    """w, x, y, z, of any length but zero: turns own axes to the frame's."""
    logits: Float[np.ndarray, " n"]
    """Opacity is 1 / (1 + exp(-logit))."""
    sh: Float[np.ndarray, "n k 3"]
    """Coefficients of real spherical harmonics of the direction from camera to splat, k = (degree + 1)²."""

    def __post_init__(self):
        n = len(self.means)
        shapes = {"means": (n, 3), "log_scales": (n, 3), "quats": (n, 4), "logits": (n,)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise InputError(f"splats: {name} has shape {getattr(self, name).shape} where {shape} is needed")
        if self.sh.shape not in [(n, (d + 1) ** 2, 3) for d in range(MOST_DEGREE + 1)]:
            raise InputError(f"splats: sh has shape {self.sh.shape}; it must be ({n}, 1, 4, 9 or 16, 3)")
        for field in fields(self):
            object.__setattr__(self, field.name, np.ascontiguousarray(getattr(self, field.name), dtype=np.float32))

    def __len__(self) -> int:
        return len(self.means)

    @property
    def degree(self) -> int:
        """Of the spherical harmonics."""
        return round(self.sh.shape[1] ** 0.5) - 1

    @property
    def opacities(self) -> Float[np.ndarray, " n"]:
        """0 to 1."""
        return 1.0 / (1.0 + np.exp(-self.logits))

    @property
    def colours(self) -> Float[np.ndarray, "n 3"]:
        """RGB without what depends on the direction, 0 to 1."""
        return np.clip(0.5 + SH_C0 * self.sh[:, 0], 0.0, 1.0)

    @staticmethod
    def from_points(
        points: Float[np.ndarray, "n 3"],
        colours: Float[np.ndarray, "n 3"],
        normals: Float[np.ndarray, "n 3"] | None = None,
        *,
        degree: int = 0,
    ) -> Splats:
        """Makes splats as large as the gaps between points: round, or flat where normals are given.

        Args:
            points: [m]
            colours: RGB, 0 to 1.
            normals: Of the surface that the points lie on, of length one.
            degree: Of the spherical harmonics; all but the constant are zero.
        """
        from scipy.spatial import KDTree

        n = len(points)
        if n < 4:
            raise InputError(f"{n} points are too few to start splats from: at least 4 are needed")
        if colours.shape != points.shape:
            raise InputError(f"{n} points need as many colours: {colours.shape} is not {points.shape}")
        gaps = np.asarray(KDTree(points).query(points, k=4)[0])[:, 1:].mean(axis=1)
        scales = np.log(np.maximum(gaps, 1e-3 * max(float(np.median(gaps)), 1e-6)))
        sh = np.zeros((n, (degree + 1) ** 2, 3))
        sh[:, 0] = (colours - 0.5) / SH_C0
        logit = np.log(_FIRST_OPACITY / (1.0 - _FIRST_OPACITY))
        scales = np.repeat(scales[:, None], 3, axis=1)
        quats = np.tile([1.0, 0.0, 0.0, 0.0], (n, 1))
        if normals is not None:
            scales[:, 2] += np.log(FLAT)
            z = np.broadcast_to([0.0, 0.0, 1.0], (n, 3))
            half = (
                z + np.where(normals[:, 2:] < -0.999, [1e-3, 0.0, 0.0], 0.0) + normals
            )  # halfway from z to the normal
            half /= np.linalg.norm(half, axis=1, keepdims=True)
            quats = np.concatenate([np.sum(z * half, axis=1, keepdims=True), np.cross(z, half)], axis=1)
        return Splats(points, scales, quats, np.full(n, logit), sh)

    def taken(self, which: Bool[np.ndarray, " n"] | Int[np.ndarray, " m"]) -> Splats:
        """Returns some of the splats."""
        return Splats(*(getattr(self, field.name)[which] for field in fields(self)))

    def moved(self, T: Float[np.ndarray, "4 4"]) -> Splats:
        """Returns the splats after a rigid motion: `splats_a = splats_b.moved(T_a_b)`."""
        turned = sh_rotation(T[:3, :3], self.degree).astype(np.float32)
        return Splats(
            se3.transform(T, self.means.astype(np.float64)),
            self.log_scales,
            se3.quat_multiply(se3.quat_from_matrix(T[:3, :3]), self.quats.astype(np.float64)),
            self.logits,
            np.einsum("ij,njc->nic", turned, self.sh),
        )

    def with_degree(self, degree: int) -> Splats:
        """Returns the splats with more (zero) or fewer spherical harmonics."""
        k = (degree + 1) ** 2
        sh = np.zeros((len(self), k, 3), np.float32)
        sh[:, : self.sh.shape[1]] = self.sh[:, :k]
        return Splats(self.means, self.log_scales, self.quats, self.logits, sh)

    def save(self, path: Path) -> None:
        """Writes a PLY file with the fields that 3D Gaussian Splatting viewers read."""
        n, rest = len(self), self.sh.shape[1] - 1
        names = _names(rest)
        table = np.zeros((n, len(names)), "<f4")
        # All coefficients of red, then of green, then of blue.
        others = np.swapaxes(self.sh[:, 1:], 1, 2).reshape(n, 3 * rest)
        columns = [self.means, np.zeros((n, 3)), self.sh[:, 0], others, self.logits[:, None], self.log_scales]
        np.concatenate([*columns, self.quats], axis=1, out=table)
        header = ["ply", "format binary_little_endian 1.0", f"element vertex {n}"]
        header += [f"property float {name}" for name in names] + ["end_header", ""]
        with open(path, "wb") as file:
            file.write("\n".join(header).encode("ascii"))
            file.write(table.tobytes())

    @staticmethod
    def load(path: Path) -> Splats:
        """Reads a PLY file of 3D Gaussian Splatting.

        Raises:
            InputError: It is none.
        """
        data = Path(path).read_bytes()
        end = data.find(b"end_header\n")
        lines = [line.split() for line in data[: max(end, 0)].decode("ascii", "replace").splitlines()]
        if end < 0 or not lines or lines[0] != ["ply"]:
            raise InputError(f"{path} is not a PLY file: give the point_cloud.ply of a Gaussian splatting tool")
        if ["format", "binary_little_endian", "1.0"] not in lines:
            raise InputError(f"{path} is not a binary little-endian PLY file: save it as one")
        elements = [line for line in lines if line[0] == "element"]
        if len(elements) != 1 or elements[0][1] != "vertex":
            raise InputError(f"{path} holds more than vertices: give the splats, not a mesh")
        n = int(elements[0][2])
        kinds = {"float": "<f4", "float32": "<f4", "double": "<f8", "uchar": "u1", "int": "<i4"}
        properties = [(line[2], kinds.get(line[1])) for line in lines if line[0] == "property"]
        if any(kind is None for _, kind in properties):
            raise InputError(f"{path} has properties that are not plain numbers: give the splats, not a mesh")
        dtype = np.dtype([(name, str(kind)) for name, kind in properties])
        rest = sum(name.startswith("f_rest_") for name in dtype.names or ()) // 3
        missing = [m for m in _names(rest) if m not in (dtype.names or ()) and m not in ("nx", "ny", "nz")]
        if missing or rest not in [(d + 1) ** 2 - 1 for d in range(MOST_DEGREE + 1)]:
            raise InputError(
                f"{path} is not a file of 3D Gaussian Splatting: it lacks {', '.join(missing[:5]) or 'f_rest_*'}"
            )
        if len(data) - end - 11 < n * dtype.itemsize:
            raise InputError(f"{path} ends early: it holds fewer than the {n} splats it promises; copy it again")
        table = np.frombuffer(data, dtype, n, end + 11)

        def columns(*names: str) -> Float[np.ndarray, "n k"]:
            return np.stack([table[name].astype(np.float32) for name in names], axis=1)

        sh = np.zeros((n, 1 + rest, 3), np.float32)
        sh[:, 0] = columns("f_dc_0", "f_dc_1", "f_dc_2")
        if rest:
            others = columns(*(f"f_rest_{i}" for i in range(3 * rest))).reshape(n, 3, rest)
            sh[:, 1:] = np.swapaxes(others, 1, 2)
        return Splats(
            columns("x", "y", "z"),
            columns("scale_0", "scale_1", "scale_2"),
            columns("rot_0", "rot_1", "rot_2", "rot_3"),
            table["opacity"].astype(np.float32),
            sh,
        )


def splats_of(twin: Twin) -> dict[str, Splats]:
    """Returns the splats of a twin's objects by name, each in its object's frame; objects without any are left out."""
    files = {name: twin.path / "objects" / name / "splats.ply" for name in twin.header.meta["objects"]}
    return {name: Splats.load(file) for name, file in files.items() if file.is_file()}


def surroundings_of(twin: Twin) -> Splats | None:
    """Returns the splats of what is around a twin's objects, in the world's frame; None if it has none."""
    file = twin.path / "surroundings.ply"
    return Splats.load(file) if file.is_file() else None


def joined(clouds: Sequence[Splats]) -> Splats:
    """Returns several clouds as one; spherical harmonics that one of them lacks are zero.

    Raises:
        InputError: There is none.
    """
    if not clouds:
        raise InputError("no splats to join: give at least one cloud")
    degree = max(cloud.degree for cloud in clouds)
    same = [cloud.with_degree(degree) for cloud in clouds]
    return Splats(*(np.concatenate([getattr(c, field.name) for c in same]) for field in fields(Splats)))


def sh_basis(directions: Float[np.ndarray, "n 3"], degree: int) -> Float[np.ndarray, "n k"]:
    """Returns the real spherical harmonics of unit vectors, ordered and signed as in 3D Gaussian Splatting."""
    x, y, z = directions.T
    xx, yy, zz = x * x, y * y, z * z
    basis = [
        np.full_like(x, SH_C0),
        *(0.4886025119029199 * f for f in (-y, z, -x)),
        1.0925484305920792 * x * y,
        -1.0925484305920792 * y * z,
        0.31539156525252005 * (2 * zz - xx - yy),
        -1.0925484305920792 * x * z,
        0.5462742152960396 * (xx - yy),
        -0.5900435899266435 * y * (3 * xx - yy),
        2.890611442640554 * x * y * z,
        -0.4570457994644658 * y * (4 * zz - xx - yy),
        0.3731763325901154 * z * (2 * zz - 3 * xx - 3 * yy),
        -0.4570457994644658 * x * (4 * zz - xx - yy),
        1.445305721320277 * z * (xx - yy),
        -0.5900435899266435 * x * (xx - 3 * yy),
    ]
    return np.stack(basis[: (degree + 1) ** 2], axis=1)


def sh_rotation(R: Float[np.ndarray, "3 3"], degree: int) -> Float[np.ndarray, "k k"]:
    """Returns the matrix that turns coefficients: the turned function is f'(d) = f(Rᵀ d).

    The harmonics of one degree turn among themselves, so that fitting f' at a few directions is exact.
    """
    some = np.random.default_rng(0).normal(size=(64, 3))
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    return np.linalg.lstsq(sh_basis(some, degree), sh_basis(some @ R, degree), rcond=None)[0]


def _names(rest: int) -> list[str]:
    """The properties of the file, in order, with `rest` coefficients beyond the constant for each colour."""
    return [
        *("x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2"),
        *(f"f_rest_{i}" for i in range(3 * rest)),
        *("opacity", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"),
    ]
