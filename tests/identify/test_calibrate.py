import numpy as np
import pytest

from dexloop.identify.calibrate import calibrate, is_free_motion
from dexloop.sim.scene import Scene
from tests.identify.benches import (
    COMMAND_S,
    FINE_S,
    Arm,
    Push,
    happen,
    model_file,
    pose_stream,
    ramp,
    robot_streams,
    write,
)

TRUTH = Arm(gain=1.2, damping=0.8, friction=1.4, armature=1.3)
DELAY_S, EFFORT_SCALE = 0.010, 1.04


def sweep() -> np.ndarray:
    """Returns targets of both joints that swing faster and faster."""
    t = np.arange(0.0, 1.6, COMMAND_S)
    swell = np.minimum(t / 0.2, 1.0)
    return np.stack([0.4 * np.sin(9.0 * t * (0.6 + t)), 0.5 * np.sin(11.0 * t * (0.7 + t))], axis=1) * swell[:, None]


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arm")
    motion = happen(TRUTH, sweep(), delay_s=DELAY_S)
    streams = robot_streams(motion, effort_scale=EFFORT_SCALE, place_sd=2e-4)
    scene = Scene.open(model_file(folder, Arm()), max_delay_s=0.0)
    return calibrate(scene, [write(folder, {"free": streams}).recording()])


def found(calibration, name: str) -> tuple[float, float, float]:
    """Returns the value and its 95 % interval."""
    at = calibration.problem.where(name)
    u = next(u for u in calibration.unknowns if u.name == name)
    sd = np.sqrt(np.diag(calibration.covariance))[at]
    return tuple(float(u.value(calibration.mean[at] + k * sd)[0]) for k in (0.0, -1.96, 1.96))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("name", "truth", "within"),
    [
        ("actuator.gain", TRUTH.gain, 0.04),
        ("actuator.damping", TRUTH.damping, 0.04),
        ("joint.friction", TRUTH.friction, 0.1),
        ("gain.joint_effort", EFFORT_SCALE, 0.01),
    ],
)
def test_what_was_planted_is_found(calibration, name, truth, within):
    value, low, high = found(calibration, name)
    assert value == pytest.approx(truth, rel=within)
    assert low <= truth <= high


def test_the_delay_is_found_to_half_a_millisecond(calibration):
    assert found(calibration, "actuator.delay")[0] == pytest.approx(DELAY_S, abs=5e-4)


def test_the_armature_is_that_of_the_models_own_steps(calibration):
    """Implicit steps of length h add h * kv to what a servo seems to move; the model's are longer than reality's."""
    added = (0.002 - FINE_S) * Arm.KV * TRUTH.damping / Arm.ARMATURE
    assert added < 0.05
    assert found(calibration, "joint.armature")[0] == pytest.approx(TRUTH.armature - added, rel=0.04)


def test_a_free_motion_is_told_from_a_push(tmp_path):
    motion = happen(Push(), ramp(0.3))
    alone = write(tmp_path / "a", {"free": robot_streams(motion)}).recording()
    pushing = write(tmp_path / "b", {"push": [*robot_streams(motion), pose_stream(motion)]}).recording()
    assert is_free_motion(alone)
    assert not is_free_motion(pushing)
