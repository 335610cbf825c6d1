"""A world that blew up, kept in one file that replays it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import mujoco
import numpy as np
from jaxtyping import Float

from dexloop.core.artifact import load_arrays, save_arrays
from dexloop.core.errors import InputError


@dataclass(frozen=True, eq=False)
class Dump:
    """All that is needed to see it happen again."""

    model: mujoco.MjModel
    """The world's own model, with its parameter values in place."""
    state: Float[np.ndarray, " s"]
    """MuJoCo's integration state before the first step."""
    control: Float[np.ndarray, "t u"] | None
    steps: int
    reason: str
    parameters: dict[str, list[float]]
    """The values that the world's parameters had."""
    moving: Mapping[str, Float[np.ndarray, "t _"]] = field(default_factory=dict)
    """What else was given before each step: fields of MjData by name, such as mocap_pos, flat."""

    def replay(self) -> tuple[int, mujoco.MjData]:
        """Steps until it blows up again.

        Returns:
            The step at which MuJoCo warned (or `steps` if it did not), and the data at that moment.
        """
        data = mujoco.MjData(self.model)
        mujoco.mj_setState(self.model, data, self.state, mujoco.mjtState.mjSTATE_INTEGRATION)
        for step in range(self.steps):
            if self.control is not None:
                data.ctrl[:] = self.control[step]
            for name, rows in self.moving.items():
                getattr(data, name).flat = rows[step]
            mujoco.mj_step(self.model, data)
            if any(data.warning[k].number for k in _UNSTABLE):
                return step, data
        return self.steps, data


_UNSTABLE = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


_MOVING = "moving."
"""Begins the names of arrays in a file that are more than the control."""
_KEPT = 12
"""Dumps kept in a folder; older ones make room."""


def write_dump(folder: Path, dump: Dump) -> Path:
    """Writes a dump and returns its file."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("diverged-*.npz"), key=lambda f: f.stat().st_mtime)[: -_KEPT + 1]:
        old.unlink(missing_ok=True)
    file = folder / f"diverged-{uuid.uuid4().hex[:8]}.npz"
    buffer = np.empty(mujoco.mj_sizeModel(dump.model), dtype=np.uint8)
    mujoco.mj_saveModel(dump.model, None, buffer)
    about = {
        "mujoco": mujoco.__version__,
        "steps": dump.steps,
        "reason": dump.reason,
        "parameters": dump.parameters,
    }
    inputs = {} if dump.control is None else {"control": dump.control}
    inputs |= {f"{_MOVING}{name}": rows for name, rows in dump.moving.items()}
    text = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    save_arrays(file, model=buffer, state=dump.state, about=text, **inputs)
    return file


def read_dump(file: str | Path) -> Dump:
    """Reads a dump.

    Raises:
        InputError: It is no dump, or one of another MuJoCo version (its model is in MuJoCo's binary form).
    """
    arrays = load_arrays(Path(file))
    try:
        about = json.loads(arrays["about"].tobytes())
        if about["mujoco"] != mujoco.__version__:
            raise InputError(
                f"{file} was written with MuJoCo {about['mujoco']}, this is {mujoco.__version__}: install that version"
            )
        model = mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": arrays["model"].tobytes()})
        moving = {name.removeprefix(_MOVING): rows for name, rows in arrays.items() if name.startswith(_MOVING)}
        return Dump(
            model, arrays["state"], arrays.get("control"), about["steps"], about["reason"], about["parameters"], moving
        )
    except (KeyError, ValueError) as error:
        raise InputError(f"{file} is no dump of a diverged world: {error}") from error
