from __future__ import annotations

from dexloop.report.deploy import deploy_section, gate_words


def test_every_trial_has_its_line(lab_trials):
    section = deploy_section(lab_trials.episodes)
    for number, verdict in lab_trials.verdicts.items():
        assert f"<td>{number}" in section
        assert f">{verdict}</td>" in section
    assert "(pilot)" in section
    load = lab_trials.episodes.header.meta["load"]
    assert f"{load['mass_kg']:.3f} kg" in section


def test_the_gate_tells_stops_first_and_counts():
    slow = {"action": "slow", "reasons": ["joint jerk"], "count": 40}
    rare = [{"action": "slow", "reasons": [f"r{k}"], "count": 10} for k in range(5)]
    stop = {"action": "stop", "reasons": ["object <dropped>"], "count": 1}
    words = gate_words([slow, *rare, stop])
    assert words.startswith("stop: object &lt;dropped&gt; (1)")
    assert "slow: joint jerk (40)" in words
    assert gate_words([]) == "let everything pass"
