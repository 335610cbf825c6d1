from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="policies need torch")

import torch

from dexloop.core.errors import InputError
from dexloop.policy.bundle import Brain
from dexloop.policy.contract import Contract
from dexloop.policy.latency import latency_s
from dexloop.policy.network import Network
from tests.policy.planted import ball


def test_an_answer_comes_within_milliseconds(contract: Contract) -> None:
    threads = torch.get_num_threads()
    taken = latency_s(Brain(Network(contract), {"ball": ball(0.04)}), calls=60)
    assert taken.shape == (60,)
    assert 0 < np.quantile(taken, 0.25) < 5e-3  # a busy machine makes some of them late
    assert torch.get_num_threads() == threads


def test_there_must_be_an_object_to_ask_about(contract: Contract) -> None:
    with pytest.raises(InputError, match="without points"):
        latency_s(Brain(Network(contract), {}))
