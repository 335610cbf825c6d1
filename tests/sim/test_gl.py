import json

import pytest

from dexloop.sim import gl


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(gl, "_cache_file", lambda: tmp_path / "gl.json")
    return tmp_path / "gl.json"


def test_the_first_backend_that_draws_is_chosen_and_remembered(cache, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(gl, "candidates", lambda: ("egl", "osmesa"))
    monkeypatch.setattr(gl, "_try", lambda backend, _: "no such library" if backend == "egl" else None)
    found = gl.probe()
    assert found.backend == "osmesa"
    assert "egl: no such library" in found.message
    assert json.loads(cache.read_text()) == {"backend": "osmesa"}


def test_nothing_draws(cache, monkeypatch):
    monkeypatch.setattr(gl, "_try", lambda *_: "broken")
    found = gl.probe()
    assert found.backend is None
    assert "install libegl1" in found.message
    assert not cache.exists()


def test_a_wrong_choice_of_the_user_is_told_and_passed_over(cache, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    monkeypatch.setattr(gl.os, "environ", {**gl.os.environ})
    found = gl.probe()
    assert found.backend != "nonsense"
    assert "nonsense" in found.message


def test_the_probe_really_draws_here(cache):
    assert gl.probe().backend


def test_choosing_falls_back_and_says_so(cache, monkeypatch):
    environment = {**gl.os.environ, "MUJOCO_GL": "osmesa"}
    monkeypatch.setattr(gl.os, "environ", environment)
    monkeypatch.setattr(gl, "_chosen_by_us", False)
    monkeypatch.setattr(gl, "_try", lambda backend, _: None if backend == "egl" else "not installed")
    found = gl.choose()
    assert (found.backend, environment["MUJOCO_GL"]) == ("egl", "egl")
    assert "egl draws instead (osmesa: not installed)" in found.message


def test_what_worked_is_not_tried_again(cache, monkeypatch):
    cache.write_text('{"backend": "egl"}')
    monkeypatch.setattr(gl.os, "environ", {})
    monkeypatch.setattr(gl, "_try", lambda *_: pytest.fail("it was tried"))
    assert gl.choose().backend == "egl"


def test_without_any_backend_everything_else_goes_on(cache, monkeypatch):
    environment: dict[str, str] = {}
    monkeypatch.setattr(gl.os, "environ", environment)
    monkeypatch.setattr(gl, "_try", lambda *_: "broken")
    assert gl.choose().backend is None
    assert environment["MUJOCO_GL"] == "disabled"


def test_a_cache_that_is_damaged_is_no_cache(cache, monkeypatch):
    cache.write_text("[1, 2")
    assert gl._remembered() is None
