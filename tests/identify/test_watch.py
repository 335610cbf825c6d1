"""Where the tracker starts to look for a scanned object."""

from types import SimpleNamespace

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import InputError
from dexloop.identify import watch as module
from dexloop.identify.cfg import IdentifyCfg
from dexloop.identify.stage import _matched
from dexloop.identify.watch import watch
from dexloop.sim.scene import Scene
from tests.identify.benches import Push, model_file
from tests.twin.small import small_twin


class Seen(Exception):
    pass


def start(tmp_path, monkeypatch, said: dict, **about) -> np.ndarray | None:
    """Returns the pose that the tracker is started with."""
    scene = Scene.open(model_file(tmp_path, Push()), max_delay_s=0.0)
    told = []

    def track(*_args, T_start, **_kwargs):
        told.append(T_start)
        raise Seen

    monkeypatch.setattr(module, "track_recording", track)
    monkeypatch.setattr(module, "shape_of", lambda *_: None)
    recording = SimpleNamespace(name="push", videos={"front": None}, scene=said)
    with pytest.raises(Seen):
        watch(scene, recording, lambda *_: None, **about)
    return told[0]


OWN = se3.from_pose(np.array([0.0, 0.0, 0.03, 1.0, 0.0, 0.0, 0.0]))
THEN = se3.from_pose(np.array([0.1, 0.2, 0.05, np.cos(0.4), 0.0, 0.0, np.sin(0.4)]))
MOVED = se3.exp(np.array([0.04, -0.02, 0.0, 0.0, 0.0, 0.5]))


def test_a_scanned_object_moves_as_the_rig_says(tmp_path, monkeypatch):
    found = start(tmp_path, monkeypatch, {"T_world_object_rough": MOVED @ THEN}, splats=SimpleNamespace(), seen_at=THEN)
    np.testing.assert_allclose(found, MOVED @ OWN, atol=1e-9)


@pytest.mark.parametrize(("said", "then"), [({}, THEN), ({"T_world_object_rough": THEN}, None)])
def test_a_rig_that_did_not_say_leaves_it_where_it_was_scanned(tmp_path, monkeypatch, said, then):
    found = start(tmp_path, monkeypatch, said, splats=SimpleNamespace(), seen_at=then)
    np.testing.assert_allclose(found, OWN, atol=1e-9)


def test_a_given_shape_has_the_rigs_axes(tmp_path, monkeypatch):
    assert start(tmp_path, monkeypatch, {"T_world_object_rough": THEN}) is None


def test_a_recorded_pose_alone_says_nothing_about_a_scanned_twin(tmp_path):
    """Its axes are the rig's, and where they lie in the scan nobody knows."""
    twin = small_twin(tmp_path / "twin")
    assert twin.header.meta["geometry"] == "scanned"
    pose = SimpleNamespace(kind="pose", about="object")
    recording = SimpleNamespace(name="push", videos={}, streams={"pose": pose})
    with pytest.raises(InputError, match="'push' has a pose but no video"):
        _matched(None, recording, IdentifyCfg(), set(), lambda *_: None, twin)
