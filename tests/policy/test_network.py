from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="policies need torch")

import torch

from dexloop.policy.contract import Contract, Terms
from dexloop.policy.fields import PHASES
from dexloop.policy.network import Answer, Network
from dexloop.policy.observation import rows
from dexloop.robots import load
from tests.policy.planted import ball, looked_at, sealed


def network_of(contract: Contract, hidden: int = 32, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network(contract, hidden)


@pytest.mark.parametrize("name", ["dex16@wrist", "gripper@wrist"])
def test_shapes_follow_the_robot(name: str) -> None:
    terms = Terms.of(load(name), rate_hz=50.0)
    network = network_of(sealed(terms))
    seen = torch.as_tensor(rows(terms, looked_at(terms, 7).fields()), dtype=torch.float32)
    shape = network.encode(torch.as_tensor(ball(0.04), dtype=torch.float32)[None])
    answer = network.physical(network(network.normalised(seen), shape))
    h, f = len(terms.hand_joints), len(terms.fingertips)
    assert [tuple(value.shape) for value in answer] == [(7, 9), (7, h), (7, f), (7, 5)]


def test_the_palms_rotation_is_orthonormal_and_forces_do_not_pull(contract: Contract) -> None:
    network = network_of(contract)
    raw = Answer(*(5.0 * torch.randn(200, field.size) for field in contract.action))
    answer = network.physical(raw)
    a, b = answer.palm[:, 3:6], answer.palm[:, 6:9]
    for value, wanted in (((a * a).sum(1), 1.0), ((b * b).sum(1), 1.0), ((a * b).sum(1), 0.0)):
        torch.testing.assert_close(value, torch.full((200,), wanted), atol=1e-5, rtol=0)
    assert (answer.force >= 0).all()
    assert (answer.force == 0).any()
    # Units come back by scale and mean of the contract.
    scaling = contract.normalisation.action["hand"]
    np.testing.assert_allclose(answer.hand, raw.hand.numpy() * scaling.scale + scaling.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(network.normalised_action("hand", answer.hand), raw.hand, atol=1e-4, rtol=1e-4)


def test_observations_are_normalised_by_the_contract(contract: Contract) -> None:
    seen = rows(contract, looked_at(contract, 3).fields())
    found = network_of(contract).normalised(torch.as_tensor(seen, dtype=torch.float32))
    scalings = [contract.normalisation.observation[field.name] for field in contract.observation]
    mean, scale = np.concatenate([s.mean for s in scalings]), np.concatenate([s.scale for s in scalings])
    np.testing.assert_allclose(found, (seen - mean) / scale, rtol=1e-4, atol=1e-5)


def test_a_hand_follows_the_clock_until_it_has_something_to_feel(contract: Contract) -> None:
    """One that sees itself while it closes waits for itself: it closed late, and then all at once."""
    network, seen = network_of(contract), looked_at(contract, 400)
    other = looked_at(contract, 400, seed=1)
    own = {name: getattr(other, name) for name in ("palm", "object", "slip", "q", "push", "touch")}
    shape = network.encode(torch.as_tensor(seen.points, dtype=torch.float32)[None])
    hand, changed = (
        network(network.normalised(torch.as_tensor(rows(contract, fields), dtype=torch.float32)), shape).hand
        for fields in (seen.fields(), seen.fields() | own)
    )
    feels = torch.as_tensor(seen.phase.argmax(axis=1) >= PHASES.index("squeeze"))
    torch.testing.assert_close(hand[~feels], changed[~feels])
    assert ((hand - changed)[feels].abs().max(dim=1).values > 1e-3).all()


def test_whatever_is_felt_the_hand_stays_near_its_path(contract: Contract) -> None:
    """What squeezes harder because of what it feels, and so feels more, else goes on to the joints' ends."""
    network, seen = network_of(contract), looked_at(contract, 50)
    network.get_buffer("bound").fill_(0.2)
    shape = network.encode(torch.as_tensor(seen.points, dtype=torch.float32)[None])
    fields = seen.fields() | {"touch": 1e6 * seen.touch, "push": 1e6 * seen.push}
    x = network.normalised(torch.as_tensor(rows(contract, fields), dtype=torch.float32))
    away = network(x, shape).hand - network.path(network.features(x, shape)["palm"])
    feels = torch.as_tensor(seen.phase.argmax(axis=1) >= PHASES.index("squeeze"))
    assert away.abs().max().item() <= 0.2 + 1e-5
    assert away[feels].abs().max().item() == pytest.approx(0.2, rel=1e-3)


def test_points_count_in_any_order_and_their_shape_matters(contract: Contract) -> None:
    network = network_of(contract)
    points = torch.as_tensor(np.stack([ball(0.04), ball(0.05)]), dtype=torch.float32)
    mixed = points[:, torch.randperm(points.shape[1])]
    torch.testing.assert_close(network.encode(points), network.encode(mixed))
    assert (network.encode(points)[0] - network.encode(points)[1]).abs().max() > 1e-3


def test_the_contract_is_not_among_the_weights(contract: Contract) -> None:
    weights = {name.split(".")[0] for name in network_of(contract).state_dict()}
    assert weights == {"points", "trunks", "heads", "path", "bound"}


def test_without_torch_the_message_says_how_to_get_it() -> None:
    script = "import sys; sys.modules['torch'] = None; import dexloop.policy.bundle; import dexloop.policy.network"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "MissingPart: policies need torch: pip install torch==2.13.0" in done.stderr


def test_only_the_network_needs_torch() -> None:
    script = (
        "import sys, dexloop.policy.bundle, dexloop.policy.latency, dexloop.train.imitate;"
        "print({'torch', 'safetensors'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
