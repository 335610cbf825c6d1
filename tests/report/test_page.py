import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from dexloop.core.artifact import save_arrays, writing
from dexloop.core.artifacts import Belief
from dexloop.core.run import Run
from dexloop.report.figures import capture_figure, recording_figure
from dexloop.report.page import _summary, write_report
from tests.report.runs import row, run_with_trials


def test_a_figure_for_every_recording(lab_capture):
    for recording in lab_capture.recordings.values():
        figure = recording_figure(recording)
        titles = {axes.get_title() for axes in figure.axes}
        expected = "object's height [mm] over time [s]" if recording.name == "lift" else "object seen from above [mm]"
        assert (expected in titles) == ("object_pose" in recording.streams)
    picture = capture_figure(lab_capture)
    assert picture.shape[1] > 800
    assert np.ptp(picture) == 255


def test_the_report_is_one_file_that_needs_nothing_else(lab_capture, tmp_path):
    run = Run.create(tmp_path / "run", seed=4)
    shutil.copytree(lab_capture.path, run.stage_path("capture"))
    page = write_report(run).read_text()
    assert page.count("<video") == sum(len(r.videos) for r in lab_capture.recordings.values())
    assert "data:image/png;base64," in page
    assert not re.search(r'(src|href)=["\'](?!data:)', page), "nothing is fetched"
    for recording in lab_capture.recordings:
        assert f"<td>{recording}</td>" in page


def test_an_empty_run_says_so(tmp_path):
    page = write_report(Run.create(tmp_path / "run")).read_text()
    assert "nothing has been done yet" in page


def test_a_name_cannot_break_the_page(tmp_path):
    run = Run.create(tmp_path / "run", options={"object": "<script>alert(1)</script>"})
    assert "<script>" not in write_report(run).read_text()


def test_a_recording_that_no_panel_shows_is_still_named(lab_capture):
    import dataclasses

    empty = dataclasses.replace(lab_capture.recording("push"), streams={}, videos={})
    assert "push" in recording_figure(empty).get_suptitle()


def test_trials_and_ledger_are_told_round_by_round(lab_trials, tmp_path):
    run = run_with_trials(tmp_path / "run", lab_trials.episodes, [row(1), row(2, signature="slipped", parted=True)])
    page = write_report(run).read_text()
    assert page.index("<h2>deploy, round 1</h2>") < page.index("<h2>audit, round 1</h2>") < page.index("decisions")
    assert "gap +25 points (-20 to +60)" in page.split("<h2>")[0], "the result comes first"
    assert "object.mass is 1.40 times &lt;what&gt; (60 %)" in page
    assert "a &lt;b&gt;reason&lt;/b&gt;" in page
    data = json.loads((run.path / "data.json").read_text())
    assert [r["signature"] for r in data["ledger"]] == ["held", "slipped"]
    assert data["stages"]["deploy"]["hash"] == lab_trials.episodes.hash


def test_a_trial_that_was_stopped_at_once_and_notes_beside_the_rounds_do_no_harm(lab_trials, tmp_path):
    run = run_with_trials(tmp_path / "run", lab_trials.episodes, [row(1), row(2, signature="stopped")])
    save_arrays(run.stage_path("audit") / "traces" / "02.npz", t=np.zeros(0))
    (run.path / "round_notes").write_text("mine")
    with (run.path / "decisions.jsonl").open("ab") as stream:
        stream.write(b'{"what": "torn \xc3')
    page = write_report(run).read_text()
    assert "case 1: reality" in page
    assert "case 2: reality" not in page
    assert ">stopped</td>" in page


def test_what_was_identified_last_is_told_first(tmp_path):
    run = Run.create(tmp_path / "run")
    labels = {"object.mass": {"unit": "kg", "interval": [0.1, 0.9]}}
    for folder, mass in (("3_identify", 0.5), ("push_2/3_identify", 0.4), ("push_10/3_identify", 0.3),
                         ("round_0/3_identify", 0.2)):  # fmt: skip
        with writing(run.path / folder, Belief) as draft:
            save_arrays(draft.folder / "posterior.npz", samples=np.zeros((2, 1)))
            draft.meta["parameters"] = {k: {**v, "mean": mass} for k, v in labels.items()}
    assert [p.parent.name for p in run.beliefs()] == ["run", "push_2", "push_10"]
    assert "0.3 kg (0.1 to 0.9)" in _summary(run, None)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium to look at the page as a person would")
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_it_without_complaint(lab_trials, tmp_path, width):
    run = run_with_trials(tmp_path / "run", lab_trials.episodes, [row(1), row(2, signature="slipped", parted=True)])
    page = write_report(run)
    script = """<script>addEventListener("load", () => { document.title = JSON.stringify({
        images: [...document.images].map(i => i.naturalWidth), page: document.documentElement.scrollWidth,
        window: innerWidth, headings: [...document.querySelectorAll("h2")].length}) })</script>"""
    page.write_text(page.read_text().replace("</body>", script + "</body>"))
    shown = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path}/c", "--host-resolver-rules=MAP * ~NOTFOUND", f"--window-size={width},900",
         "--virtual-time-budget=4000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    told = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", shown.stdout).group(1)))  # type: ignore[union-attr]
    assert "CONSOLE" not in shown.stderr, "nothing is wrong on the console"
    assert told["headings"] == 3
    assert len(told["images"]) == 3
    assert all(wide > 100 for wide in told["images"])
    assert told["page"] <= told["window"], "nobody has to scroll sideways"
