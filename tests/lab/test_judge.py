from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dexloop.lab import Lab, LabCfg
from dexloop.lab.judge import Judge
from dexloop.lab.rig import LabRig


@pytest.fixture
def lab_and_rig() -> tuple[Lab, LabRig]:
    lab = Lab(LabCfg(object="cube", seed=3, video=False))
    rig = lab.rig()
    rig.connect()
    return lab, rig


def raise_hand(rig: LabRig, by_m: float) -> None:
    command = rig.features.command
    assert command is not None
    target = np.array(command.home)
    up = command.joints.index("wrist_z")
    for step in np.linspace(0.0, by_m, 60):
        target[up] = command.home[up] + step
        rig.send(target)
        rig.sleep(0.004)
    rig.sleep(0.3)


def test_an_object_that_stays_on_the_table_was_missed(lab_and_rig: tuple[Lab, LabRig]):
    lab, rig = lab_and_rig
    judge = lab.judge(rig)
    assert judge.verdict() == "missed"
    judge.gripped()
    raise_hand(rig, 0.1)
    assert judge.verdict() == "missed"
    assert judge.slip_m == pytest.approx(0.1, abs=0.01)
    assert judge.grip_n == 0.0


def test_what_is_pulled_away_has_slipped_or_was_dropped(lab_and_rig: tuple[Lab, LabRig]):
    """Pulled up along with the hand it is held; pulled aside it slips; let go it is dropped."""
    lab, rig = lab_and_rig
    truth, judge = lab.truth(), lab.judge(rig)
    judge.gripped()
    weight = truth.mass_kg * 9.81
    # Rise by about 10 cm: pull for a while, then carry the weight, and brake.
    for factor, duration in ((1.5, 0.2), (0.5, 0.2)):
        judge.push(np.array([0.0, 0.0, factor * weight]))
        rig.sleep(duration)
    judge.push(np.array([0.0, 0.0, weight]))
    rose = judge.highest_m - truth.T_world_object[2, 3]
    raise_hand(rig, rose)
    assert rose > 0.05
    assert judge.verdict() == "slipped"  # it was ahead of the hand by centimetres
    judge.slip_m = 0.0
    assert judge.verdict() == "held"
    judge.push(np.zeros(3))
    rig.sleep(0.6)
    assert judge.verdict() == "dropped"


def test_a_hand_that_presses_hard_enough_crushes(lab_and_rig: tuple[Lab, LabRig]):
    """The grip force is half of what presses between hand and object, however briefly it was highest."""
    lab, rig = lab_and_rig
    bench = rig._bench
    judge = Judge(bench, replace(lab.object, crush_force_n=2.0))
    palm = bench.data.site(bench.embodiment.palm)
    # The cube is put before the palm and pulled towards it, by a force that is known.
    bench.data.qpos[bench._pose : bench._pose + 3] = palm.xpos + palm.xmat.reshape(3, 3)[:, 2] * 0.05
    away = -palm.xmat.reshape(3, 3)[:, 2]
    judge.push(6.0 * away + np.array([0.0, 0.0, lab.truth().mass_kg * 9.81]))
    rig.sleep(0.15)
    assert judge.grip_n > 2.0
    assert judge.verdict() == "crushed"
