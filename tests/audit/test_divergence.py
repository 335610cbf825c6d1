from __future__ import annotations

import numpy as np
import pytest

from dexloop.audit.divergence import FLOOR, divergences, scales
from dexloop.audit.predict import CHANNELS, Channels
from tests.audit.channels import SIZE_OF, SIZES, T, made, step


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_step_is_found_in_its_channel_at_its_time(channel: str):
    rng = np.random.default_rng(1)
    size = 8.0 * FLOOR[channel] * (SIZE_OF[channel] if channel == "effort" else 1.0)
    component = SIZES[channel] - 1
    real = made(1, rng, **{channel: step(channel, component, 1.4, size)})
    [found] = divergences(real, made(12, rng))
    assert found.channel == channel
    assert found.component == component
    assert found.t == pytest.approx(1.4, abs=0.021)
    assert not found.low <= found.real <= found.high
    assert 5.0 < found.sigmas < 11.0


def test_the_first_that_leaves_its_band_comes_first():
    rng = np.random.default_rng(2)
    late, early = step("joints", 0, 2.0, 0.1), step("force", 1, 0.8, 6.0)
    found = divergences(made(1, rng, joints=late, force=early), made(12, rng))
    assert [d.channel for d in found] == ["force", "joints"]
    assert [d.t for d in found] == pytest.approx([0.8, 2.0], abs=0.021)


def test_noise_alone_is_no_divergence():
    found = [divergences(made(1, rng), made(10, rng)) for rng in map(np.random.default_rng, range(40))]
    assert sum(map(len, found)) == 0


def test_a_noisy_sensor_is_given_its_noise():
    """Ten times what the simulation is at best off by, from moment to moment, but without bias."""
    rng = np.random.default_rng(3)
    real, worlds = made(1, rng), made(10, rng)
    noisy = {**real.values, "force": real.values["force"] + 5.0 * rng.normal(size=real.values["force"].shape)}
    assert divergences(Channels(T, noisy), worlds) == []
    spread = scales(Channels(T, noisy), worlds)["force"]
    np.testing.assert_allclose(spread, 5.0, rtol=0.3)


def test_what_lasts_too_short_a_time_proves_nothing():
    rng = np.random.default_rng(4)
    blink = step("pose", 0, 1.0, 0.2) - step("pose", 0, 1.06, 0.2)
    assert divergences(made(1, rng, pose=blink), made(10, rng)) == []
    longer = step("pose", 0, 1.0, 0.2) - step("pose", 0, 1.14, 0.2)
    assert [d.channel for d in divergences(made(1, rng, pose=longer), made(10, rng))] == ["pose"]


def test_worlds_that_differ_widely_allow_for_more():
    rng = np.random.default_rng(5)
    real = made(1, rng, pose=step("pose", 0, 1.0, 8 * FLOOR["pose"]))
    assert divergences(real, made(20, rng))
    assert not [d for d in divergences(real, made(20, rng, spread=6.0)) if d.channel == "pose"]


def test_efforts_that_nobody_measured_do_not_diverge():
    rng = np.random.default_rng(6)
    real = made(1, rng)
    blind = Channels(T, {**real.values, "effort": np.full_like(real.values["effort"], np.nan)})
    assert divergences(blind, made(10, rng)) == []
    assert np.isfinite(scales(blind, made(10, rng))["effort"]).all()
