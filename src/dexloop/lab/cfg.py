"""Which lab: plain data, readable without loading any physics."""

from __future__ import annotations

from dataclasses import dataclass

from dexloop.core.errors import InputError


@dataclass(frozen=True)
class LabCfg:
    """A lab, up to its truth, which the seed draws."""

    object: str = "cube"
    """One of the eight objects: see `dexloop lab`."""
    robot: str = "dex16@wrist"
    """Any robot with an arm: dex16@wrist, dex16@arm7, gripper@wrist, gripper@arm7, leap_hand@arm7, ..."""
    seed: int = 0
    """Draws mass, friction, delays, noise, camera errors, light and where the object stands."""
    tracker: bool = True
    """Whether an optical tracker gives the object's pose, with noise, on the camera's clock."""
    video: bool = True
    """Whether the fixed camera films. Without, everything is much faster."""
    picture_px: tuple[int, int] = (640, 480)
    """[px]"""
    nice: bool = False
    """Draw shadows and smooth edges: about five times slower without a GPU."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"a seed is 0 or more, not {self.seed}")
        width, height = self.picture_px
        if not (16 <= width <= 1280 and 16 <= height <= 960) or width % 2 or height % 2:
            raise InputError(f"pictures are from 16x16 to 1280x960 px with even sides, not {width}x{height}")
