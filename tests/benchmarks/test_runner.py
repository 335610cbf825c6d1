from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import runner
from dexloop.core.errors import UnknownName

GOOD = """
from benchmarks.metric import Metric

def run():
    return [Metric("rate", {value}, "1/s", "higher", 0.1, target={target})]
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes a package of benchmarks from their sources."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"fake_{tmp_path.name}"

    def make(**sources: str) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        for module, source in sources.items():
            (tmp_path / name / f"{module}.py").write_text(source)
        return name

    return make


def good(value: float, target: float | None = None) -> str:
    return GOOD.format(value=value, target=target)


def test_discovery_leaves_out_the_framework(package: Callable[..., str]) -> None:
    name = package(sim=good(1), robots=good(1), _shared="", metric="", runner="", table="", baseline="", __main__="")
    assert runner.discover(name) == ["robots", "sim"]


def test_discovery_of_the_real_package_has_no_framework_file(repository: Path) -> None:
    framework = {"metric", "runner", "table", "baseline"}
    assert all((repository / "benchmarks" / f"{name}.py").is_file() for name in framework)
    assert not framework & set(runner.discover())


def test_choose() -> None:
    assert runner.choose([], ["robots", "sim"]) == ["robots", "sim"]
    assert runner.choose(["sim", "sim"], ["robots", "sim"]) == ["sim"]
    with pytest.raises(UnknownName, match=r"unknown benchmark 'simm' \(did you mean 'sim'\?\): there is robots, sim"):
        runner.choose(["simm"], ["robots", "sim"])


def test_one_that_raises_does_not_stop_the_others(
    package: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = package(
        broken="def run():\n    raise RuntimeError('out of luck')\n",
        unimportable="import no_such_library_anywhere\n",
        sim=good(3),
    )
    outcome = runner.run(["broken", "unimportable", "sim"], name)
    assert [m.value for m in outcome.results["sim"]] == [3]
    assert outcome.failures.keys() == {"broken", "unimportable"}
    assert "out of luck" in outcome.failures["broken"]
    assert "no_such_library_anywhere" in outcome.failures["unimportable"]
    captured = capsys.readouterr()
    assert captured.out == ""  # progress goes to stderr only
    assert "sim took" in captured.err
    assert "out of luck" in captured.err


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def run():\n    return []\n", "gave no metric"),
        (good(1).replace("return [", "return 2 * ["), "two metrics of one name"),
    ],
)
def test_a_benchmark_without_clear_figures_fails(package: Callable[..., str], source: str, message: str) -> None:
    assert message in runner.run(["sim"], package(sim=source)).failures["sim"]
