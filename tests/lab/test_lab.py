"""The lab is what it says it is, and keeps its truth to itself."""

import itertools
import json
import zipfile

import numpy as np
import pytest

from dexloop.core import se3
from dexloop.core.errors import HaltError, InputError, UnknownName
from dexloop.lab import Lab, LabCfg
from dexloop.lab.objects import OBJECTS, make
from dexloop.lab.rig import RATE_HZ
from dexloop.lab.truth import draw
from dexloop.rig.protocol import Operator, Rig

QUIET = {"video": False, "tracker": True}


@pytest.fixture
def rig():
    rig = Lab(LabCfg(object="cube", seed=1, **QUIET)).rig()
    rig.connect()
    yield rig
    rig.disconnect()


def numbers(value) -> list[float]:
    """All numbers in nested JSON values and arrays."""
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers(v)]
    if isinstance(value, list | tuple):
        return [n for v in value for n in numbers(v)]
    if isinstance(value, np.ndarray):
        return value.astype(np.float64).ravel().tolist()
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def secrets(truth) -> np.ndarray:
    """The truth's numbers that are not plain 0 or 1, as a pose has."""
    found = np.array(numbers(truth.to_json()))
    return found[~np.isclose(found, 0.0) & ~np.isclose(np.abs(found), 1.0)]


def test_the_seed_draws_inside_the_promised_ranges():
    drawn = [draw(make(name), seed) for name in OBJECTS for seed in range(40)]
    nominal = [make(name).mass_kg for name in OBJECTS for _ in range(40)]
    ratio = np.array([t.mass_kg for t in drawn]) / nominal
    assert 0.6 <= ratio.min() < 0.7
    assert 1.3 < ratio.max() <= 1.4
    for values, low, high in [
        ([t.table_friction for t in drawn], 0.15, 0.9),
        ([t.finger_friction for t in drawn], 0.15, 0.9),
        ([t.actuator_gain for t in drawn], 0.8, 1.2),
        ([t.effort_scale for t in drawn], 0.97, 1.03),
        ([t.delay_s for t in drawn], 0.0, 0.04),
        ([t.clock_offset_s for t in drawn], -0.05, 0.05),
    ]:
        span = high - low
        assert low <= min(values) < low + 0.1 * span
        assert high - 0.1 * span < max(values) <= high


def test_a_seed_is_a_lab_and_another_seed_is_another():
    a, b, c = (Lab(LabCfg(seed=s)).truth().to_json() for s in (3, 3, 4))
    assert a == b
    assert a["mass_kg"] != c["mass_kg"]


def test_true_bodies_are_possible():
    for name in OBJECTS:
        for seed in range(10):
            principal = np.linalg.eigvalsh(draw(make(name), seed).inertia)
            assert principal[0] > 0
            assert principal[0] + principal[1] > principal[2]


def test_the_rig_is_a_rig_with_an_operator(rig):
    assert isinstance(rig, Rig)
    assert isinstance(rig.operator, Operator)


def test_features_are_readable_while_disconnected():
    features = Lab(LabCfg(object="cube")).rig().features
    assert {s.name for s in features.streams} == {
        "joint_position", "joint_velocity", "joint_effort", "joint_command", "touch", "object_pose",
    }  # fmt: skip
    assert [v.name for v in features.videos] == ["front"]


def test_nothing_public_of_the_rig_holds_the_truth():
    lab = Lab(LabCfg(object="meat_can", seed=8))
    rig = lab.rig()
    hidden = secrets(lab.truth())
    public = [getattr(rig, name) for name in dir(rig) if not name.startswith("_")]
    told = [n for value in public if not callable(value) for n in numbers(_plain(value))]
    assert told
    assert not np.isclose(np.array(told)[:, None], hidden[None], rtol=1e-6, atol=0).any()
    assert not any("truth" in name.lower() for name in dir(rig))
    operator = [name for name in dir(rig.operator) if not name.startswith("_")]
    assert set(operator) == {"scan", "demonstrate", "place_object"}


def _plain(value):
    """Frozen dataclasses as nested plain values."""
    if hasattr(value, "__dataclass_fields__"):
        return {k: _plain(getattr(value, k)) for k in value.__dataclass_fields__}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def test_a_capture_holds_no_number_of_the_truth(lab_capture):
    hidden = secrets(Lab.of(lab_capture, seed=4).truth())
    assert len(hidden) > 40
    told = numbers(json.loads((lab_capture.path / "artifact.json").read_text()))
    for file in lab_capture.path.rglob("*.npz"):
        with np.load(file) as arrays:
            told += [n for name in arrays.files for n in numbers(arrays[name])]
    told = np.unique(np.array(told))
    assert len(told) > 10_000
    near = np.clip(np.searchsorted(told, hidden), 1, len(told) - 1)
    distance = np.minimum(np.abs(told[near] - hidden), np.abs(told[near - 1] - hidden)) / np.abs(hidden)
    # Measured values lie densely, so one may come near by chance; none may be the number itself.
    assert distance.min() > 1e-12
    texts = [f.read_text() for f in lab_capture.path.rglob("*.json")]
    assert not any(f"{value:.6g}" in text for value in hidden for text in texts if abs(value) > 1e-3)


def test_a_capture_is_of_plain_files(lab_capture):
    for file in lab_capture.path.rglob("*"):
        if file.suffix == ".npz":
            with zipfile.ZipFile(file) as archive:
                assert all(name.endswith(".npy") for name in archive.namelist())
        elif file.is_file():
            assert file.suffix in (".json", ".mp4")


def test_sensors_are_as_noisy_as_the_truth_says(rig):
    truth = Lab(LabCfg(object="cube", seed=1)).truth()
    rig.sleep(1.0)
    rig.observe()
    rig.sleep(2.0)
    seen = rig.observe().samples
    position = np.diff(seen["joint_position"].value, axis=0).std() / np.sqrt(2)
    assert position == pytest.approx(truth.encoder_noise, rel=0.1)
    pose = np.diff(seen["object_pose"].value[:, :3], axis=0).std() / np.sqrt(2)
    assert pose == pytest.approx(truth.tracker_noise[0], rel=0.2)
    limits = np.array([b for _, b in rig.features.streams[2].limits])
    effort = (np.diff(seen["joint_effort"].value, axis=0).std(axis=0) / np.sqrt(2) / limits).mean()
    assert effort == pytest.approx(truth.effort_noise, rel=0.15)


def test_the_effort_sensor_has_its_scale(rig):
    truth = Lab(LabCfg(object="cube", seed=1)).truth()
    rig.sleep(1.0)
    rig.observe()
    true = []
    for _ in range(2000):
        rig.sleep(1 / RATE_HZ)
        true.append(rig._bench.data.qfrc_actuator[rig._bench._dofs[2]])  # the wrist's z carries the hand
    told = rig.observe().samples["joint_effort"].value[:, 2]
    assert told.mean() / np.mean(true) == pytest.approx(truth.effort_scale, abs=0.01)
    assert abs(np.mean(true)) > 3.0


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_the_delay_is_as_the_truth_says(seed):
    lab = Lab(LabCfg(object="cube", seed=seed, **QUIET))
    rig = lab.rig()
    rig.connect()
    rig.sleep(0.2)
    rig.observe()
    home = np.array(rig.features.command.home)
    rig.send(home + np.eye(len(home))[0] * 0.02)
    rig.sleep(0.3)
    seen = rig.observe().samples
    sent = seen["joint_command"].t[0]  # a command is stamped when it is sent
    effort = seen["joint_effort"].value[:, 0]
    at = seen["joint_effort"].t[np.argmax(np.abs(effort) > 20.0)]
    assert at - sent == pytest.approx(lab.truth().delay_s, abs=1.5 / RATE_HZ)


def test_the_cameras_clock_is_ahead_by_the_truths_offset():
    """What the tracker saw at a stamp is where the object was at the stamp minus the offset."""
    lab = Lab(LabCfg(object="cube", seed=2, **QUIET))
    rig = lab.rig()
    rig.connect()
    bench, speed = rig._bench, 0.5
    bench.model.geom_friction[:, 0] = 0.0
    bench._update_friction = lambda: None
    bench.model.pair_friction[:, :2] = 1e-3
    bench.data.qvel[bench._twist] = speed
    start = bench.data.qpos[bench._pose]
    rig.sleep(0.4)
    seen = rig.observe().samples["object_pose"]
    lag = seen.t - (seen.value[:, 0] - start) / speed
    assert lag.mean() == pytest.approx(lab.truth().clock_offset_s, abs=1e-3)
    assert lag.std() < 2e-3, "noise of tracker and stamps, and nothing else"


def test_stamps_alone_do_not_tell_the_clock_offset(lab_capture):
    """Camera and robot are not triggered together: for any offset there is a phase that explains the stamps."""
    truth = Lab.of(lab_capture, seed=4).truth()
    stamps = lab_capture.recording("push").stream("object_pose").t
    period = 1 / 250
    residue = (stamps - truth.clock_offset_s) % period
    assert np.std(residue) > 0.2 * period, "they do not fall on the robot's ticks"


def test_a_capture_does_not_hold_the_seed(lab_capture):
    text = (lab_capture.path / "artifact.json").read_text()
    assert '"seed": null' in text
    assert "seed" not in lab_capture.recording("push").scene["lab"]
    with pytest.raises(InputError, match="another seed"):
        Lab.of(lab_capture, seed=5)


@pytest.mark.parametrize("name", ["cube", "meat_can"])
def test_the_object_coasts_as_coulomb_says(name):
    lab = Lab(LabCfg(object=name, seed=6, **QUIET))
    rig = lab.rig()
    bench, truth, speed = rig._bench, lab.truth(), 0.5
    bench.data.qvel[bench._twist] = speed
    before = bench.data.qpos[bench._pose]
    bench.advance(1.5)
    way = bench.data.qpos[bench._pose] - before
    # Between all-sliding and all-sticking friction; the slow end of the slide is the stickier.
    slides = speed**2 / (2 * truth.table_friction * 9.81)
    assert 0.9 * slides / truth.stiction < way < 1.05 * slides


@pytest.mark.parametrize("name", ["cube", "meat_can", "cookie_tin"])
def test_a_sliding_object_stays_on_the_table(name):
    """The table bears its weight evenly, however fast it slides: it does not hop."""
    import mujoco

    lab = Lab(LabCfg(object=name, seed=3, **QUIET))
    bench = lab.rig()._bench
    bench.data.qvel[bench._twist] = 0.6
    force, bearing = np.zeros(6), []
    for k in range(80):
        bench.advance(0.001)
        if k > 30 and bench.data.qvel[bench._twist] > 0.05:
            total = 0.0
            for i, contact in enumerate(bench.data.contact):
                if "table" in (bench.model.geom(contact.geom[0]).name, bench.model.geom(contact.geom[1]).name):
                    mujoco.mj_contactForce(bench.model, bench.data, i, force)
                    total += force[0]
            bearing.append(total / (lab.truth().mass_kg * 9.81))
    assert len(bearing) > 5
    assert np.mean(bearing) == pytest.approx(1.0, abs=0.15)
    assert np.std(bearing) < 0.2


def test_force_sensors_read_what_acts_on_average():
    """However commands and steps fall: a wrist that speeds up evenly needs the force that its inertia says."""
    lab = Lab(LabCfg(object="cube", seed=3, **QUIET))
    rig = lab.rig()
    bench, truth = rig._bench, lab.truth()
    rig.connect()
    home = np.array(rig.features.command.home)
    x = rig.features.command.joints.index("wrist_x")
    acceleration, t = 1.5, 0.0
    read, acted = [], []
    for _ in range(75):
        t += 0.004
        home[x] += acceleration * t * 0.004
        rig.send(home)
        before = bench.data.qvel[bench._dofs[x]]
        rig.sleep(0.004)
        read.append(rig.observe().samples["joint_effort"].value[-1, x] / truth.effort_scale)
        acted.append((bench.data.qvel[bench._dofs[x]] - before) / 0.004)
    late = slice(50, None)  # the servo has caught up by then
    speed = acceleration * (0.004 * np.arange(75))[late].mean()
    mujoco = pytest.importorskip("mujoco")
    inertia = np.zeros((bench.model.nv, bench.model.nv))
    mujoco.mj_fullM(bench.model, bench.data, inertia)
    dof = bench._dofs[x]
    friction = bench.model.dof_frictionloss[dof] + bench.model.dof_damping[dof] * speed
    expected = inertia[dof, dof] * np.mean(acted[late]) + friction
    noise = truth.effort_noise * 150.0 / np.sqrt(25)
    assert np.mean(read[late]) == pytest.approx(expected, rel=0.05, abs=3 * noise)


def test_each_object_has_its_own_secrets():
    a, b = (draw(make(name), 3) for name in ("cube", "meat_can"))
    assert a.table_friction != b.table_friction
    assert a.delay_s != b.delay_s


@pytest.mark.parametrize("robot", ["dex16@wrist", "gripper@wrist"])
def test_the_fingertips_feel_the_whole_push(robot):
    """Nothing but sensed surfaces, with the hidden friction, touches the object."""
    import mujoco

    from dexloop.capture.bench import picture
    from dexloop.capture.motions import plan_motion
    from dexloop.capture.plans import Push

    lab = Lab(LabCfg(object="meat_can", robot=robot, seed=1, **QUIET))
    rig = lab.rig()
    rig.connect()
    motion = plan_motion(Push(speed_m_s=0.2, distance_m=0.04), picture(rig.features), RATE_HZ)
    for q in motion.approach:
        rig.send(q)
        rig.sleep(1 / RATE_HZ)
    bench, force, touched, felt = rig._bench, np.zeros(6), 0.0, 0.0
    can = bench.model.body("meat_can").id
    for q in motion.action:
        rig.send(q)
        rig.sleep(1 / RATE_HZ)
        for i, contact in enumerate(bench.data.contact):
            bodies = [int(bench.model.geom_bodyid[g]) for g in contact.geom]
            if can in bodies and 0 not in bodies:
                mujoco.mj_contactForce(bench.model, bench.data, i, force)
                touched += force[0]
        felt += bench.data.sensordata[bench._touch].sum()
    assert touched > 50.0
    assert felt == pytest.approx(touched, rel=0.05)


def test_the_object_weighs_what_the_truth_says(rig):
    truth = Lab(LabCfg(object="cube", seed=1)).truth()
    body = rig._bench.model.body("cube")
    assert body.mass == pytest.approx(truth.mass_kg)
    np.testing.assert_allclose(body.ipos, truth.com)


def test_a_stopped_robot_stays_stopped_until_someone_connects_again(rig):
    home = np.array(rig.features.command.home)
    rig.sleep(0.1)
    rig.stop()
    with pytest.raises(HaltError, match="was stopped"):
        rig.send(home)
    rig.sleep(0.5)
    moved = np.ptp(rig.observe().samples["joint_position"].value[-100:], axis=0)
    assert moved.max() < 0.01
    rig.connect()
    rig.send(home)


def test_a_command_that_is_no_number_stops_the_robot(rig):
    home = np.array(rig.features.command.home)
    with pytest.raises(HaltError, match="not finite"):
        rig.send(home * np.nan)
    with pytest.raises(HaltError, match="was stopped"):
        rig.send(home)


def test_commands_are_held_inside_the_limits_and_motors_at_their_torque(rig):
    command = rig.features.command
    rig.send(np.array(command.home) + 100.0)
    rig.sleep(1.0)
    seen = rig.observe().samples
    upper = np.array(command.position_limits)[:, 1]
    np.testing.assert_allclose(seen["joint_command"].value[-1], upper)
    assert (np.abs(seen["joint_effort"].value) <= np.array(command.effort_limits) * (1 + 1e-9)).all()


def test_wrong_calls():
    rig = Lab(LabCfg(**QUIET)).rig()
    with pytest.raises(InputError, match="not connected"):
        rig.observe()
    rig.connect()
    with pytest.raises(InputError, match="22 joint positions"):
        rig.send(np.zeros(3))
    with pytest.raises(UnknownName, match="there is light_bulb, cube"):
        Lab(LabCfg(object="teapot"))
    with pytest.raises(InputError, match="dex16@wrist"):
        Lab(LabCfg(robot="dex16"))


def test_the_camera_sees_the_board_about_where_it_was_calibrated():
    from dexloop.vision.board import Board

    lab = Lab(LabCfg(object="cube", seed=2))
    rig = lab.rig()
    rig.connect()
    rig.sleep(0.05)
    picture = rig.observe().frames["front"].image[-1]
    rig.disconnect()
    camera = rig.features.videos[0].camera
    view = Board.from_json(rig.features.scene["board"]).detect(picture, camera)
    assert view is not None
    expected = se3.inverse(camera.T_world_camera) @ np.array(rig.features.scene["T_world_board"])
    error = se3.log(se3.inverse(expected) @ view.T_camera_board)
    assert 1e-5 < np.linalg.norm(error[:3]) < 0.02, "off by the calibration's error, and by no more"


def test_a_picture_shows_the_moment_it_was_taken_however_late_and_whoever_else_looked():
    """Pictures are drawn when somebody looks; nothing else may depend on who does."""

    def filmed(*, at_once: bool) -> tuple[np.ndarray, np.ndarray]:
        rig = Lab(LabCfg(object="cube", seed=2, picture_px=(160, 120))).rig()
        rig.connect()
        seen = []
        for k in range(3):
            rig.sleep(0.05)
            seen.append(rig.observe())
            rig._bench.data.qpos[rig._bench._pose] += 0.02 * (k + 1)  # the object is elsewhere each time
            if at_once:
                assert seen[-1].frames["front"].image.shape[1:] == (120, 160, 3)
        pictures = np.concatenate([s.frames["front"].image for s in seen])
        rig.disconnect()
        return pictures, seen[-1].samples["joint_position"].value

    late, at_once = filmed(at_once=False), filmed(at_once=True)
    assert np.abs(np.diff(late[0].astype(int), axis=0)).max() > 50
    for a, b in zip(late, at_once, strict=True):
        assert np.array_equal(a, b)


def test_the_operator_puts_the_object_back(rig):
    start = rig._bench.data.qpos[rig._bench._pose : rig._bench._pose + 3].copy()
    rig._bench.data.qpos[rig._bench._pose] += 0.1
    before = rig.now()
    rig.operator.place_object()
    rig.sleep(0.1)
    back = rig._bench.data.qpos[rig._bench._pose : rig._bench._pose + 3]
    np.testing.assert_allclose(back, start, atol=0.003)
    assert rig.now() == pytest.approx(before + 0.1)


def test_a_scan_goes_around_and_sees_the_object(lab_capture):
    from dexloop.vision.video import read_video

    scan = lab_capture.recording("scan")
    frames = read_video(scan.video("phone").path)
    assert len(frames) == 8
    assert scan.videos["phone"].camera.T_world_camera is None, "nobody knows where a hand-held camera is"
    differences = [np.abs(a.astype(int) - b).mean() for a, b in itertools.pairwise(frames)]
    assert min(differences) > 5.0


def test_the_demonstrators_truth_is_where_the_film_shows_the_hand():
    """Skin is where the truth's landmarks project, and nowhere near in a frame of another moment."""
    from dexloop.lab.human import landmarks

    lab = Lab(LabCfg(object="cube", seed=3))
    info, frames = lab.rig().operator.demonstrate(duration_s=2.0, fps=6.0)
    pictures = [f.image[0].astype(int) for f in frames]
    points = landmarks(lab.demonstration(duration_s=2.0, fps=6.0))

    def skin(k: int, picture: np.ndarray) -> float:
        uv = np.rint(info.camera.project_world(points[k])).astype(int)
        inside = (uv >= 0).all(axis=1) & (uv < [info.camera.width, info.camera.height]).all(axis=1)
        rgb = picture[uv[inside, 1], uv[inside, 0]]
        return float(np.mean((rgb[:, 0] > rgb[:, 1] + 12) & (rgb[:, 1] > rgb[:, 2]) & (rgb[:, 0] > 90)))

    right = np.mean([skin(k, p) for k, p in enumerate(pictures)])
    wrong = np.mean([skin(k, pictures[-1]) for k in range(6)])
    assert right > 0.8
    assert wrong < right - 0.2


def test_each_session_has_noise_of_its_own_and_the_same_truth():
    lab = Lab(LabCfg(object="cube", seed=1, **QUIET))
    seen = []
    for session in (0, 0, 1):
        rig = lab.rig(session)
        rig.connect()
        rig.sleep(0.1)
        seen.append(rig.observe().samples["joint_position"].value)
        assert rig._bench.model.body("cube").mass == pytest.approx(lab.truth().mass_kg)
    np.testing.assert_array_equal(seen[0], seen[1])
    assert np.abs(seen[2] - seen[0]).max() > 1e-5
    np.testing.assert_allclose(seen[2].mean(axis=0), seen[0].mean(axis=0), atol=2e-4)


def test_the_operator_puts_the_object_beside_its_mark(rig):
    bench, mark = rig._bench, Lab(LabCfg(object="cube", seed=1)).truth().T_world_object
    rig.operator.place_object((0.03, -0.02, 0.4))
    there = se3.from_pose(bench.data.qpos[bench._pose : bench._pose + 7])
    # It is turned where it stands, not about the world's origin, and stands on the table.
    np.testing.assert_allclose(there[:3, 3] - mark[:3, 3], [0.03, -0.02, 0.0], atol=2.5e-3)
    np.testing.assert_allclose(se3.log(se3.from_rt(there[:3, :3] @ mark[:3, :3].T, np.zeros(3)))[3:], [0, 0, 0.4],
                               atol=0.04)  # fmt: skip
