"""A scan becomes a twin."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import trimesh

from dexloop import cli
from dexloop.capture.plans import FreeMotion, Scan
from dexloop.capture.record import capture
from dexloop.core import se3
from dexloop.core.artifacts import Twin
from dexloop.core.camera import Camera
from dexloop.core.capture import Capture
from dexloop.core.errors import InputError
from dexloop.lab import Lab, LabCfg
from dexloop.report.twin import sides, twin_section
from dexloop.sim.shape import Mesh
from dexloop.twin import masks, stage
from dexloop.twin.cameras import CameraQuality, Cameras
from dexloop.twin.cfg import TwinCfg
from dexloop.twin.mesh import compare, mend, read
from dexloop.twin.stage import twin, twin_of_mesh
from dexloop.vision.splats import Splats, surroundings_of
from tests.twin import BOXES, path, shoot

QUICK = TwinCfg(frames=48, steps=600, texture_px=256, parts=8, surroundings=150)
LAB = LabCfg(object="meat_can", seed=5)


@pytest.fixture(scope="session")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return capture(Lab(LAB).rig(), [Scan()], tmp_path_factory.mktemp("scan") / "capture")


@pytest.fixture(scope="session")
def scanned(scan: Capture, tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return twin(scan, tmp_path_factory.mktemp("twin") / "twin", cfg=QUICK)


def test_the_surface_is_the_true_one(scanned: Twin) -> None:
    lab = Lab(LAB)
    model = mujoco.MjModel.from_xml_path(str(scanned.path / "scene.xml"))
    own = mend(read(scanned.path / "objects" / "meat_can" / "meat_can.obj", unit="m").mesh).mesh
    there = replace(own, vertices=se3.transform(se3.from_pose(model.qpos0[:7]), own.vertices))
    true = mend(lab.object.shape.visual).mesh
    true = Mesh(se3.transform(lab.truth().T_world_object, true.vertices), true.faces)
    found = compare(there, true)
    assert found.chamfer_m < 1.5e-3
    assert found.f_score > 0.95
    assert abs(found.volume_error) < 0.05


def test_splats_look_like_views_that_were_kept_back(scanned: Twin) -> None:
    about = scanned.header.meta["about"]["meat_can"]
    assert about["psnr_db"] > 27.0
    splats = Splats.load(scanned.path / "objects" / "meat_can" / "splats.ply")
    assert len(splats) == about["splats"] > 1000
    # In the object's own frame: about its middle.
    assert np.abs(np.median(splats.means, axis=0)).max() < 0.02


def test_surroundings_are_apart_from_the_object(scanned: Twin) -> None:
    around = surroundings_of(scanned)
    assert around is not None
    assert len(around) == scanned.header.meta["surroundings"]["splats"] > 1000
    assert scanned.header.meta["surroundings"]["psnr_db"] > 15.0
    model = mujoco.MjModel.from_xml_path(str(scanned.path / "scene.xml"))
    inside = np.linalg.norm(around.means - model.qpos0[:3], axis=1) < 0.02
    assert around.opacities[inside].sum() < 1.0


def test_the_object_stays_where_it_stands(scanned: Twin) -> None:
    model = mujoco.MjModel.from_xml_path(str(scanned.path / "scene.xml"))
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, int(0.5 / model.opt.timestep))
    assert np.linalg.norm(data.qpos[:3] - model.qpos0[:3]) < 5e-4


def test_the_report_shows_it(scanned: Twin) -> None:
    section = twin_section(scanned)
    assert section.count("data:image/png;base64") == 3
    for words in ("PSNR", "convex parts", "fit for simulation", "together"):
        assert words in section
    picture = sides(scanned, "meat_can")
    half = len(picture) // 2
    assert np.abs(picture[:half].astype(int) - picture[half:]).mean() > 1.0  # texture above, parts below


def test_two_objects_of_one_scan_have_each_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    camera = Camera.from_fov("phone", 320, 240, 0.85)
    views = tuple(shoot(T, camera, seed=k)[0] for k, T in enumerate(path(24)))
    quality = CameraQuality(24, 24, 24, 0.3, 0.3, 1e-4, 1e-3, 1.0, 15.0)
    found = Cameras(views, np.zeros((0, 3)), np.zeros((0, 3), np.uint8), np.zeros(3), quality, ())
    monkeypatch.setattr(stage, "_scan", lambda *_: SimpleNamespace(scene={"object": "box"}))
    monkeypatch.setattr(
        stage, "choose_frames", lambda *_, **__: SimpleNamespace(frames=(), camera_known=True, statuses=())
    )
    monkeypatch.setattr(stage, "locate", lambda *_, **__: found)
    monkeypatch.setattr(masks, "_FINE_CELLS", 60)
    monkeypatch.setattr(masks, "_TEXELS", 300)
    cfg = TwinCfg(steps=200, splats=4000, surroundings=0, faces=2000, texture_px=128, parts=4)
    made = stage.build(None, cfg=cfg).objects  # type: ignore[arg-type]
    assert [m.thing.name for m in made] == ["box", "object1"]
    for m, box in zip(made, BOXES, strict=True):
        # Pixels are 1.4 mm, and few steps leave a cap on the top; but nothing is cut off where one hides the other.
        assert m.volume_m3 == pytest.approx(np.prod(box.size), rel=0.25)
        there = se3.transform(se3.from_pose(np.asarray(m.thing.pose)), m.thing.shape.visual.vertices)
        for end in (np.min, np.max):
            np.testing.assert_allclose(end(there[:, :2], axis=0), end(box.corners()[:, :2], axis=0), atol=5e-3)
        assert m.settled.moved_m < 2e-3
        inside = np.abs(m.splats.means) < 0.5 * max(box.size) + 0.01
        assert inside.all(axis=1).mean() > 0.95  # none of the other's


def test_a_capture_without_a_scan_says_what_to_record(tmp_path: Path) -> None:
    recorded = capture(Lab(LAB).rig(), [FreeMotion(duration_s=0.5)], tmp_path / "capture")
    with pytest.raises(InputError, match="dexloop capture scan"):
        twin(recorded, tmp_path / "twin")
    assert not (tmp_path / "twin").exists()


@pytest.fixture
def broken_mug(tmp_path: Path) -> Path:
    """A cylinder in millimetres with a hole, and every other face turned."""
    made = trimesh.creation.cylinder(radius=40.0, height=90.0)
    faces = made.faces[3:].copy()
    faces[::2] = faces[::2, ::-1]
    file = tmp_path / "mug.obj"
    trimesh.Trimesh(made.vertices, faces, process=False).export(file)
    return file


def test_a_broken_mesh_in_millimetres_becomes_a_twin(broken_mug: Path, tmp_path: Path) -> None:
    made = twin_of_mesh(broken_mug, tmp_path / "twin", cfg=replace(QUICK, density_kg_m3=1000.0))
    volume = np.pi * 0.04**2 * 0.09
    assert made.header.meta["about"]["mug"]["volume_m3"] == pytest.approx(volume, rel=0.03)
    model = mujoco.MjModel.from_xml_path(str(made.path / "scene.xml"))
    assert model.body("mug").mass[0] == pytest.approx(1000.0 * volume, rel=0.03)
    assert twin_section(made).count("data:image/png;base64") == 1


def test_the_command_makes_a_twin_of_a_mesh(broken_mug: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["twin", "--mesh", str(broken_mug), "--unit", "mm", "--parts", "2", "--json"])
    assert ended.value.code == 0
    said = json.loads(capsys.readouterr().out)
    assert said["objects"] == ["mug"]
    assert Twin.open(broken_mug.with_name("mug_twin")).path == Path(said["twin"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name a run"),
        (["--mesh", "a.obj", "--capture", "b"], "not both"),
        (["--mesh", "missing.obj"], "missing.obj"),
    ],
)
def test_wrong_command_lines_get_one_clear_message(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["twin", *arguments])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err.replace("\n", " ")
