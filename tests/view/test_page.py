from __future__ import annotations

import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError, MissingPart
from dexloop.core.run import Run
from dexloop.view.contents import contents
from dexloop.view.page import Page, _add_splats
from tests.twin.small import surface_splats
from tests.view.runs import run_with_twin

pytest.importorskip("viser", reason="the viewer needs viser")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_with_twin(tmp_path_factory.mktemp("view") / "run")


@pytest.fixture
def page(run: Run) -> Iterator[Page]:
    with Page(contents(run), port=0) as page:
        yield page


def _node(page: Page, name: str):
    return page.server.scene.get_handle_by_name(name)


def test_the_page_answers_to_this_machine_alone(page: Page) -> None:
    assert page.url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(page.url, timeout=20) as answer:
        assert answer.status == 200
        assert "<html" in answer.read().decode().lower()
    assert page.server.get_host() == "127.0.0.1"


def test_the_scene_holds_all_there_is(page: Page) -> None:
    names = ("splats", "mesh", "parts", "parts/0")
    for name in (*(f"/objects/block/{n}" for n in names), "/world/table", "/cameras/000", "/cameras/001"):
        assert _node(page, name) is not None, name
    np.testing.assert_allclose(_node(page, "/cameras/000").position, [0.3, -0.3, 0.3])
    assert _node(page, "/cameras/000").fov == pytest.approx(2 * np.arctan(60 / 200))


def test_small_splats_keep_their_size_in_half_precision(page: Page) -> None:
    """In metres the square of 0.3 mm is two steps of half precision above zero."""
    fine = surface_splats(count=50)
    fine = replace(fine, log_scales=np.full((50, 3), np.log([1e-4, 3e-4, 0.01]), np.float32))
    _add_splats(page.server, "/fine", fine)
    node = _node(page, "/fine")
    centres = node.buffer[:, :3].copy().view(np.float32) * node.scale
    covariances = node.buffer[:, 4:7].copy().view(np.float16).astype(np.float64) * node.scale**2
    np.testing.assert_allclose(centres, fine.means, atol=1e-6)
    np.testing.assert_allclose(covariances[:, [0, 3, 5]], [[1e-8, 9e-8, 1e-4]] * 50, rtol=2e-3)


def test_checkboxes_show_and_hide(page: Page) -> None:
    shown = {k: box.value for k, box in page.checkboxes.items()}
    assert shown == {"splats": True, "mesh": False, "parts": False, "cameras": True, "surroundings": True}
    assert _node(page, "/surroundings").visible
    assert not _node(page, "/world").visible
    page.checkboxes["surroundings"].value = False
    assert not _node(page, "/surroundings").visible
    assert _node(page, "/world").visible
    assert not _node(page, "/objects/block/mesh").visible
    page.checkboxes["mesh"].value = True
    page.checkboxes["splats"].value = False
    page.checkboxes["cameras"].value = False
    assert _node(page, "/objects/block/mesh").visible
    assert not _node(page, "/objects/block/splats").visible
    assert not _node(page, "/cameras").visible


def test_sliders_place_the_object(page: Page) -> None:
    sliders = page.poses["block"]
    for axis, value in {"x": 0.1, "y": -0.05, "z": 0.2, "yaw": 90.0}.items():
        sliders[axis].value = value
    node = _node(page, "/objects/block")
    np.testing.assert_allclose(node.position, [0.1, -0.05, 0.2])
    np.testing.assert_allclose(se3.quat_to_matrix(node.wxyz) @ [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], atol=1e-9)


def test_play_drops_the_object_from_where_the_sliders_say(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    page.poses["block"]["z"].value = 0.14
    page.poses["block"]["x"].value = 0.1
    heights, place = [], page._place

    def watch(poses) -> None:
        heights.append(poses["block"][2])
        place(poses)

    monkeypatch.setattr(page, "_place", watch)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    page.play_button.value = True  # as a click does
    np.testing.assert_allclose(_node(page, "/objects/block").position, [0.1, 0.0, 0.04], atol=1e-3)
    # A frame is 17 steps of 2 ms, which is what MuJoCo's Euler steps fall by.
    assert 0.14 - heights[0] == pytest.approx(0.5 * 9.81 * 0.034**2, rel=0.1)
    assert page.state.content.startswith("at rest")
    page.reset_button.value = True
    np.testing.assert_allclose(_node(page, "/objects/block").position, [0.1, 0.0, 0.14])


def test_a_push_moves_by_mass_and_friction(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is struck slides J² / (2 m² µ g)."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    mass, friction, push = 0.12, 0.3, 0.06
    page.masses["block"].value, page.friction.value, page.pushes["block"].value = mass, friction, push
    page.play()
    slid = _node(page, "/objects/block").position[0]
    assert slid == pytest.approx(push**2 / (2 * mass**2 * friction * 9.81), rel=0.1)


def test_putting_back_ends_the_play(page: Page) -> None:
    page.poses["block"]["z"].value = 0.3
    thread = threading.Thread(target=page.play)
    thread.start()
    time.sleep(0.1)
    page.poses["block"]["z"].value = 0.25
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert _node(page, "/objects/block").position[2] == 0.25


def test_a_twin_without_splats_or_cameras_is_shown_by_its_mesh(tmp_path: Path) -> None:
    run = run_with_twin(tmp_path / "run", splats=False)
    (run.stage_path("twin") / "cameras.npz").unlink()
    with Page(contents(run), port=0) as page:
        assert _node(page, "/objects/block/splats") is None
        assert _node(page, "/objects/block/mesh").visible
        assert page.checkboxes["splats"].disabled
        assert page.checkboxes["cameras"].disabled
        assert page.checkboxes["surroundings"].disabled
        assert _node(page, "/world").visible


def test_the_labs_known_twin_is_shown(tmp_path: Path, lab_capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a texture, and neither splats nor a folder for each object."""
    from dexloop.lab.known_twin import known_twin

    run = Run.create(tmp_path / "run")
    known_twin(lab_capture, run.stage_path("twin"))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with Page(contents(run), port=0) as page:
        assert _node(page, "/objects/cube/mesh").visible
        page.poses["cube"]["z"].value = page.poses["cube"]["z"].value + 0.05
        before = _node(page, "/objects/cube").position.copy()
        page.play()
        assert _node(page, "/objects/cube").position[2] < before[2] - 0.04


def test_without_viser_one_is_told_how_to_get_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(MissingPart, match=r"pip install 'dexloop\[view\]'"):
        Page(contents(run))


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", -1), ("127.0.0.1", 70000), ("203.0.113.1", 0)])
def test_where_nobody_can_listen_one_is_told(run: Run, host: str, port: int) -> None:
    with pytest.raises(InputError, match=r"--port takes|cannot listen"):
        Page(contents(run), host=host, port=port)
