"""What the lab knows about one household object."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dexloop.sim.shape import Shape


@dataclass(frozen=True, eq=False)
class LabObject:
    """A household object at its nominal values; a seed draws the true ones around them.

    The origin is the middle of the bounding box; z is up and -y is the front (the side with the main print) when the
    object stands as people put it.
    """

    name: str
    title: str
    """What a person would call it."""
    shape: Shape
    mass_kg: float
    com: Float[np.ndarray, "3"]
    """Centre of mass [m]."""
    inertia_per_kg: Float[np.ndarray, "3 3"]
    """Inertia about the centre of mass, divided by the mass [m²]."""
    crush_force_n: float | None
    """Grip force that breaks, dents or collapses it [N]; None if it is solid."""
    T_rest: Float[np.ndarray, "4 4"]
    """Pose on a table whose top is z = 0, in which the object rests."""

    @property
    def rest_height_m(self) -> float:
        """Height of the origin above the table at rest [m]."""
        return float(self.T_rest[2, 3])
