"""`robot.toml`: what a person knows of a robot that its model file does not say."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from dexloop.core.errors import InputError, UnknownName


@dataclass(frozen=True)
class Place:
    """A site to be added to a body."""

    body: str
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """In the body's frame [m]."""
    quat: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    """w, x, y, z."""


@dataclass(frozen=True)
class TipOverride:
    """A fingertip, as a `[[fingertips]]` table."""

    name: str
    body: str
    pos: tuple[float, float, float] | None = None
    """Of the site in the body's frame [m]; inferred when absent."""
    quat: tuple[float, float, float, float] | None = None
    """Of the site; z out of the pad."""
    geoms: tuple[str, ...] = ()
    """Of the pad; all that collide on the body when absent."""


@dataclass(frozen=True)
class Overrides:
    """The contents of `robot.toml`; what is absent is inferred.

    Example:
        ```toml
        arm_joints = ["lift", "turn"]
        palm = { body = "palm", pos = [0, 0, 0.1], quat = [1, 0, 0, 0] }
        mount = "attachment_site"     # a site that exists
        speed_limits = 2.0            # or one a joint: { lift = 0.3, turn = 1.0 }
        home = { lift = 0.2 }
        [[fingertips]]
        name = "thumb"
        body = "th_distal"
        ```
    """

    arm_joints: tuple[str, ...] | None = None
    hand_joints: tuple[str, ...] | None = None
    """In command order."""
    fingertips: tuple[TipOverride, ...] | None = None
    """All of them, thumb last."""
    palm: str | Place | None = None
    """A site that exists, or where to add one: z out of the palm, x along the fingers."""
    mount: str | Place | None = None
    """The mounting face: a site that exists, or where to add one."""
    home: Mapping[str, float] = field(default_factory=dict)
    """[rad or m] by joint."""
    speed_limits: float | Mapping[str, float] | None = None
    """[rad/s or m/s] for all or by joint."""
    effort_limits: float | Mapping[str, float] | None = None
    """[N·m or N] for all or by joint."""

    @staticmethod
    def beside(model: Path) -> Overrides:
        """Reads `STEM.robot.toml` or `robot.toml` beside a model file; empty when there is neither."""
        for path in (model.with_name(f"{model.stem}.robot.toml"), model.with_name("robot.toml")):
            if path.is_file():
                return Overrides.read(path)
        return Overrides()

    @staticmethod
    def read(path: Path) -> Overrides:
        """Reads a file.

        Raises:
            InputError: It is not TOML, or a value has the wrong shape.
            UnknownName: A key means nothing.
        """
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not TOML: {error}") from error
        choices = [f.name for f in fields(Overrides)]
        for key in data:
            if key not in choices:
                raise UnknownName(f"key in {path.name}", key, choices)
        try:
            return _parse(data)
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: {error}") from error


def _parse(data: dict[str, Any]) -> Overrides:
    values: dict[str, Any] = {k: tuple(map(str, data[k])) for k in ("arm_joints", "hand_joints") if k in data}
    for key in ("palm", "mount"):
        if key in data:
            values[key] = data[key] if isinstance(data[key], str) else _place(Place, key, data[key])
    if "fingertips" in data:
        values["fingertips"] = tuple(_place(TipOverride, "fingertips", tip) for tip in data["fingertips"])
    if "home" in data:
        values["home"] = {joint: float(q) for joint, q in dict(data["home"]).items()}
    for key in ("speed_limits", "effort_limits"):
        if key in data:
            given = data[key]
            values[key] = {j: float(v) for j, v in given.items()} if isinstance(given, dict) else float(given)
            worst = min(values[key].values()) if isinstance(given, dict) else values[key]
            if not (np.isfinite(worst) and worst > 0):
                raise ValueError(f"{key} must be above zero, not {worst}")
    return Overrides(**values)


def _place(kind: type, key: str, table: Any) -> Any:
    if not isinstance(table, dict) or "body" not in table:
        raise ValueError(f"{key} must be a table with at least `body`")
    choices = [f.name for f in fields(kind)]
    for name in table:
        if name not in choices:
            raise ValueError(f"{key} has no {name!r}: there is {', '.join(choices)}")
    shaped = dict(table)
    for name, length in (("pos", 3), ("quat", 4)):
        if name in shaped:
            shaped[name] = tuple(float(v) for v in shaped[name])
            if len(shaped[name]) != length:
                raise ValueError(f"{name} of {key} must be {length} numbers")
    if "geoms" in shaped:
        shaped["geoms"] = tuple(map(str, shaped["geoms"]))
    return kind(**shaped)
