from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="policies need torch")
pytest.importorskip("safetensors", reason="policies need safetensors")

import torch
from safetensors.torch import save_file

from dexloop.core.artifact import save_arrays, writing
from dexloop.core.artifacts import Policy
from dexloop.core.errors import InputError
from dexloop.core.status import Level, Status
from dexloop.policy.bundle import Action, Brain, open_policy, save_policy
from dexloop.policy.contract import Contract, Terms
from dexloop.policy.network import Network
from tests.policy.planted import ball, looked_at, sealed

POINTS = {"ball": ball(0.04), "file": ball(0.05)}  # a name that NPZ files would not take as one of an array


@pytest.fixture(scope="module")
def network(contract: Contract) -> Network:
    torch.manual_seed(0)
    return Network(contract, 32)


@pytest.fixture(scope="module")
def saved(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    out = tmp_path_factory.mktemp("policy") / "6_train"
    status = Status(Level.WARN, "learned_little", "learned little", "Train longer.")
    return save_policy(out, network, points=POINTS, training={"epochs": 3}, seed=7, status=status)


@pytest.fixture
def copied(saved: Policy, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved.path, tmp_path / "copy"))


def rewritten(contract: Contract, weights: dict, out: Path, metadata: dict[str, str] | None = None) -> Path:
    """An artefact whose own hashes are right, whatever is in it."""
    with writing(out, Policy) as draft:
        said = {"contract": contract.hash, "hidden": "32", **(metadata or {})}
        save_file(weights, draft.folder / "weights.safetensors", metadata=said)
        (draft.folder / "contract.json").write_text(json.dumps(contract.to_json()))
        save_arrays(draft.folder / "points.npz", names=np.array(["ball"]), points=ball(0.04)[None])
    return out


def same(a: Action, b: Action) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in vars(a))


def test_what_is_opened_acts_as_what_was_saved_bit_by_bit(network: Network, saved: Policy, terms: Terms) -> None:
    before, after = Brain(network, POINTS), open_policy(saved.path)
    assert after.contract == network.contract
    assert list(after.points) == ["ball", "file"]
    for name, points in POINTS.items():
        np.testing.assert_array_equal(after.points[name], points)
        seen = replace(looked_at(terms, 20), points=points)
        assert same(before.act(seen), after.act(seen))
    assert same(open_policy(saved).act(seen), after.act(seen))


def test_the_artefact_says_how_the_policy_came_about(saved: Policy, contract: Contract) -> None:
    assert saved.header.meta["training"] == {"epochs": 3}
    assert saved.header.meta["objects"] == ["ball", "file"]
    assert saved.header.meta["contract"] == contract.hash
    assert saved.header.seed == 7
    assert saved.status.code == "learned_little"
    assert set(saved.header.files) == {"weights.safetensors", "contract.json", "points.npz"}


def test_actions_are_poses_targets_in_limits_forces_and_phases(network: Network, terms: Terms) -> None:
    brain = Brain(network, POINTS)
    action = brain.act(looked_at(terms, 300))
    R = action.palm[:, :3, :3]
    np.testing.assert_allclose(R @ np.swapaxes(R, 1, 2), np.broadcast_to(np.eye(3), R.shape), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(R), 1.0)
    low, high = np.array(terms.hand_limits).T
    assert ((action.hand >= low) & (action.hand <= high)).all()
    assert (action.force >= 0).all()
    np.testing.assert_allclose(action.probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(action.probabilities.argmax(axis=1), action.phase)
    assert [getattr(action, n).shape for n in vars(action)] == [(300, 4, 4), (300, 16), (300, 4), (300,), (300, 5)]


def test_a_batch_is_its_rows(network: Network, terms: Terms) -> None:
    brain, seen = Brain(network, POINTS), looked_at(terms, 8)
    whole = brain.act(seen)
    for k in range(8):
        one = brain.act(replace(seen, **{name: value[k : k + 1] for name, value in seen.fields().items()}))
        np.testing.assert_allclose(one.palm[0], whole.palm[k], atol=1e-5)
        np.testing.assert_allclose(one.force[0], whole.force[k], atol=1e-5)


def test_points_are_encoded_once_for_an_object(network: Network, terms: Terms, monkeypatch: pytest.MonkeyPatch) -> None:
    brain, seen, calls = Brain(network, POINTS), looked_at(terms, 2), []
    encode = network.encode
    monkeypatch.setattr(network, "encode", lambda points: calls.append(1) or encode(points))
    small = brain.act(seen)
    brain.act(replace(seen, points=seen.points.copy()))
    assert len(calls) == 1
    other = 2 * seen.points
    large = brain.act(replace(seen, points=other))
    assert len(calls) == 2
    assert not same(small, large)
    other /= 2  # the same array, changed in place, is not the same object
    assert same(brain.act(replace(seen, points=other)), small)


def test_observations_that_are_wrong_are_refused(network: Network, terms: Terms) -> None:
    brain, seen = Brain(network, POINTS), looked_at(terms, 4)
    for name, value in seen.fields().items():
        bad = np.array(value)
        bad[2, 0] = np.nan
        with pytest.raises(InputError, match=f"'{name}' of the observation holds nan at \\[2, 0\\]"):
            brain.act(replace(seen, **{name: bad}))
        with pytest.raises(InputError, match=f"'{name}' of the observation is"):
            brain.act(replace(seen, **{name: np.hstack([value, value])}))
    with pytest.raises(InputError, match=r"points are \[100, 3\]: give 128"):
        brain.act(replace(seen, points=seen.points[:100]))
    with pytest.raises(InputError, match="points holds nan"):
        brain.act(replace(seen, points=np.where(seen.points > 0.03, np.nan, seen.points)))
    with pytest.raises(InputError, match="of one object"):
        brain.act(replace(seen, points=np.stack([seen.points] * 4)))
    with pytest.raises(InputError, match="answer is not finite"):
        brain.act(replace(seen, touch=seen.touch + 1e39))


@pytest.mark.parametrize("name", ["weights.safetensors", "contract.json", "points.npz"])
def test_a_damaged_or_missing_file_is_named(copied: Path, name: str) -> None:
    file = copied / name
    whole = file.read_bytes()
    for damaged in (whole[:-20], bytes([*whole[:-1], whole[-1] ^ 1])):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=name):
            open_policy(copied)
    file.write_bytes(whole)
    open_policy(copied)
    file.unlink()
    with pytest.raises(InputError, match=name):
        open_policy(copied)


def test_files_that_were_written_damaged_are_refused_too(contract: Contract, network: Network, tmp_path: Path) -> None:
    weights = dict(network.state_dict())
    for name, text, told in (
        ("weights.safetensors", "no weights", "weights.safetensors is damaged"),
        ("contract.json", "{", "contract.json is damaged"),
        ("contract.json", "{}", "schema None"),
        ("points.npz", "PK", "points.npz"),
    ):
        out = tmp_path / f"{name}{len(text)}"
        with writing(out, Policy) as draft:
            shutil.copytree(rewritten(contract, weights, tmp_path / "whole"), draft.folder, dirs_exist_ok=True)
            (draft.folder / name).write_text(text)
        shutil.rmtree(tmp_path / "whole")
        with pytest.raises(InputError, match=told):
            open_policy(out)


def test_weights_must_belong_to_the_contract(
    contract: Contract, terms: Terms, network: Network, tmp_path: Path
) -> None:
    weights = dict(network.state_dict())
    open_policy(rewritten(contract, weights, tmp_path / "good"))
    with pytest.raises(InputError, match="does not belong to the contract"):
        open_policy(rewritten(contract, weights, tmp_path / "other", {"contract": sealed(terms, 1).hash}))
    with pytest.raises(InputError, match=r"does not fit its contract in .*trunks\.how\.0\.weight"):
        open_policy(rewritten(contract, weights, tmp_path / "narrow", {"hidden": "16"}))
    with pytest.raises(InputError, match="damaged"):
        open_policy(rewritten(contract, weights, tmp_path / "none", {"hidden": "wide"}))
    less = {name: value for name, value in weights.items() if name != "heads.force.bias"}
    with pytest.raises(InputError, match=r"does not fit its contract in heads\.force\.bias"):
        open_policy(rewritten(contract, less, tmp_path / "less"))
    nan = {**weights, "heads.force.bias": torch.full((4,), torch.nan)}
    with pytest.raises(InputError, match="weights that are not finite"):
        open_policy(rewritten(contract, nan, tmp_path / "nan"))


def test_what_cannot_be_used_is_not_saved(contract: Contract, tmp_path: Path) -> None:
    network = Network(contract, 16)
    with pytest.raises(InputError, match=r"points are \[5, 3\]"):
        save_policy(tmp_path / "a", network, points={"ball": np.zeros((5, 3))}, training={})
    with torch.no_grad():
        network.heads["hand"].bias[0] = torch.nan
    with pytest.raises(InputError, match="not finite: train it again"):
        save_policy(tmp_path / "a", network, points=POINTS, training={})
    assert not (tmp_path / "a").exists()


def test_it_must_be_a_policy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no policy"):
        open_policy(tmp_path)
