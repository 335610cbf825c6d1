import re
import shutil

import numpy as np

from dexloop.core.run import Run
from dexloop.report.figures import capture_figure, recording_figure
from dexloop.report.page import write_report


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
