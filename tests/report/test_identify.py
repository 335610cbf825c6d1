"""The report's section about a belief, against small beliefs whose numbers are known."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dexloop.core.artifact import save_arrays, writing
from dexloop.core.artifacts import Belief
from dexloop.core.capture import Capture, StreamInfo
from dexloop.core.errors import InputError
from dexloop.core.run import Run
from dexloop.core.stated import state_belief
from dexloop.core.status import Level, Status
from dexloop.report.identify import directions_figure, identify_section, posterior_figure, traces_figure
from dexloop.report.page import write_report

NOT_TOLD = Status(Level.WARN, "not_identifiable", "object.mass not identifiable", "Push faster and let it coast.")


def row(
    mean: float, low: float, high: float, unit: str, identifiable: bool | None, prior: str = "any"
) -> dict[str, Any]:
    told = {} if identifiable is None else {"identifiable": identifiable}
    return {"mean": mean, "sd": (high - low) / 3.92, "interval": [low, high], "unit": unit, "prior": prior, **told}


def slow_push() -> dict[str, Any]:
    """What a slow push tells: mass times friction (0.2 kg), neither of the two; and where the middle is."""
    return {
        "labels": ["object.mass", "object.com.x", "object.com.y", "table.friction", "clock.camera", "gain.effort"],
        "parameters": {
            "object.mass": row(0.4, 0.11, 1.46, "kg", False, "0.3 kg, within a factor 7.1 (95 %)"),
            "object.com.x": row(0.0012, 0.0006, 0.0018, "m", True, "0, 0 ± 0.01, 0.01 m (95 %)"),
            "object.com.y": row(-0.0004, -0.0010, 0.0002, "m", True, "0, 0 ± 0.01, 0.01 m (95 %)"),
            "table.friction": row(0.5, 0.14, 1.8, "1", False, "0.5, within a factor 3.9 (95 %)"),
        },
        "combinations": [
            {
                "name": "object.mass × table.friction",
                "value": 0.2,
                "sd": 0.004,
                "interval": [0.192, 0.208],
                "unit": "kg",
            }
        ],
        "clocks": {"camera": {"offset_s": 0.0312, "sd_s": 0.001, "interval_s": [0.0292, 0.0332]}},
        "nuisances": {"gain.effort": row(0.98, 0.96, 1.0, "1", None)},
        "directions": [
            {"name": "object.mass × table.friction", "left": 0.02},
            {"name": "object.mass ÷ table.friction", "left": 0.93},
        ],
        "before": {
            "identifiable": {
                "object.mass": False,
                "object.com.x": True,
                "object.com.y": True,
                "table.friction": True,
            },
            "directions": [{"name": "object.mass", "left": 0.1}, {"name": "table.friction", "left": 0.5}],
        },
        "checks": {
            "held_out": {
                "recordings": ["push_2"],
                "before": {"object_pose [m]": 0.004, "touch": 0.2},
                "after": {"object_pose [m]": 0.001, "touch": 0.3},
                "better": True,
            },
            "sampling": {"draws": 24, "effective_share": 0.75, "gaussian_is_fair": True},
        },
        "notes": ["joint_3 did not move: not used"],
        "seconds": {"search": 1.5, "fit": 2.0},
    }


def little() -> dict[str, Any]:
    """The same about one parameter only, which is quickly drawn."""
    meta = slow_push()
    return meta | {"parameters": {"object.com.x": meta["parameters"]["object.com.x"]}, "combinations": []}


def curves() -> dict[str, np.ndarray]:
    """x moves by 100 mm (the start values said 130), z and the ring finger do not move but are noisy."""
    rng = np.random.default_rng(3)
    t = np.linspace(2.0, 3.0, 50)
    x = 0.1 * (t - 2.0)
    noise = 2e-4 * rng.standard_normal(50)
    still = {"t": t, "before": 0 * t, "after": 0 * t, "low": 0 * t - 1e-5, "high": 0 * t + 1e-5}
    moved = {"t": t, "measured": x + noise, "before": 1.3 * x, "after": x, "low": x - 1e-3, "high": x + 1e-3}
    force = {"t": t, "measured": 3 * x, "before": x, "after": 3 * x, "low": 2.9 * x, "high": 3.1 * x}
    found = {"touch|index_tip": force, "object_pose|z": {**still, "measured": noise}, "object_pose|x": moved}
    return {f"push_1|{name}|{what}": curve for name, all_of in found.items() for what, curve in all_of.items()}


def make(
    path: Path,
    meta: Mapping[str, Any],
    *,
    traces: Mapping[str, np.ndarray] | None = None,
    status: Status = NOT_TOLD,
) -> Belief:
    rng = np.random.default_rng(0)
    ratio = np.exp(0.65 * rng.standard_normal(512))
    product = 0.2 * np.exp(0.02 * rng.standard_normal(512))
    other = rng.standard_normal((512, 4)) * [2e-4, 2e-4, 1e-3, 0.01] + [0.0012, -0.0004, 0.0312, 0.98]
    mass, friction = np.sqrt(product * ratio), np.sqrt(product / ratio)
    samples = np.column_stack([mass, other[:, :2], friction, other[:, 2:]])
    with writing(path, Belief) as draft:
        save_arrays(draft.folder / "posterior.npz", mean=np.zeros(6), covariance=np.eye(6), samples=samples)
        save_arrays(draft.folder / "traces.npz", **(curves() if traces is None else traces))
        draft.meta |= dict(meta)
        draft.status = status
    return Belief.open(path)


def channels_of(arrays: Mapping[str, np.ndarray]) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    out: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for key, curve in arrays.items():
        _, stream, channel, what = key.split("|")
        out.setdefault((stream, channel), {})[what] = curve
    return out


class Tables(HTMLParser):
    """Reads the tables of a page as a browser lays them out: a cell that spans rows stands in each of them."""

    def __init__(self, page: str):
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._hanging: list[tuple[int, str]] = []  # rows still to come, text
        self._span, self._text = 1, ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._span, self._text = int(dict(attrs).get("rowspan") or 1), ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.tables[-1][-1].append(self._text.strip())
            if self._span > 1:
                self._hanging.append((self._span, self._text.strip()))
        elif tag == "tr":
            if len(self.tables[-1]) > 1 and len(self.tables[-1][-1]) < len(self.tables[-1][0]):
                self.tables[-1][-1] += [text for _, text in self._hanging]
            self._hanging = [(left - 1, text) for left, text in self._hanging if left > 1]

    def of(self, first: str) -> dict[str, dict[str, str]]:
        """Returns the table whose first column has that head: by the first cell of a row, by head."""
        table = next(t for t in self.tables if t[0][0] == first)
        assert {len(r) for r in table} == {len(table[0])}, "every row is as long as the head"
        return {r[0]: dict(zip(table[0], r, strict=True)) for r in table[1:]}


def pictures(page: str) -> dict[str, np.ndarray]:
    found = re.findall(r'<img alt="([^"]*)" src="data:image/png;base64,([^"]+)"', page)
    return {alt: np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")) for alt, data in found}


@pytest.fixture(scope="module")
def belief(tmp_path_factory: pytest.TempPathFactory) -> Belief:
    return make(tmp_path_factory.mktemp("belief") / "belief", slow_push())


@pytest.fixture(scope="module")
def section(belief: Belief) -> str:
    return identify_section(belief)


def test_the_table_says_what_was_found_and_how_sure_it_is(section: str) -> None:
    table = Tables(section).of("parameter")
    assert list(table) == ["object.mass", "object.com.x", "object.com.y", "table.friction"]
    mass, com = table["object.mass"], table["object.com.y"]
    assert (mass["mean"], mass["unit"], mass["identifiable"]) == ("0.40", "kg", "no")
    assert mass["95 % interval"] == "0.11 to 1.46 (within a factor 3.6)"
    assert (com["mean"], com["95 % interval"], com["identifiable"]) == ("-0.0004", "-0.0010 to 0.0002", "yes")
    assert com["prior"] == "0, 0 ± 0.01, 0.01 m (95 %)"
    assert table["table.friction"]["unit"] == ""
    assert (table["table.friction"]["foreseen"], table["table.friction"]["identifiable"]) == ("yes", "no")
    assert "lab truth" not in section


def test_what_is_known_only_together_is_said(section: str) -> None:
    assert "only object.mass × table.friction = 0.200 kg (95 %: 0.192 to 0.208)" in section


def test_clocks_are_in_milliseconds(section: str) -> None:
    camera = Tables(section).of("clock or stream")["camera"]
    assert (camera["offset"], camera["95 % interval"], camera["unit"]) == ("31.2", "29.2 to 33.2", "ms")


def test_held_out_errors_are_compared_stream_by_stream(section: str) -> None:
    table = Tables(section).of("stream")
    assert list(table["object_pose"].values()) == ["object_pose", "4", "1", "mm", "4.0 times smaller"]
    assert list(table["touch"].values()) == ["touch", "0.2", "0.3", "", "1.5 times larger"]
    assert "Fitted without push_2" in section


def test_units_of_streams_come_from_the_capture(tmp_path: Path) -> None:
    touch = StreamInfo("touch", "touch", ("index_tip",), ("N",), "robot")
    recording = {"name": "push_1", "plan": {}, "robot": {}, "scene": {}, "streams": [touch.to_json()], "videos": []}
    with writing(tmp_path / "capture", Capture) as draft:
        draft.meta["recordings"] = [recording | {"checks": [], "markers": {}}]
    belief = make(tmp_path / "belief", little(), traces={})
    found = identify_section(belief, capture=Capture.open(tmp_path / "capture"))
    assert Tables(found).of("stream")["touch"]["unit"] == "N"


def test_the_lab_truth_stands_beside_the_interval(belief: Belief) -> None:
    truth = {"object.mass": 0.5, "object.com.x": 0.002, "clock.camera": 0.031, "gain.effort": 0.97, "moon.mass": 7e22}
    page = identify_section(belief, truth=truth)
    tables = Tables(page)
    found = tables.of("parameter")
    assert [found[k]["lab truth"] for k in found] == ["0.50", "0.00200", "", ""]
    assert [found[k][""] for k in found] == ["inside", "outside", "", ""]
    assert found["object.com.y"]["prior"] == "0, 0 ± 0.01, 0.01 m (95 %)"
    assert tables.of("clock or stream")["camera"]["lab truth"] == "31.0"
    assert tables.of("what")["gain.effort"][""] == "inside"
    assert "moon.mass has no place here" in page


def test_traces_are_drawn_as_they_are_stored() -> None:
    arrays = curves()
    figure = traces_figure("push_1", channels_of(arrays), {("touch", "index_tip"): "N"})
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    assert set(panels) == {"object_pose: x [mm]", "object_pose: z [mm]", "touch: index_tip [N]"}
    lines = {line.get_label(): line for line in panels["object_pose: x [mm]"].get_lines()}
    for label, what in (("measured", "measured"), ("before (start values)", "before"), ("after (fitted)", "after")):
        stored = arrays[f"push_1|object_pose|x|{what}"]
        np.testing.assert_allclose(lines[str(label)].get_ydata(), 1e3 * stored, rtol=1e-12)
    force = panels["touch: index_tip [N]"].get_lines()[0]
    np.testing.assert_allclose(np.asarray(force.get_ydata()), arrays["push_1|touch|index_tip|measured"], rtol=1e-12)
    band = panels["object_pose: x [mm]"].collections[0].get_paths()[0].vertices
    assert np.ptp(np.asarray(band)[:, 1]) == pytest.approx(102.0, abs=1e-6)  # 100 mm and 1 mm at each end


def test_noise_does_not_look_like_motion_and_a_bad_start_does_not_hide_the_data() -> None:
    channels = channels_of(curves())
    channels["object_pose", "x"]["before"] = np.linspace(0.0, 50.0, 50)  # the simulation flew off
    channels["touch", "index_tip"]["before"] = np.full(50, np.nan)
    figure = traces_figure("push_1", channels, {})
    heights = {axes.get_title(): np.ptp(axes.get_ylim()) for axes in figure.axes if axes.get_title()}
    assert heights["object_pose: z [mm]"] > 20.0  # its noise is 1 mm from peak to peak
    assert 100.0 < heights["object_pose: x [mm]"] < 300.0
    assert 0.3 < heights["touch: index_tip"] < 0.5


def test_the_posterior_shows_the_ridge_of_what_is_known_only_together(belief: Belief, section: str) -> None:
    labels = ["object.mass", "table.friction"]
    figure = posterior_figure(belief, labels, {"object.mass": 0.5, "table.friction": 0.4})
    axes = np.array(figure.axes).reshape(2, 2)
    cloud = axes[1, 0].get_lines()[0]
    product = np.asarray(cloud.get_xdata()) * np.asarray(cloud.get_ydata())
    assert np.median(product) == pytest.approx(0.2, rel=0.01)
    assert (axes[1, 0].get_xscale(), axes[1, 0].get_yscale()) == ("log", "log")
    assert [float(np.asarray(line.get_xdata())[0]) for line in axes[0, 0].get_lines()] == [0.5]
    across, along = axes[1, 0].get_lines()[1:]
    assert (np.asarray(across.get_ydata())[0], np.asarray(along.get_xdata())[0]) == (0.4, 0.5)
    assert "more in the table above" not in section, "all four fit into the figure"


def test_a_truth_far_away_is_still_in_the_picture(belief: Belief) -> None:
    figure = posterior_figure(belief, ["object.com.x"], {"object.com.x": 0.009})
    low, high = figure.axes[0].get_xlim()
    assert low < 0.001 < 0.009 < high


def test_many_parameters_are_thinned_to_single_numbers(tmp_path: Path) -> None:
    meta = slow_push()
    names = [f"part_{k}.friction" for k in range(5)]
    meta["labels"] = ["object.mass", "object.com.x", *names[:4]]
    meta["parameters"] = {k: row(0.5, 0.4, 0.6, "1", True) for k in meta["labels"]}
    meta["labels"] += [names[4], "object.com.y"]
    meta["parameters"] |= {k: row(0.5, 0.4, 0.6, "1", True) for k in meta["labels"][6:]}
    meta["before"]["identifiable"] = dict.fromkeys(meta["labels"], True)
    belief = make(tmp_path / "belief", meta, traces={})
    with (tmp_path / "belief" / "posterior.npz").open("wb") as file:
        np.savez(file, samples=np.random.default_rng(0).uniform(0.4, 0.6, (64, 8)))
    assert "2 more in the table above" in identify_section(belief)


def test_directions_are_bars_of_what_is_left() -> None:
    meta = slow_push()
    figure = directions_figure(meta["before"]["directions"], meta["directions"])
    before, after = figure.axes
    widths = [[bar.get_width() for bar in axes.patches] for axes in (before, after)]
    assert widths == [pytest.approx([10.0, 50.0]), pytest.approx([2.0, 93.0])]
    assert [t.get_text() for t in after.get_yticklabels()] == [d["name"] for d in meta["directions"]]
    assert after.get_ylim()[0] > after.get_ylim()[1], "the best is on top"


def test_the_sampling_check_says_where_the_intervals_come_from(section: str, tmp_path: Path) -> None:
    assert "describes the posterior well" in section
    assert "75 % of them count" in section
    meta = little()
    meta["checks"]["sampling"] |= {"gaussian_is_fair": False, "effective_share": 0.04}
    assert "describes the posterior badly" in identify_section(make(tmp_path / "belief", meta, traces={}))


def test_what_is_not_there_is_said_or_left_out(tmp_path: Path) -> None:
    meta = slow_push() | {"combinations": [], "clocks": {}, "nuisances": {}, "notes": []}
    meta["parameters"] = {"object.mass": meta["parameters"]["object.mass"]}
    meta["checks"]["held_out"] = {}
    page = identify_section(make(tmp_path / "belief", meta, traces={}))
    assert "Record another to see" in page
    assert "there is nothing to draw" in page
    assert "Nothing that was measured was simulated" in page
    assert set(pictures(page)) == {"identifiability"}
    assert "Clocks" not in page
    assert "Known together" not in page


def test_more_than_a_few_stretches_are_folded_away(tmp_path: Path) -> None:
    short = {k: v for k, v in curves().items() if "|x|" in k}
    many = {k.replace("push_1", f"toss[{n}]"): v for n in range(6) for k, v in short.items()}
    page = identify_section(make(tmp_path / "belief", little(), traces=many))
    assert {f"traces of toss[{n}]" for n in range(6)} <= pictures(page).keys()
    assert page.index("traces of toss[3]") < page.index("<summary>2 more</summary>") < page.index("traces of toss[4]")


def test_the_page_has_the_verdict_first_and_needs_no_other_file(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    make(run.stage_path("identify"), slow_push())
    page = write_report(run, truth={"object.mass": 0.5}).read_text()
    of_stage = page[page.index("<h2>identify</h2>") :]
    verdict = "object.mass not identifiable → Push faster and let it coast."
    assert 0 < of_stage.index(verdict) < of_stage.index("<table>")
    assert "Done: identify." in page
    assert "lab truth" in page
    assert not re.search(r'(src|href)=["\'](?!data:)', page), "nothing is fetched"
    shown = pictures(page)
    assert set(shown) == {"posterior", "identifiability", "traces of push_1"}
    assert all(np.ptp(picture) > 200 for picture in shown.values()), "something is drawn on each"


def test_a_name_cannot_break_the_section(tmp_path: Path) -> None:
    bad = "<script>$x_$"
    meta = little() | {"notes": [bad]}
    meta["checks"]["held_out"]["recordings"] = [bad]
    meta["directions"][0]["name"] = bad
    traces = {k.replace("push_1", bad).replace("touch", bad): v for k, v in curves().items()}
    assert "<script>" not in identify_section(make(tmp_path / "belief", meta, traces=traces))


def test_what_was_stated_is_shown_as_it_is(tmp_path: Path) -> None:
    stated = state_belief(tmp_path / "stated", {"object.mass": [0.19, 0.2, 0.21], "clock.camera": [0.0, 0.01, 0.02]})
    section = identify_section(stated)
    assert "object.mass" in section
    assert "0.2" in section
    assert "clock" not in section


def test_a_belief_that_says_nothing_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run dexloop identify again"):
        identify_section(make(tmp_path / "bare", {}))
    belief = make(tmp_path / "belief", little())
    (belief.path / "traces.npz").unlink()
    with pytest.raises(InputError, match=r"traces\.npz"):
        identify_section(belief)
