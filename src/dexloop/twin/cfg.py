"""What a twin is made with: plain data, readable without loading anything heavy."""

from __future__ import annotations

from dataclasses import dataclass

from dexloop.core.errors import InputError


@dataclass(frozen=True)
class TwinCfg:
    """How carefully a twin is made."""

    recording: str = ""
    """Which recording is the scan; by default the one that was recorded as one."""
    frames: int = 60
    """Pictures taken from the scan."""
    masks: str = ""
    """Folder with a PNG mask for each picture; by default objects are found by themselves."""
    splats: int = 20_000
    """Most splats for an object."""
    steps: int = 1500
    """Of training, one picture each."""
    surroundings: int = 300
    """Steps of training of what is around the objects; 0 to leave it out."""
    faces: int = 12_000
    """Of the mesh that is drawn."""
    parts: int = 16
    """Most convex parts for an object; these collide."""
    texture_px: int = 1024
    """Side of the texture [px]."""
    density_kg_m3: float = 500.0
    """First guess of the density, until identify knows better [kg/m³]."""
    held_out: int = 8
    """Every so many pictures one is kept back, to check the splats with."""
    formats: tuple[str, ...] = ("glb", "urdf")
    """What is written beside MJCF, PLY and OBJ: glb, urdf, usd."""
    seed: int = 0

    def __post_init__(self) -> None:
        ranges = {
            "frames": (8, 500), "splats": (100, 1_000_000), "steps": (10, 100_000), "faces": (100, 1_000_000),
            "surroundings": (0, 100_000),
            "parts": (1, 200), "texture_px": (64, 8192), "density_kg_m3": (1.0, 30_000.0), "held_out": (2, 1000),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} is from {low:g} to {high:g}, not {getattr(self, name):g}")
