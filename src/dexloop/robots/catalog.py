"""Robots by name: built-in, from MuJoCo Menagerie, from a file, and any hand `@` any arm."""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path

from dexloop.core.errors import InputError, MissingPart, UnknownName
from dexloop.robots.builtin import arm, gripper, hand, wrist
from dexloop.robots.embodiment import Embodiment
from dexloop.robots.mount import mount

HANDS = {hand.NAME: hand.make, gripper.NAME: gripper.make}
ARMS = {wrist.NAME: wrist.make, arm.NAME: arm.make}
FILES = (".xml", ".mjcf", ".urdf")
MENAGERIE = "menagerie:"
ROOT = "MENAGERIE_ROOT"
WELL_KNOWN = (
    "leap_hand",
    "wonik_allegro",
    "shadow_hand",
    "shadow_dexee",
    "robotiq_2f85",
    "franka_emika_panda",
    "kuka_iiwa_14",
    "universal_robots_ur5e",
)
"""Menagerie names to recognise while Menagerie itself is not here."""


def load(name: str) -> Embodiment:
    """Returns a robot.

    Args:
        name: One of
            a built-in robot: `dex16`, `gripper`, `arm7`, `wrist`;
            a file: a path that ends in `.xml`, `.mjcf` or `.urdf`;
            a Menagerie model: `leap_hand`, `menagerie:wonik_allegro`, or one file of it, `shadow_hand/left_hand`
            (from the checkout that the environment variable `MENAGERIE_ROOT` names, or with the package
            `mujoco-menagerie`, which downloads it);
            a hand on an arm: two of these with `@` between, `dex16@wrist`, `leap_hand@arm7`.

    Raises:
        UnknownName: There is no such robot.
        MissingPart: It is a Menagerie model, and Menagerie is not here.
        InputError: The file cannot be used.
    """
    if "@" in name and not Path(name).exists():
        top, _, base = name.rpartition("@")
        return mount(load(top), load(base))
    if name in HANDS | ARMS:
        return (HANDS | ARMS)[name]()
    if name.lower().endswith(FILES):
        return _imported(Path(name).expanduser().resolve(), name)
    return _imported(menagerie_file(name), name.removeprefix(MENAGERIE))


def names() -> tuple[str, ...]:
    """Lists what `load` takes here: built-in robots, their mounts, and Menagerie hands and arms that are at hand."""
    mounts = [f"{h}@{a}" for h in HANDS for a in ARMS]
    return (*HANDS, *ARMS, *mounts, *_menagerie_names())


def menagerie_file(name: str) -> Path:
    """Finds the MJCF file of a Menagerie model; see `load` for the names."""
    model, _, entry = name.removeprefix(MENAGERIE).partition("/")
    if root := os.environ.get(ROOT):
        folder = Path(root) / model
        if not folder.is_dir():
            raise UnknownName("robot", name, names(), f"{ROOT} is {root}, which has no folder {model!r}.")
        files = {path.stem: path for path in sorted(folder.glob("*.xml")) if "scene" not in path.stem}
        if entry and entry not in files:
            raise UnknownName(f"file of {model}", entry, files)
        if not files:
            raise InputError(f"{folder} holds no model: look for a newer checkout of MuJoCo Menagerie")
        # A folder may hold two hands, or variants for other engines: the right hand, then the plainest name.
        return files[entry] if entry else files.get("right_hand") or files[min(files, key=lambda s: (len(s), s))]
    if importlib.util.find_spec("mujoco_menagerie") is None:
        if name.startswith(MENAGERIE) or model in WELL_KNOWN:
            raise MissingPart(
                f"robot {name!r} is a MuJoCo Menagerie model: `pip install dexloop[menagerie]` to download it when "
                f"needed, or set {ROOT} to a checkout of github.com/google-deepmind/mujoco_menagerie"
            )
        hint = (
            f"Names of MuJoCo Menagerie work too, after `pip install dexloop[menagerie]` or with {ROOT} set to a "
            "checkout; so does the path of an .xml or .urdf file."
        )
        raise UnknownName("robot", name, names(), hint)
    import mujoco_menagerie  # pyright: ignore[reportMissingImports]

    if model not in mujoco_menagerie.names():
        raise UnknownName("robot", name, names(), "The path of an .xml or .urdf file works too.")
    robot = mujoco_menagerie.get(model)
    if entry and entry not in robot.entry_names:
        raise UnknownName(f"file of {model}", entry, robot.entry_names)
    plain = "right_hand" if "right_hand" in robot.entry_names else robot.default_model
    try:
        return Path(robot.xml(entry or plain))
    except mujoco_menagerie.MenagerieError as error:
        raise MissingPart(f"{name!r} could not be fetched: {error}; set {ROOT} to a checkout instead") from error


def _imported(path: Path, name: str) -> Embodiment:
    from dexloop.robots.importing import import_robot

    if not path.is_file():
        raise InputError(f"there is no robot file {path}: give the path of an .xml, .mjcf or .urdf file")
    stem = path.stem if name.lower().endswith(FILES) else name
    return import_robot(path, name=stem)


def _menagerie_names() -> tuple[str, ...]:
    if root := os.environ.get(ROOT):
        return tuple(sorted(path.name for path in Path(root).glob("*") if any(path.glob("*.xml"))))
    if importlib.util.find_spec("mujoco_menagerie") is None:
        return ()
    return _packaged_names()


@functools.cache
def _packaged_names() -> tuple[str, ...]:
    import mujoco_menagerie  # pyright: ignore[reportMissingImports]

    return tuple(mujoco_menagerie.names())
