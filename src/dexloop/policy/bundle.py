"""A policy on disk, and the brain that is made of it: numbers in, numbers out, with no torch to be seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from dexloop.core.artifact import OK, Artifact, load_arrays, save_arrays, write_text, writing
from dexloop.core.artifacts import Policy
from dexloop.core.errors import InputError, MissingPart
from dexloop.core.status import Status
from dexloop.policy.contract import Contract
from dexloop.policy.fields import POINTS
from dexloop.policy.observation import Observation, decode_pose, require_points, rows
from dexloop.policy.start import Start

if TYPE_CHECKING:
    from dexloop.policy.network import Network

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Action:
    """What a policy answers to n observations."""

    palm: Float[Array, "n 4 4"]
    """T_start_palm: where the palm shall be next, in the frame of the object where it stood at the start."""
    hand: Float[Array, "n h"]
    """Targets of the hand's joints, inside the contract's limits [rad or m]."""
    force: Float[Array, "n f"]
    """Normal force with which each finger shall push [N]."""
    phase: Int[Array, " n"]
    """The most probable one to be in next."""
    probabilities: Float[Array, "n p"]
    """Of all phases."""


class Brain:
    """A policy that acts.

    Args:
        network: Trained; it is not changed.
        points: By name, on the surfaces of the objects that it was trained with [m].
    """

    def __init__(self, network: Network, points: Mapping[str, Float[Array, "128 3"]]):
        for value in points.values():
            require_points(np.asarray(value))
        self.contract: Contract = network.contract
        self.points = dict(points)
        self._network = network.eval()
        self._shape: tuple[Array, Any] | None = None
        self._limits = np.array(self.contract.hand_limits).T

    def act(self, observation: Observation) -> Action:
        """Says what to do next.

        Raises:
            InputError: A field is of another size, or holds a number that is not finite.
        """
        import torch

        seen = rows(self.contract, observation.fields())
        with torch.inference_mode():
            x = self._network.normalised(torch.as_tensor(seen, dtype=torch.float32))
            answer = self._network.physical(self._network(x, self._encoded(observation.points)))
            probabilities = answer.phase.double().softmax(dim=1).numpy()
        palm, hand, force, _ = (value.double().numpy() for value in answer)
        with np.errstate(invalid="ignore"):
            # Made orthonormal once more, in the double precision that whoever plans with the pose expects.
            T_start_palm = decode_pose(palm)
        if not all(np.isfinite(value).all() for value in (T_start_palm, hand, force, probabilities)):
            raise InputError("the policy's answer is not finite: the observation is far from all it was trained with")
        hand = np.clip(hand, *self._limits)
        return Action(T_start_palm, hand, force, probabilities.argmax(axis=1), probabilities)

    def _encoded(self, points: Array) -> Any:
        """Returns what the network makes of an object's points, from the last time if they are the same."""
        import torch

        if self._shape is None or not np.array_equal(self._shape[0], points):
            require_points(points)
            if points.ndim != 2:
                raise InputError(f"an observation is of one object, but its points are {list(points.shape)}")
            encoded = self._network.encode(torch.as_tensor(points, dtype=torch.float32)[None])
            self._shape = (np.array(points), encoded)
        return self._shape[1]


def save_policy(
    out: str | Path,
    network: Network,
    *,
    points: Mapping[str, Float[Array, "128 3"]],
    training: Mapping[str, Any],
    start: Start | None = None,
    trained_on: Mapping[str, tuple[float, float]] | None = None,
    inputs: Mapping[str, Artifact] | None = None,
    seed: int | None = None,
    status: Status = OK,
    replace: bool = False,
) -> Policy:
    """Writes a policy.

    Args:
        out: Where it shall be.
        network: Trained.
        points: By name, on the surfaces of the objects that it was trained with [m].
        training: How it came about, in plain JSON: options, losses, how many examples.
        start: Where it begins; without, it cannot be deployed.
        trained_on: Ranges of parameters that it was shown, by name, in SI units.
        inputs: The artefacts it was trained from, by role.
        seed: Of the training.
        status: How good it is.
        replace: Put it in the place of one that is there.

    Raises:
        InputError: Points that are not as they should be, weights that are not finite, or the place is taken.
    """
    contract = network.contract
    weights = {name: value.detach().contiguous() for name, value in network.state_dict().items()}
    if not all(bool(value.isfinite().all()) for value in weights.values()):
        raise InputError("the network has weights that are not finite: train it again, with a lower learning rate")
    brain = Brain(network, points)
    with writing(out, Policy, inputs=inputs, seed=seed, replace=replace) as draft:
        said = {"contract": contract.hash, "hidden": str(network.hidden)}
        _safetensors().torch.save_file(weights, draft.folder / "weights.safetensors", metadata=said)
        write_text(draft.folder / "contract.json", json.dumps(contract.to_json(), indent=1, ensure_ascii=False))
        cloud = np.array(list(brain.points.values()), dtype=np.float64).reshape(-1, POINTS, 3)
        save_arrays(draft.folder / "points.npz", names=np.array(list(brain.points), dtype=np.str_), points=cloud)
        draft.meta |= {"contract": contract.hash, "objects": list(brain.points), "training": dict(training)}
        if start is not None:
            draft.meta["start"] = start.to_json()
        if trained_on is not None:
            draft.meta["trained_on"] = {name: list(span) for name, span in trained_on.items()}
        draft.status = status
    return Policy.open(out)


def open_policy(policy: str | Path | Policy) -> Brain:
    """Opens a policy, and checks all of it.

    Raises:
        InputError: It is none, a file is missing or damaged, its contract cannot be kept, or its weights belong to
            another contract.
        MissingPart: torch or safetensors is not installed.
    """
    artifact = policy if isinstance(policy, Policy) else Policy.open(policy)
    artifact.verify()
    try:
        said = json.loads((artifact.path / "contract.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{artifact.path}/contract.json is damaged ({error}): train the policy again") from error
    contract = Contract.from_json(said)
    arrays = load_arrays(artifact.path / "points.npz")
    if not {"names", "points"} <= arrays.keys() or len(arrays["names"]) != len(arrays["points"]):
        raise InputError(f"{artifact.path}/points.npz must hold names and points of as many objects")
    points = dict(zip(arrays["names"].tolist(), arrays["points"], strict=True))
    return Brain(_network(artifact.path / "weights.safetensors", contract), points)


def _network(file: Path, contract: Contract) -> Network:
    from dexloop.policy.network import Network

    safetensors = _safetensors()
    try:
        with safetensors.safe_open(file, "pt") as stream:
            said = stream.metadata() or {}
            weights = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 - no mapping
        hidden = int(said["hidden"])
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise InputError(f"{file} is damaged ({error}): train the policy again") from error
    if said.get("contract") != contract.hash:
        raise InputError(f"{file} does not belong to the contract beside it: take both from the same training")
    network = Network(contract, hidden)
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise InputError(f"{file} does not fit its contract in {', '.join(wrong)}: train the policy again")
    if not all(bool(value.isfinite().all()) for value in weights.values()):
        raise InputError(f"{file} holds weights that are not finite: train the policy again")
    network.load_state_dict(weights)
    return network


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise MissingPart(
            "policies need safetensors: pip install safetensors, or pip install 'dexloop[train]'"
        ) from error
    return safetensors
