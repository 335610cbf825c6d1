"""The network: the object's points and what is seen, to the next pose of the palm, joints, forces and phase.

Only what needs torch imports this module, inside functions.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float

from dexloop.core.errors import MissingPart
from dexloop.policy.contract import Contract
from dexloop.policy.fields import PHASES
from dexloop.policy.normalisation import joined

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise MissingPart(
        "policies need torch: pip install torch==2.13.0 (a CPU build), or pip install 'dexloop[train]'"
    ) from error

_LENGTH_M = 0.05
"""Points are divided by it: those of a thing that fits a hand are then about one. Another one is another schema."""
_SHAPE = 64
"""Numbers that the points become."""


_WHEN = ("belief", "phase", "clock")
"""What says when, and what. The palm's path and the phase follow from it alone: a network that also sees its own hand
learns to go on from there, as demonstrations do, and drifts away from them; one that sees slip lets a tracker that lags
steer the arm."""
_BY_THE_CLOCK, _BY_TOUCH = ("palm", "phase"), ("hand", "force")
_HEADS = (*_BY_THE_CLOCK, *_BY_TOUCH)
_FEELS = PHASES.index("squeeze")
"""The first phase in which joints and forces follow from more than that. Until then there is nothing to feel, and for
the same reason as above a hand that sees itself closes late, and then all at once."""


class Answer(NamedTuple):
    """What a network gives, one row an observation."""

    palm: Float[Tensor, "n 9"]
    hand: Float[Tensor, "n h"]
    force: Float[Tensor, "n f"]
    phase: Float[Tensor, "n p"]
    """Logits."""


class Network(nn.Module):
    """A PointNet (the same layers on each point, then the largest of each number) beside two plain networks.

    One sees what says when and what, and tells the palm, the phase and the hand's path; the other sees all, and tells
    forces and by how much the hand leaves its path. That is bounded (`bound`, see `train.imitate`): a hand that
    squeezes harder because of what it feels, and feels more because of that, would else go on to its joints' ends.

    Args:
        contract: What it takes and gives, and how that is normalised. The contract is not among the weights.
        hidden: Width of their three layers.
    """

    def __init__(self, contract: Contract, hidden: int = 256):
        super().__init__()
        self.contract, self.hidden = contract, hidden
        self.points = nn.Sequential(
            nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, _SHAPE)
        )  # fmt: skip
        sizes = {field.name: field.size for field in contract.observation}
        hand = next(field.size for field in contract.action if field.name == "hand")
        columns = dict(zip(sizes, torch.arange(sum(sizes.values())).split(list(sizes.values())), strict=True))
        self.sees = {
            name: torch.cat([columns[f] for f in (_WHEN if name in _BY_THE_CLOCK else sizes)]) for name in _HEADS
        }
        """Which numbers of an observation each head sees."""
        self._late = columns["phase"][_FEELS:]
        always = torch.cat([columns[f] for f in _WHEN])
        self._unfelt = torch.ones(sum(sizes.values()), dtype=torch.bool).index_fill(0, always, False)
        widths = {name: len(self.sees[name]) for name in _HEADS}
        self.trunks = nn.ModuleDict({
            trunk: nn.Sequential(
                nn.Linear(widths[first] + _SHAPE, hidden), nn.SiLU(),
                nn.Linear(hidden, hidden), nn.SiLU(),
                nn.Linear(hidden, hidden), nn.SiLU(),
            )
            for trunk, first in (("when", "palm"), ("how", "hand"))
        })  # fmt: skip
        # Heads see the observation too, for what is linear in it.
        self.heads = nn.ModuleDict(
            {field.name: nn.Linear(hidden + widths[field.name], field.size) for field in contract.action}
        )
        self.path = nn.Linear(hidden + widths["palm"], hand)
        self.register_buffer("bound", torch.ones(hand))
        mean, scale = joined(contract.observation, contract.normalisation.observation)
        self._buffer("seen", mean, scale)
        half = torch.full((len(self._late),), 0.5)  # between a phase that is the present one, and one that is not
        self._present = (half - self.get_buffer("seen_mean")[self._late]) / self.get_buffer("seen_scale")[self._late]
        for field in contract.action:
            scaling = contract.normalisation.action[field.name]
            self._buffer(field.name, scaling.mean, scaling.scale)

    def _buffer(self, name: str, mean: object, scale: object) -> None:
        for what, value in (("mean", mean), ("scale", scale)):
            self.register_buffer(f"{name}_{what}", torch.as_tensor(value, dtype=torch.float32), persistent=False)

    def encode(self, points: Float[Tensor, "*k p 3"]) -> Float[Tensor, "*k e"]:
        """Returns what the network makes of objects' points [m]; it stays the same as long as the object does."""
        return self.points(points / _LENGTH_M).amax(dim=-2)

    def normalised(self, observation: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Returns observations, with all fields behind each other, as the network sees them."""
        return (observation - self.get_buffer("seen_mean")) / self.get_buffer("seen_scale")

    def normalised_action(self, name: str, value: Float[Tensor, "n a"]) -> Float[Tensor, "n a"]:
        """Returns a field of actions as `forward` gives it."""
        return (value - self.get_buffer(f"{name}_mean")) / self.get_buffer(f"{name}_scale")

    def features(self, seen: Float[Tensor, "n d"], shape: Float[Tensor, "#n e"]) -> dict[str, Tensor]:
        """Returns what each head sees [n, k], of what `forward` takes."""
        shape = shape.expand(len(seen), -1)
        feels = (seen[:, self._late] > self._present).any(dim=1, keepdim=True)
        seen = seen.masked_fill(~feels & self._unfelt, 0.0)
        found = {}
        for trunk, heads in (("when", _BY_THE_CLOCK), ("how", _BY_TOUCH)):
            own = seen[:, self.sees[heads[0]]]
            both = torch.cat([self.trunks[trunk](torch.cat([own, shape], dim=1)), own], dim=1)
            found |= dict.fromkeys(heads, both)
        return found

    def forward(self, seen: Float[Tensor, "n d"], shape: Float[Tensor, "#n e"]) -> Answer:
        """Returns normalised actions, for training.

        Args:
            seen: Normalised observations.
            shape: Of the objects, as `encode` gives it.
        """
        x = self.features(seen, shape)
        answer = Answer(*(self.heads[name](x[name]) for name in Answer._fields))
        bound = self.get_buffer("bound")
        return answer._replace(hand=self.path(x["palm"]) + bound * torch.tanh(answer.hand / bound))

    def physical(self, answer: Answer) -> Answer:
        """Returns actions in their units: the palm's rotation orthonormal, forces zero or more."""
        palm, hand, force, phase = (
            value * self.get_buffer(f"{name}_scale") + self.get_buffer(f"{name}_mean")
            for name, value in answer._asdict().items()
        )
        place, a, b = palm.split(3, dim=1)
        a = nn.functional.normalize(a, dim=1)
        b = nn.functional.normalize(b - (a * b).sum(dim=1, keepdim=True) * a, dim=1)
        return Answer(torch.cat([place, a, b], dim=1), hand, force.clamp(min=0.0), phase)
