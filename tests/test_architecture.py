"""The rules of the house about who may import whom, read from the sources."""

from __future__ import annotations

import ast
import graphlib
import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "dexloop"

STAGES = ("capture", "twin", "identify", "demonstrate", "scale", "train", "deploy", "audit")

# A folder or module of dexloop, and what else of dexloop it may import. Foundations stand in order: none imports one
# that stands on it.
FOUNDATIONS: dict[str, set[str]] = {
    "core": set(),
    "sim": {"core"},
    "robots": {"core", "sim"},
    "vision": {"core", "sim", "robots"},
    "rig": {"core", "sim", "robots", "vision"},
    "policy": {"core", "sim", "robots", "rig"},
}
ALLOWED: dict[str, set[str]] = {
    **FOUNDATIONS,
    **{stage: set(FOUNDATIONS) for stage in STAGES},  # never another stage, and never the lab: truth stays there
    "lab": set(FOUNDATIONS),
    "report": set(FOUNDATIONS),
    "view": set(FOUNDATIONS),
    "loop": {*FOUNDATIONS, *STAGES, "next_motion", "loop_cfg"},
    "loop_cfg": {"core"},
    "__init__": {"core", "sim"},
}
# Where the user comes in, and so where everything meets.
ENTRANCES = {"cli", "commands", "console", "show", "show_trials", "doctor", "demo", "next_motion", "__main__"}

HEAVY = {
    "torch",
    "safetensors",
    "pycolmap",
    "mediapipe",
    "cv2",
    "av",
    "pyarrow",
    "mink",
    "ompl",
    "trimesh",
    "matplotlib",
    "mujoco",
    "scipy",
    "numba",
    "jax",
    "viser",
}


def unit_of(file: Path) -> str:
    """The folder below dexloop that a file is in, or the module itself at the top: "core", "cli"."""
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Every import of a file, wherever it stands, as (line, full module name)."""
    package = ("dexloop", *file.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text(), file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
            base = base if node.level else node.module or ""
            # `from dexloop import lab` imports the module dexloop.lab.
            yield from ((node.lineno, f"{base}.{alias.name}" if base == "dexloop" else base) for alias in node.names)


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.fixture(scope="module")
def origin() -> Mapping[str, list[str]]:
    """The packages that each importable module comes from; slow to find."""
    return importlib.metadata.packages_distributions()


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.relative_to(SOURCE).as_posix())
def test_imports_follow_the_plan(file: Path) -> None:
    unit = unit_of(file)
    if unit in ENTRANCES:
        return
    assert unit in ALLOWED, f"{unit} has no place in the plan: add it to ALLOWED above, and to CONTRIBUTING.md"
    wrong = []
    for line, name in imports(file):
        parts = name.split(".")
        if parts[0] != "dexloop" or len(parts) == 1:
            continue
        target = parts[1]
        inside = target == unit or target in ALLOWED[unit]
        if not inside and (target in ALLOWED or target in ENTRANCES):
            wrong.append(f"{file.name}:{line} imports {name}")
    allowed = ", ".join(sorted(ALLOWED[unit])) or "nothing else of dexloop"
    assert not wrong, f"{unit} may import {allowed}: {'; '.join(wrong)}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.relative_to(SOURCE).as_posix())
def test_nothing_names_the_lab_as_a_module_in_a_string(file: Path) -> None:
    """The way round an import statement: `importlib.import_module("dexloop.lab")`."""
    if unit_of(file) in ENTRANCES | {"lab"}:
        return
    strings = [n.value for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Constant)]
    found = [s for s in strings if isinstance(s, str) and re.fullmatch(r"\.*(dexloop\.)?lab(\.\w+)+|dexloop\.lab", s)]
    assert not found


@pytest.mark.parametrize("file", sorted((SOURCE / "core").glob("*.py")), ids=lambda f: f.name)
def test_core_stands_on_numpy_and_the_standard_library(file: Path) -> None:
    allowed = {"numpy", "jaxtyping", "dexloop", *sys.stdlib_module_names}
    wrong = {name for _, name in imports(file) if name.split(".")[0] not in allowed}
    assert not wrong


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.relative_to(SOURCE).as_posix())
def test_third_party_libraries_are_declared(file: Path, origin: Mapping[str, list[str]]) -> None:
    """What happens to be installed here, for another library's sake, is not what a user gets."""
    lines = importlib.metadata.requires("dexloop") or []
    declared = {re.split(r"[^\w-]", line)[0].lower().replace("_", "-") for line in lines}
    declared.add("opencv-contrib-python")  # comes with mediapipe, and may not be asked for twice
    wrong = set()
    for _, name in imports(file):
        module = name.split(".")[0]
        if module == "dexloop" or module in sys.stdlib_module_names:
            continue
        packages = origin.get(module, [module.replace("_", "-")])
        if not {package.lower().replace("_", "-") for package in packages} & declared:
            wrong.add(module)
    assert not wrong, f"add to pyproject.toml what {', '.join(sorted(wrong))} comes from"


def test_the_plan_has_no_cycle() -> None:
    order = list(graphlib.TopologicalSorter(ALLOWED).static_order())
    assert order[0] == "core"
    assert all("lab" not in targets for targets in ALLOWED.values())
    assert all(not (ALLOWED[stage] & set(STAGES)) for stage in STAGES)


def test_modules_of_dexloop_do_not_import_each_other_in_a_circle() -> None:
    """At module level; an import inside a function is how a circle is broken on purpose."""
    dotted = {file: ".".join(["dexloop", *file.relative_to(SOURCE).with_suffix("").parts]) for file in FILES}
    modules = {name.removesuffix(".__init__"): file for file, name in dotted.items()}
    graph: dict[str, set[str]] = {}
    for name, file in modules.items():
        graph[name] = set()
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                targets = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= {t if t in modules else node.module for t in targets} & modules.keys() - {name}
            elif isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & modules.keys() - {name}
    graphlib.TopologicalSorter(graph).prepare()


def test_the_command_line_starts_without_heavy_libraries() -> None:
    """`dexloop --help` takes under a second: heavy libraries are imported where they are used."""
    script = "import dexloop.cli, json, sys; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not HEAVY & set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("where", "source", "targets"),
    [
        ("twin/a.py", "from dexloop.identify import x", ["dexloop.identify"]),
        ("twin/a.py", "def f():\n    import dexloop.lab.bench", ["dexloop.lab.bench"]),
        ("twin/a.py", "from dexloop import lab, core", ["dexloop.lab", "dexloop.core"]),
        ("twin/deep/a.py", "from ...lab import truth", ["dexloop.lab"]),
        ("twin/a.py", "from .b import c", ["dexloop.twin.b"]),
        ("twin/a.py", "from .. import lab", ["dexloop.lab"]),
    ],
)
def test_the_reader_of_imports_sees_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, source: str, targets: list[str]
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    file = tmp_path / where
    file.parent.mkdir(parents=True)
    file.write_text(source)
    assert [name for _, name in imports(file)] == targets
