"""A ChArUco board of known size: where metric scale and camera poses come from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, UnknownName

_FEWEST = 6
"""Corners below which a pose is not trusted: four fit any pose exactly and so cannot show an error."""


@dataclass(frozen=True, eq=False)
class BoardView:
    """A board found in one image."""

    T_camera_board: Float[np.ndarray, "4 4"]
    corners_px: Float[np.ndarray, "n 2"]
    """Inner chessboard corners [px]."""
    ids: Int[np.ndarray, " n"]
    """Which corner each is: row by row from the upper left."""
    corners_board: Float[np.ndarray, "n 3"]
    """The same corners on the board [m]."""
    rms_px: float
    """Root mean square distance between seen and reprojected corners [px]."""


@dataclass(frozen=True)
class Board:
    """A printed ChArUco board. Its frame: origin in the middle, x right, y up, z out of the paper."""

    squares_x: int = 6
    squares_y: int = 4
    square_m: float = 0.040
    """Side of a chessboard square [m]."""
    marker_m: float = 0.030
    """Side of a marker [m]."""
    dictionary: str = "DICT_4X4_50"
    """Name of the marker set in `cv2.aruco`."""

    def __post_init__(self):
        if min(self.squares_x, self.squares_y) < 3:
            raise InputError(f"a board needs at least 3 x 3 squares, not {self.squares_x} x {self.squares_y}")
        if not 0.0 < self.marker_m < self.square_m:
            raise InputError(f"markers must be smaller than squares: {self.marker_m} m is not below {self.square_m} m")

    @property
    def size_m(self) -> tuple[float, float]:
        """Width and height of the chessboard, without margin [m]."""
        return self.squares_x * self.square_m, self.squares_y * self.square_m

    def image(self, px_per_m: float) -> UInt8[np.ndarray, "h w"]:
        """Returns the board without margin, to be printed at exactly `size_m`."""
        w, h = (round(s * px_per_m) for s in self.size_m)
        return self._charuco().generateImage((w, h), marginSize=0, borderBits=1)

    def detect(self, image: UInt8[np.ndarray, "h w *c"], camera: Camera) -> BoardView | None:
        """Finds the board in an image (RGB or grey) and its pose, or None when too little of it is to be seen.

        Args:
            image: Undistorted, of the camera's size.
            camera: Its intrinsics; where it stands does not matter.
        """
        import cv2

        if image.shape[:2] != (camera.height, camera.width):
            raise InputError(
                f"image is {image.shape[1]} x {image.shape[0]} px but camera {camera.name!r} has "
                f"{camera.width} x {camera.height} px: use the camera the image was taken with"
            )
        grey = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        board = self._charuco()
        corners, ids, _, _ = cv2.aruco.CharucoDetector(board).detectBoard(grey)
        if ids is None or len(ids) < _FEWEST:
            return None
        # The detector's own corners are good to some tenths of a pixel; the saddle point itself is sharper. The window
        # must not reach the markers, whose corners would pull it aside.
        side = float(np.median(_spacing(np.asarray(corners).reshape(-1, 2))))
        window = int(np.clip(0.5 * (1.0 - self.marker_m / self.square_m) * side - 1.0, 2, 8))
        stop = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_COUNT, 50, 1e-4)
        sharp = cv2.cornerSubPix(
            grey, np.asarray(corners, np.float32).reshape(-1, 1, 2), (window, window), (-1, -1), stop
        )
        uv = np.asarray(sharp, dtype=np.float64).reshape(-1, 2)
        index = np.asarray(ids).ravel().astype(np.int64)
        on_print = np.asarray(board.getChessboardCorners(), dtype=np.float64)[index]
        solved = _pose(on_print, uv, camera)
        if solved is None:
            return None
        T_camera_print = solved
        w, h = self.size_m
        # OpenCV's board has its origin in the upper left corner, y down the print and z into the paper.
        T_print_board = se3.from_rt(np.diag([1.0, -1.0, -1.0]), np.array([w / 2, h / 2, 0.0]))
        seen = camera.project(se3.transform(T_camera_print, on_print))
        rms = float(np.sqrt(np.mean(np.sum((seen - uv) ** 2, axis=1))))
        corners_board = se3.transform(se3.inverse(T_print_board), on_print)
        return BoardView(T_camera_print @ T_print_board, uv, index, corners_board, rms)

    def _charuco(self) -> Any:
        import cv2

        names = [n for n in dir(cv2.aruco) if n.startswith("DICT_")]
        if self.dictionary not in names:
            raise UnknownName("marker dictionary", self.dictionary, names)
        markers = cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, self.dictionary))
        return cv2.aruco.CharucoBoard((self.squares_x, self.squares_y), self.square_m, self.marker_m, markers)

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Board:
        """Reads what `to_json` wrote."""
        return Board(**data)


def _spacing(uv: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, " n"]:
    """Distance from each corner to its nearest neighbour [px]."""
    d = np.linalg.norm(uv[:, None] - uv[None], axis=-1)
    np.fill_diagonal(d, np.inf)
    return d.min(axis=1)


def _pose(p: Float[np.ndarray, "n 3"], uv: Float[np.ndarray, "n 2"], camera: Camera) -> Float[np.ndarray, "4 4"] | None:
    """Returns the better of the two poses that a plane can have, refined; None if the corners lie on one line."""
    import cv2

    if np.linalg.matrix_rank(p - p.mean(axis=0), tol=1e-6) < 2:
        return None
    none = np.zeros(4)
    found, rotations, translations, errors = cv2.solvePnPGeneric(p, uv, camera.K, none, flags=cv2.SOLVEPNP_IPPE)
    if not found:
        return None
    best = int(np.argmin(np.asarray(errors).ravel()))
    turn, shift = cv2.solvePnPRefineLM(p, uv, camera.K, none, rotations[best], translations[best])
    R = se3.quat_to_matrix(se3.so3_exp(np.asarray(turn, dtype=np.float64).ravel()))
    return se3.from_rt(R, np.asarray(shift, dtype=np.float64).ravel())
