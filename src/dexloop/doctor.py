"""Is this machine fit? Versions, libraries, drawing, disk, cache, and each optional part with how to get it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

import dexloop
from dexloop.core.errors import InputError
from dexloop.core.provenance import cpu_model
from dexloop.core.status import Level, Status, worst

GB = 1e9
MIN_PYTHON = (3, 11)

LIBRARIES: dict[str, str] = {
    "numpy": "numpy",
    "scipy": "scipy",
    "mujoco": "mujoco",
    "cv2": "opencv-contrib-python",
    "av": "av",
    "pyarrow": "pyarrow",
    "PIL": "pillow",
    "trimesh": "trimesh",
    "matplotlib": "matplotlib",
    "mink": "mink",
    "ompl": "ompl",
    "mediapipe": "mediapipe",
    "jaxtyping": "jaxtyping",
    "platformdirs": "platformdirs",
    "rich": "rich",
    "tyro": "tyro",
    "numba": "numba",
    "pycolmap": "pycolmap",
    "skimage": "scikit-image",
    "manifold3d": "manifold3d",
    "fast_simplification": "fast-simplification",
    "xatlas": "xatlas",
    "coacd": "coacd",
}
"""The modules dexloop cannot do without, and the package on PyPI that each comes from."""

_SYSTEM_PACKAGES = {
    "libEGL": "libegl1",
    "libGL": "libgl1",
    "libGLESv2": "libgles2",
    "libgthread-2": "libglib2.0-0",
}
"""The Debian package of each system library that a wheel above loads and does not bring."""

_IMPORT_EACH = """
import importlib, json, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        problem = None
    print(json.dumps([name, problem]), flush=True)
"""


@dataclass(frozen=True)
class Finding:
    """What the doctor found of one thing."""

    name: str
    status: Status
    detail: str
    """What there is, in a few words: a version, a size."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {"name": self.name, "detail": self.detail, "status": self.status.to_json()}


@dataclass(frozen=True)
class Part:
    """Something that dexloop can do without."""

    name: str
    packages: tuple[str, ...]
    """All of them are needed [names on PyPI]."""
    purpose: str
    how: str
    """How to get it, as an imperative sentence."""


PARTS = (
    Part(
        "mcap",
        ("mcap", "mcap-ros2-support"),
        "reads MCAP files and ROS 2 bags",
        "Run `pip install mcap mcap-ros2-support`.",
    ),
    Part(
        "torch",
        ("torch", "safetensors"),
        "trains and runs policies",
        "Run `pip install torch==2.13.0 safetensors` (a CPU build).",
    ),
    Part(
        "mjx",
        ("mujoco-mjx",),
        "a second physics engine, for gradients",
        "Run `pip install mujoco-mjx`.",
    ),
    Part("usd", ("usd-core",), "writes twins as USD", "Run `pip install usd-core`."),
    Part("viser", ("viser",), "shows twins in the browser", "Run `pip install viser`."),
    Part("gsplat", ("gsplat",), "splats on a GPU with CUDA", "Run `pip install gsplat` where CUDA and torch are."),
)


def diagnose() -> list[Finding]:
    """Looks at everything, in the order a person would. A check that fails itself is a finding too."""
    checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("python", _python),
        ("dexloop", _dexloop),
        ("libraries", _libraries),
        ("opencv", _one_opencv),
        ("GL", _gl),
        ("CPU", _cpu),
        ("memory", _memory),
        ("cache", _cache),
        ("disk", _disk),
        ("hand landmarks", _hand_landmarks),
        ("menagerie", _menagerie),
        ("optional parts", _parts),
    ]
    findings: list[Finding] = []
    for name, check in checks:
        try:
            findings += check()
        except Exception as error:  # the doctor must not fall ill from what it looks at
            message = f"this could not be checked: {type(error).__name__}: {error}"
            findings.append(Finding(name, Status(Level.FAIL, "check_failed", message, "Please report it."), "?"))
    return findings


def verdict(findings: Iterable[Finding]) -> Status:
    """Returns the worst that was found, or that the machine is fit."""
    ills = (f.status for f in findings if f.status.level is not Level.OK)
    return worst(ills, otherwise=_ok("this machine is fit"))


def to_json(findings: list[Finding]) -> dict[str, Any]:
    """Returns plain JSON values: the verdict and every finding."""
    return {"status": verdict(findings).to_json(), "findings": [f.to_json() for f in findings]}


def _ok(message: str, *, code: str = "ok", action: str = "") -> Status:
    return Status(Level.OK, code, message, action)


def _python() -> Iterator[Finding]:
    status = _ok(f"Python {platform.python_version()}")
    if sys.version_info[:2] < MIN_PYTHON:
        wanted = ".".join(map(str, MIN_PYTHON))
        message = f"Python {platform.python_version()} is too old"
        status = Status(Level.FAIL, "old_python", message, f"Install Python {wanted} or newer.")
    yield Finding("python", status, f"{platform.python_version()} ({platform.system()} {platform.machine()})")


def _dexloop() -> Iterator[Finding]:
    yield Finding("dexloop", _ok(f"dexloop {dexloop.__version__}"), dexloop.__version__)


def _libraries() -> Iterator[Finding]:
    problems = import_problems(LIBRARIES)
    wanted = _requirements()
    for module, package in LIBRARIES.items():
        version = _version(package)
        least = wanted.get(package, "")
        install = f"Run `pip install '{package}{'>=' if least else ''}{least}'`."
        if version is None and problems[module] is not None:
            yield Finding(package, Status(Level.FAIL, "missing", f"{package} is not installed", install), "missing")
        elif problems[module] is not None:
            message = f"{module} cannot be imported: {problems[module]}"
            action = _system_package(problems[module] or "") or f"Run `pip install --force-reinstall {package}`."
            yield Finding(package, Status(Level.FAIL, "broken", message, action), f"{version}, broken")
        elif version is not None and least and _numbers(version) < _numbers(least):
            message = f"{package} {version} is older than {least}"
            yield Finding(package, Status(Level.FAIL, "old", message, install), version)
        else:
            yield Finding(package, _ok(f"{package} {version or 'works'}"), version or "?")


def import_problems(modules: Iterable[str]) -> dict[str, str | None]:
    """Imports modules in a subprocess, since a broken one may crash; returns what went wrong with each, or None."""
    left, problems = list(modules), dict[str, str | None]()
    while left:
        done = subprocess.run([sys.executable, "-c", _IMPORT_EACH, *left], capture_output=True, text=True, check=False)
        # A library may print when it is imported: only our own lines count.
        told = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith('["'))
        problems.update(told)
        left = [name for name in left if name not in told]
        if left:  # the process died in the first that it did not tell of
            problems[left.pop(0)] = f"the process ended with code {done.returncode}"
    return problems


def _one_opencv() -> Iterator[Finding]:
    names = [f"opencv-{kind}" for kind in ("python", "python-headless", "contrib-python", "contrib-python-headless")]
    found = [name for name in names if _version(name)]
    if len(found) > 1:
        extra = " ".join(name for name in found if name != LIBRARIES["cv2"])
        action = f"Run `pip uninstall {extra}`, then `pip install --force-reinstall --no-deps {LIBRARIES['cv2']}`."
        message = f"{' and '.join(found)} overwrite each other's files"
        yield Finding("opencv wheels", Status(Level.WARN, "two_opencv", message, action), f"{len(found)}")


def _gl() -> Iterator[Finding]:
    from dexloop.sim import gl

    wanted = os.environ.get("MUJOCO_GL", "")
    found = gl.probe()
    status = _ok(found.message)
    if found.backend is not None and wanted and found.backend != wanted:
        action = f"Unset MUJOCO_GL, or set it to {found.backend}."
        status = Status(Level.WARN, "gl_fallback", found.message, action)
    if found.backend is None:
        action = (
            "Debian, Ubuntu: `sudo apt-get install libegl1 libgles2 libgl1 libgl1-mesa-dri`; then run the doctor again."
        )
        status = Status(Level.FAIL, "no_gl", found.message, action)
    yield Finding("GL", status, found.backend or "none")


def _cpu() -> Iterator[Finding]:
    cores = os.cpu_count() or 1
    yield Finding("CPU", _ok(f"{cpu_model()}, {cores} cores"), f"{cpu_model()}, {cores} cores")


def _memory() -> Iterator[Finding]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    status = _ok(f"{total / GB:.1f} GB of memory")
    if total < 4 * GB:
        action = "Run fewer worlds at once, and close other programs."
        status = Status(Level.WARN, "little_memory", f"only {total / GB:.1f} GB of memory", action)
    yield Finding("memory", status, f"{total / GB:.1f} GB")


def cache_folder() -> Path:
    """Returns the folder for what can be made or fetched again."""
    return Path(platformdirs.user_cache_dir("dexloop"))


def _cache() -> Iterator[Finding]:
    folder = cache_folder()
    status = _ok(f"{folder} can be written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"dexloop")
    except OSError as error:
        message = f"the cache folder {folder} cannot be written: {error.strerror or error}"
        status = Status(Level.FAIL, "no_cache", message, "Set XDG_CACHE_HOME to a folder that can be written.")
    yield Finding("cache", status, str(folder))


def _disk() -> Iterator[Finding]:
    for name, folder in (("disk here", Path.cwd()), ("disk of the cache", cache_folder())):
        existing = next(p for p in (folder, *folder.parents) if p.exists())
        free = shutil.disk_usage(existing).free
        message, action = f"{free / GB:.1f} GB are free at {existing}", "Free some space, or work elsewhere."
        level = Level.FAIL if free < 0.5 * GB else Level.WARN if free < 5 * GB else Level.OK
        status = _ok(message) if level is Level.OK else Status(level, "little_disk", f"only {message}", action)
        yield Finding(name, status, f"{free / GB:.1f} GB free")


def _hand_landmarks() -> Iterator[Finding]:
    """Looks without fetching: the doctor changes nothing."""
    from dexloop.vision import hand_bundle

    name, file = "hand landmarks", hand_bundle.cache_file()
    if os.environ.get(hand_bundle.ENV):
        try:
            found = hand_bundle.bundle_path()
        except InputError as error:
            action = f"Name another file, or unset {hand_bundle.ENV}."
            yield Finding(name, Status(Level.WARN, "no_hand_model", str(error), action), "missing")
        else:
            yield Finding(name, _ok(f"the hand model is {found}"), f"{hand_bundle.ENV}={found}")
    elif not file.is_file():
        how = f"Nothing to do with PyPI in reach; else set {hand_bundle.ENV} to a hand_landmarker.task."
        status = _ok("the hand model is fetched when hands are first tracked", code="absent", action=how)
        yield Finding(name, status, "not fetched yet (optional)")
    elif hashlib.sha256(file.read_bytes()).hexdigest() != hand_bundle.SHA256:
        message = f"{file} is not the hand model that it should be, and will be fetched again"
        yield Finding(name, Status(Level.WARN, "wrong_hand_model", message, f"Remove {file}."), "damaged")
    else:
        yield Finding(name, _ok(f"the hand model is {file}"), "in the cache")


def _menagerie() -> Iterator[Finding]:
    root = os.environ.get("MENAGERIE_ROOT")
    how = "Run `pip install mujoco-menagerie`, or set MENAGERIE_ROOT to a checkout of mujoco_menagerie."
    if root and not Path(root).is_dir():
        message = f"MENAGERIE_ROOT is {root}, where there is no folder"
        yield Finding("menagerie", Status(Level.WARN, "no_menagerie", message, how), "missing")
    elif root:
        yield Finding("menagerie", _ok(f"robots by name from {root}"), f"MENAGERIE_ROOT={root}")
    else:
        yield _part(Part("menagerie", ("mujoco-menagerie",), "loads Menagerie robots by name", how))


def _parts() -> Iterator[Finding]:
    yield from map(_part, PARTS)


def _part(part: Part) -> Finding:
    """An absent part is no illness: the level is OK, and the action says how to get it."""
    versions = {package: _version(package) for package in part.packages}
    missing = [package for package, version in versions.items() if version is None]
    if missing:
        status = _ok(f"{', '.join(missing)} not installed: {part.purpose}", code="absent", action=part.how)
        return Finding(part.name, status, "not installed (optional)")
    return Finding(part.name, _ok(part.purpose), ", ".join(f"{v}" for v in versions.values()))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _requirements() -> dict[str, str]:
    """Returns the least version of each package that dexloop itself asks for."""
    lines = importlib.metadata.requires("dexloop") or []
    found = (re.match(r"([\w.-]+)>=([\w.]+)$", line) for line in lines)  # extras end in a marker and do not match
    return {match[1]: match[2] for match in found if match}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0])[:3])


def _system_package(problem: str) -> str:
    missing = re.search(r"(lib[\w-]+)[\w.]*\.so[\w.]*: cannot open shared object", problem)
    if not missing:
        return ""
    package = _SYSTEM_PACKAGES.get(missing[1])
    hint = f"Debian, Ubuntu: `sudo apt-get install {package}`." if package else ""
    return f"Install the system's {missing[1]}. {hint}".strip()
