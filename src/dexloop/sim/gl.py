"""Which OpenGL backend can draw on this machine. Probed in a subprocess, because a wrong one may crash the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string(
    '<mujoco><worldbody><light pos="0 0 2"/><geom type="sphere" size=".5" rgba="1 0 0 1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    assert renderer.render().max() > 0, "the picture is black"
print("drawn")
"""


@dataclass(frozen=True)
class Gl:
    """The outcome of a probe."""

    backend: str | None
    """Value of `MUJOCO_GL` that works, or None."""
    message: str
    """One line for people."""


def candidates() -> tuple[str, ...]:
    """Returns the backends to try, best first; what the user set in `MUJOCO_GL` is tried first."""
    if sys.platform == "darwin":
        found: tuple[str, ...] = ("cgl", "glfw")
    elif sys.platform == "win32":
        found = ("wgl",)
    else:
        found = ("egl", "osmesa", *(("glfw",) if os.environ.get("DISPLAY") else ()))
    chosen = os.environ.get("MUJOCO_GL", "").strip().lower()
    return (chosen, *(c for c in found if c != chosen)) if chosen else found


def _cache_file() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("dexloop")) / "gl.json"


_chosen_by_us = False


def prepare() -> None:
    """Sets `MUJOCO_GL` to the backend that worked last time, or to the usual one; the user's own choice stands."""
    global _chosen_by_us
    if os.environ.get("MUJOCO_GL") or "mujoco" in sys.modules:
        return
    os.environ["MUJOCO_GL"] = _remembered() or candidates()[0]
    _chosen_by_us = True


def choose() -> Gl:
    """Makes sure that the backend in `MUJOCO_GL` draws, or falls back to one that does; before MuJoCo is loaded.

    What worked last time is not tried again. Where nothing draws, MuJoCo is told to do without: all but pictures works.
    """
    wanted = "" if _chosen_by_us else os.environ.get("MUJOCO_GL", "")
    known = _remembered()
    if known and wanted in ("", known):
        os.environ["MUJOCO_GL"] = known
        return Gl(known, f"{known} draws")
    found = probe()
    os.environ["MUJOCO_GL"] = found.backend or "disabled"
    return found


def _remembered() -> str | None:
    try:
        return str(json.loads(_cache_file().read_text())["backend"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def probe(*, timeout_s: float = 60.0) -> Gl:
    """Draws a sphere with each candidate in a subprocess, and remembers the first that works.

    Args:
        timeout_s: For each candidate [s].
    """
    reasons = []
    for backend in candidates():
        error = _try(backend, timeout_s)
        if error is None:
            _remember(backend)
            fallen_back = f" instead ({'; '.join(reasons)})" if reasons else ""
            return Gl(backend, f"{backend} draws{fallen_back}")
        reasons.append(f"{backend}: {error}")
    return Gl(
        None,
        f"no OpenGL backend draws ({'; '.join(reasons)}); on Debian and Ubuntu install libegl1, "
        f"libgles2, libgl1 and libgl1-mesa-dri",
    )


def _try(backend: str, timeout_s: float) -> str | None:
    environment = {**os.environ, "MUJOCO_GL": backend}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], env=environment, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {timeout_s:.0f} s"
    if done.returncode == 0 and "drawn" in done.stdout:
        return None
    last = [line for line in done.stderr.strip().splitlines() if line.strip()]
    return last[-1].strip()[:160] if last else f"exit code {done.returncode}"


def _remember(backend: str) -> None:
    file = _cache_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"backend": backend}))
    except OSError:
        pass  # a machine without a cache probes again next time
