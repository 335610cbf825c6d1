"""Imitation: a network learns to do what the examples did."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from dexloop.core.errors import InputError
from dexloop.core.status import Level, Status
from dexloop.policy.contract import Contract, Terms
from dexloop.policy.observation import rows
from dexloop.policy.threads import one_thread
from dexloop.train.cfg import TrainCfg
from dexloop.train.examples import Examples, normalisation_of

if TYPE_CHECKING:
    import torch

    from dexloop.policy.network import Answer, Network

Progress = Callable[[str, float], None]

_DECAY = 1e-4
"""Of weights: enough to keep those small that nothing pulls at."""
_RIDGE = 1e-3
"""Of the least squares with which training begins, as a part of an example's weight."""
_NOISY = {
    "palm": 1.0, "object": 1.0, "q": 1.0, "push": 1.0, "touch": 1.0, "slip": 0.1, "belief": 0.0, "phase": 0.0,
    "clock": 0.0,
}  # fmt: skip
"""How much of the noise each field gets. What the robot's own motion makes gets all of it: a policy that goes on from
where it sees itself, as demonstrations do, drifts away from them more and more. What says when, and what, gets none."""
_MANY = 4096
"""Examples that are looked at together where nothing is learned from them."""
_FLOOR = 1e-3
"""A loss as low as this is low enough: 3 % of the spread."""
_LITTLE = 0.25
"""Of the variance of kept-back actions: a policy that leaves more than this unexplained has learned little."""
_BY_HEART = 5.0
"""A loss this many times higher on kept-back episodes than on the others is that of examples learned by heart."""


@dataclass(frozen=True)
class Losses:
    """Mean squared errors of normalised actions, that is, the part of their variance left open; lower is better."""

    palm: float
    hand: float
    force: float
    phase: float
    """Cross entropy of the next phase [nat]."""

    @property
    def objective(self) -> float:
        """What is made small: the sum of their logarithms.

        It counts by which part each of them falls. In a plain sum, the last millimetres of the palm, a thousandth of
        its variance, would be nothing beside a phase that is hard to tell.
        """
        return sum(math.log(loss + _FLOOR) for loss in astuple(self))


@dataclass(frozen=True)
class Epoch:
    """What an epoch ended with."""

    train: Losses
    """On examples with noise, over the epoch."""
    kept: Losses
    """On episodes that are not trained on, without noise, at its end."""


@dataclass(frozen=True, eq=False)
class Imitated:
    """A trained network, and how it came about."""

    network: Network
    """As it was after the best epoch."""
    log: tuple[Epoch, ...]
    best: int
    """The epoch with the lowest objective on kept-back episodes."""
    kept_episodes: tuple[int, ...]
    status: Status
    training: dict[str, Any]
    """All of that in plain JSON, for the policy's artefact."""

    @property
    def contract(self) -> Contract:
        """With the normalisation that was found."""
        return self.network.contract


def imitate(
    examples: Examples,
    terms: Terms,
    *,
    cfg: TrainCfg = TrainCfg(),  # noqa: B008 - frozen
    progress: Progress | None = None,
) -> Imitated:
    """Trains a network on examples. With the same seed, on one thread, it becomes the same.

    Args:
        examples: What was seen, and what was right to do then.
        terms: What the policy is for.
        cfg: How.
        progress: Told what is going on, and how much of it is done.

    Raises:
        InputError: Examples that do not fit the terms, or a training that diverges.
        MissingPart: torch is not installed.
    """
    examples.require(terms)
    from dexloop.policy.network import Network

    with one_thread():
        return _imitated(examples, terms, cfg, progress, Network)


def _imitated(
    examples: Examples, terms: Terms, cfg: TrainCfg, progress: Progress | None, make: type[Network]
) -> Imitated:
    import torch

    tell = progress or (lambda _text, _done: None)
    use, kept, kept_episodes = _split(examples.episode, cfg)
    contract = terms.sealed(normalisation_of(examples, terms, use))
    with torch.random.fork_rng(devices=[]):  # whoever draws numbers elsewhere draws the same as without us
        torch.manual_seed(cfg.seed)
        network = make(contract, cfg.hidden)
    data = _Data(network, examples)
    data.begin(network, use)
    chance = torch.Generator().manual_seed(cfg.seed)
    steps = cfg.epochs * -(-len(use) // cfg.batch)
    optimiser = torch.optim.AdamW(network.parameters(), lr=cfg.learning_rate, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    log: list[Epoch] = []
    best, weights = 0, copy.deepcopy(network.state_dict())
    for epoch in range(cfg.epochs):
        tell("imitating", epoch / cfg.epochs)
        order = torch.as_tensor(use)[torch.randperm(len(use), generator=chance)]
        sums = torch.zeros(4)
        for some in order.split(cfg.batch):
            losses = data.losses(network, some, noise=cfg.noise, chance=chance)
            optimiser.zero_grad()
            (losses + _FLOOR).log().sum().backward()
            optimiser.step()
            schedule.step()
            sums += losses.detach() * len(some)
        log.append(Epoch(Losses(*(sums / len(use)).tolist()), data.measured(network, kept)))
        if not np.isfinite([log[-1].train.objective, log[-1].kept.objective]).all():
            raise InputError(
                f"training diverged in epoch {epoch + 1}: lower learning_rate ({cfg.learning_rate:g}), or look for "
                "huge numbers in the examples"
            )
        if log[-1].kept.objective <= log[best].kept.objective:
            best, weights = epoch, copy.deepcopy(network.state_dict())
    network.load_state_dict(weights)
    tell("imitating", 1.0)
    status = _status(log, best)
    training = {
        "examples": len(examples),
        "episodes": len(np.unique(examples.episode)),
        "kept_episodes": list(kept_episodes),
        "cfg": asdict(cfg),
        "best": best,
        "log": [asdict(entry) for entry in log],
    }
    return Imitated(network.eval(), tuple(log), best, kept_episodes, status, training)


def _split(
    episode: Int[np.ndarray, " n"], cfg: TrainCfg
) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"], tuple[int, ...]]:
    """Returns which examples are trained on, which are not, and of which episodes those are.

    Whole episodes: two moments of the same one are so alike that the second tells nothing of what was learned.
    """
    names = np.unique(episode)
    count = min(max(1, round(cfg.kept_back * len(names))), len(names) - 1)
    kept = np.sort(np.random.default_rng(cfg.seed).permutation(names)[:count])
    away = np.isin(episode, kept)
    return np.flatnonzero(~away), np.flatnonzero(away), tuple(kept.tolist())


class _Data:
    """Examples as tensors, normalised."""

    def __init__(self, network: Network, examples: Examples):
        import torch

        def tensor(value: np.ndarray) -> torch.Tensor:
            return torch.as_tensor(value, dtype=torch.float32)

        contract = network.contract
        self.seen = network.normalised(tensor(rows(contract, examples.observation)))
        self.goals = {
            name: network.normalised_action(name, tensor(getattr(examples, name))) for name in ("palm", "hand", "force")
        }
        self.phase = torch.as_tensor(examples.phase).long()
        self.points, self.shape = tensor(examples.points), torch.as_tensor(examples.shape).long()
        self.noisy = torch.tensor([_NOISY[field.name] for field in contract.observation for _ in range(field.size)])

    def begin(self, network: Network, some: Int[np.ndarray, " m"]) -> None:
        """Gives the heads the weights that are best for layers as they are.

        What is linear in the observation, such as that the next pose is about the present one, is right from the start,
        and to more digits than a thousand steps would make it. The hand's path comes first, then what is left of it;
        the most that is left bounds how far the hand may leave its path, loosely, for such a path is a coarse one.
        """
        import torch

        parts = torch.as_tensor(some).split(_MANY)
        with torch.no_grad():
            seen = [network.features(self.seen[part], self.shapes(network, part)) for part in parts]
            hand = [self.goals["hand"][part] for part in parts]
            _solve(network.path, [x["palm"] for x in seen], hand, len(some))
            left = [goal - network.path(x["palm"]) for x, goal in zip(seen, hand, strict=True)]
            network.get_buffer("bound").copy_(torch.cat(left).abs().amax(dim=0).clamp(min=_FLOOR))
            for name, goal in self.goals.items():
                goals = left if name == "hand" else [goal[part] for part in parts]
                _solve(network.heads[name], [x[name] for x in seen], goals, len(some))

    def shapes(self, network: Network, some: torch.Tensor) -> Float[torch.Tensor, "m e"]:
        """Returns what the network makes of each example's object, of which there are few."""
        import torch

        here, which = torch.unique(self.shape[some], return_inverse=True)
        return network.encode(self.points[here])[which]

    def losses(
        self, network: Network, some: torch.Tensor, *, noise: float, chance: torch.Generator | None
    ) -> Float[torch.Tensor, "4"]:
        """Returns the losses of some examples, in the order of `Losses`."""
        import torch

        seen = self.seen[some]
        if noise:
            seen = seen + noise * self.noisy * torch.randn(seen.shape, generator=chance)
        answer: Answer = network(seen, self.shapes(network, some))
        squares = [(getattr(answer, name) - goal[some]).square().mean() for name, goal in self.goals.items()]
        return torch.stack([*squares, torch.nn.functional.cross_entropy(answer.phase, self.phase[some])])

    def measured(self, network: Network, some: Int[np.ndarray, " m"]) -> Losses:
        """Returns the losses of some examples as they are."""
        import torch

        sums = torch.zeros(4)
        with torch.inference_mode():
            for part in torch.as_tensor(some).split(_MANY):
                sums += self.losses(network, part, noise=0.0, chance=None) * len(part)
        return Losses(*(sums / len(some)).tolist())


def _solve(layer: torch.nn.Module, seen: Sequence[torch.Tensor], goals: Sequence[torch.Tensor], count: int) -> None:
    """Gives a linear layer the weights with the least squares, with a ridge."""
    import torch

    features = [torch.nn.functional.pad(x.double(), (0, 1), value=1.0) for x in seen]
    squares = sum((x.T @ x for x in features), torch.zeros(()))
    products = sum((x.T @ goal.double() for x, goal in zip(features, goals, strict=True)), torch.zeros(()))
    ridge = _RIDGE * count * torch.eye(len(squares), dtype=torch.float64)
    best = torch.linalg.solve(squares + ridge, products).T
    layer.load_state_dict({"weight": best[:, :-1], "bias": best[:, -1]})


def _status(log: Sequence[Epoch], best: int) -> Status:
    kept, last = log[best].kept, log[-1]
    worst = max(("palm", "hand", "force"), key=lambda name: getattr(kept, name))
    left = getattr(kept, worst)
    said = (
        f"on kept-back episodes {100 * kept.palm:.2g} % of the palm's variance is left open, {100 * kept.hand:.2g} % "
        f"of the hand's, {100 * kept.force:.2g} % of the forces'"
    )
    if left > _LITTLE:
        if getattr(last.kept, worst) > _BY_HEART * getattr(last.train, worst):
            action = "Add episodes: what was learned holds for those it was learned from only."
            return Status(Level.WARN, "by_heart", said, action)
        action = f"Train for more epochs; if that does not help, {worst} does not follow from what is seen."
        return Status(Level.WARN, "learned_little", said, action)
    return Status(Level.OK, "imitated", said)
