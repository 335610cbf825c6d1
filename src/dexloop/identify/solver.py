"""Bounded Levenberg-Marquardt on batched simulations, with start states eliminated and noise levels estimated."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import qmc

from dexloop.core.errors import TrialError
from dexloop.identify.problem import Problem, Signals

Array = np.ndarray

MODEL_SD = 0.02
"""No parameter of a model is believed to better than this fraction of it. A simulated box brakes by 0.5 to 5 % less
than its friction says, depending on step, speed and contact; and no body is rigid, no friction a number."""
HUBER = 2.5
"""Errors beyond this many standard deviations count linearly, not by their square."""
_DAMPING: tuple[float, ...] = (0.0, 1.0, 10.0, 100.0)
"""Of the trial steps that are simulated together: Levenberg's damping relative to the one in force, which is itself
relative to the curvature."""
_MOVE = 0.5
"""How far unknowns are moved to find slopes, in standard deviations."""
_LONGER = (2.0, 4.0)
"""How many times as long as the full step others are that are tried with it."""
_CONVERGED = 0.05
"""An expected decrease of the cost below this, per unknown, is none: a twentieth of what noise alone does."""
_REFUSED, _SETTLED = 3, 1.0
"""After so many steps in a row that led nowhere it ends: well, if they promised no more than noise does."""
_ALLOWANCE = 0.02
"""First guess of the model's own error, as a fraction of what a channel varies by."""
_CORRELATION = 5.0
"""First guess of how many successive numbers of a channel are worth one that is independent."""
_CLUSTER_S = 0.1
"""How long errors of a model last [s]."""
_ROUNDS, _ELITE = 3, 6
"""Of the search: how often values are drawn, and how many of the best say where to draw next."""
_FAR = (-6.0, -2.0, 2.0, 6.0)
"""How far from a minimum it looks for a better one, in standard deviations."""
_LATE = 0.02
"""Steps of the grid on which a clock's offset is first looked for [s]."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """Values of all unknowns, and how sure they are."""

    theta: Float[Array, " p"]
    """Free coordinates."""
    local: tuple[Float[Array, " l"], ...]
    """Start coordinates of each segment."""
    noise: Float[Array, " c"]
    """Standard deviation of each channel's error, model error included [SI]."""
    correlation: Float[Array, " c"]
    """How many samples of a channel are worth one that is independent."""
    cost: float = np.inf
    information: Float[Array, "p p"] = field(default_factory=lambda: np.zeros((0, 0)))
    """Of the data and the prior together, start states eliminated."""
    iterations: int = 0
    converged: bool = False

    @property
    def covariance(self) -> Float[Array, "p p"]:
        """Of the posterior, in free coordinates."""
        return np.linalg.inv(self.information)


class Solver:
    """Finds the most probable values.

    Args:
        problem: What is unknown and what was recorded.
        prior: Mean [p] and precision [p, p] of the unknowns; by default those that they bring.
        held: Unknowns that are kept at the prior's mean while going down, since other recordings have told them; their
            uncertainty still counts in the end.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        prior: tuple[Float[Array, " p"], Float[Array, "p p"]] | None = None,
        held: Bool[Array, " p"] | None = None,
    ):
        self.problem = problem
        self.prior_mean, self.prior_precision = prior or (problem.prior_mean, np.diag(problem.prior_sd**-2))
        self.held = np.zeros(problem.size, dtype=bool) if held is None else held
        self.lower, self.upper = problem.bounds
        self.pooled = False
        """Whether all channels of a kind have one noise level, in units of the least that each can have. Else each has
        its own: right in the end, but on the way it lets a fit ignore what it cannot explain."""

    def on(self, problem: Problem) -> Solver:
        """Returns a solver of another problem with the same unknowns."""
        return Solver(problem, prior=(self.prior_mean, self.prior_precision), held=self.held)

    # Starting.

    def start(self, theta: Float[Array, " p"] | None = None) -> Estimate:
        """Returns the prior's mean, with the noise that the samples themselves show and a rough allowance for the
        model's own error."""
        p = self.problem
        noise = np.hypot(p.noise_floor(), _ALLOWANCE * p.spread())
        start = p.start_theta() if theta is None else theta
        local = tuple(np.zeros(len(s.local_sd)) for s in p.segments)
        return Estimate(start, local, noise, np.full(len(noise), _CORRELATION))

    def search(
        self,
        samples: int,
        descents: int,
        *,
        seed: int = 0,
        everything: bool = False,
        tell: Callable[[float], None] | None = None,
    ) -> Estimate:
        """Looks over the whole prior, closes in on where it is best, and goes down a little from there.

        Values are drawn over the prior, all simulated together; the best of them say where to draw the next ones
        (the cross-entropy method). Only the leading unknowns are looked for at first; finer ones (where the centre of
        mass is, how soft a fingertip is) have many ways to make up for a wrong mass, and are let go when that is about
        right; unless it shall look for everything, since what rolls goes where its centre of mass takes it.
        """
        whole = self.held
        self.held = whole if everything else whole | ~self.problem.leading
        try:
            elite = self._close_in(samples, seed)
            found: list[tuple[float, Estimate]] = []
            for k, candidate in enumerate(elite[:descents]):
                estimate = self.descend(candidate, iterations=4)
                found.append((self.score(estimate), estimate))
                if tell is not None:
                    tell((k + 1) / descents)
        finally:
            self.held = whole
        return min(found, key=lambda f: f[0])[1]

    def _close_in(self, samples: int, seed: int) -> list[Estimate]:
        p, estimate = self.problem, self.start()
        free = np.flatnonzero(p.simulated & ~self.held)
        spread = np.sqrt(np.diag(np.linalg.inv(self.prior_precision)))[free]
        draw = 2.0 * qmc.Sobol(max(len(free), 1), rng=seed).random(2 ** int(np.ceil(np.log2(max(samples, 2))))) - 1.0
        points = self.prior_mean[free] + 2.0 * spread * draw[:samples, : len(free)]
        rng = np.random.default_rng(seed)
        best: list[tuple[float, np.ndarray]] = []
        for _ in range(_ROUNDS if len(free) else 1):
            thetas = np.tile(estimate.theta, (len(points), 1))
            thetas[:, free] = points
            if not best:
                thetas[0] = estimate.theta
            thetas = np.where(thetas < self.lower, 2.0 * self.lower - thetas, thetas)  # folded back, not heaped up
            thetas = np.where(thetas > self.upper, 2.0 * self.upper - thetas, thetas)
            thetas = np.clip(thetas, self.lower, self.upper)
            scores, thetas = self._with_clocks(self._simulate(thetas, estimate.local), thetas, narrow=bool(best))
            best = sorted([*best, *zip(scores, thetas, strict=True)], key=lambda b: b[0])[:_ELITE]
            centre = np.array([theta for _, theta in best])
            estimate = replace(estimate, theta=best[0][1])
            width = np.maximum(centre[:, free].std(axis=0), 0.03 * spread)
            points = centre[:, free].mean(axis=0) + width * rng.standard_normal((samples // 2, len(free)))
        return [replace(estimate, theta=theta, cost=float(score)) for score, theta in best]

    def _with_clocks(
        self, signals: Sequence[Signals], thetas: Float[Array, "n p"], *, narrow: bool
    ) -> tuple[Float[Array, " n"], Float[Array, "n p"]]:
        """Finds for each simulation the clock offsets that suit it best, on a grid: that needs no new simulation."""
        for u in self.problem.unknowns:
            if not u.name.startswith("clock."):
                continue
            at = self.problem.where(u.name).start
            if float(u.sd[0]) < _LATE:
                grid = np.array([-1e-3, 0.0, 1e-3])  # an effort's saw has a tooth to either side
            elif narrow:
                grid = np.median(thetas[:, at]) + np.linspace(-_LATE, _LATE, 9)
            else:
                reach = max(2.0 * float(u.sd[0]), 3.0 * _LATE)
                grid = np.arange(-reach, reach + 1e-9, _LATE)
            scores = []
            for offset in grid:
                thetas[:, at] = offset
                scores.append(self._score(signals, thetas))
            thetas[:, at] = grid[np.argmin(scores, axis=0)]
        return self._score(signals, thetas), thetas

    # Going down.

    def descend(
        self, estimate: Estimate, *, iterations: int = 25, tell: Callable[[float], None] | None = None
    ) -> Estimate:
        """Goes down to the nearest minimum.

        Noise levels are unknown too: before each step they are estimated anew from the errors that are left.
        """
        p = self.problem
        damping, refused, widen = 1e-2, 0, 1.0
        best = replace(estimate, cost=np.inf, converged=False, iterations=0)
        moves = np.diag(p.first_step)
        local_steps = [s.local_step.copy() for s in p.segments]
        for k in range(iterations):
            linear = self._linearise(best, moves, local_steps)
            best = self.reweigh(best, linear.errors)
            normal = self._normal(best, linear)
            if not np.isfinite(normal.cost):
                raise TrialError(
                    "the simulation is unstable at the start values: check the model's masses, its time step and the "
                    "units of the recording"
                )
            best = replace(best, cost=normal.cost, iterations=k + 1, information=normal.information())
            moves = self._moves(best.information, widen)
            lower = np.where(self.held, 0.0, self.lower - best.theta)
            upper = np.where(self.held, 0.0, self.upper - best.theta)
            trials = [normal.step(d * damping, lower, upper) for d in _DAMPING]
            full = trials[0]
            expected = full[2]
            # Rough slopes add up to curvature that is not there, and make steps too short.
            trials += [(far * full[0], [far * x for x in full[1]], expected) for far in _LONGER]
            thetas = np.clip(np.stack([best.theta + t for t, _, _ in trials]), self.lower, self.upper)
            locals_ = tuple(np.stack([best.local[s] + trial[1][s] for trial in trials]) for s in range(len(best.local)))
            costs = self._costs(thetas, locals_, best)
            j = int(np.argmin(np.where(np.isfinite(costs), costs, np.inf)))
            if tell is not None:
                tell((k + 1) / iterations)
            if costs[j] < best.cost:
                gain = best.cost - float(costs[j])
                best = replace(best, theta=thetas[j], local=tuple(x[j] for x in locals_), cost=float(costs[j]))
                shorter = _DAMPING[j] if j < len(_DAMPING) else 0.0
                damping, refused = float(np.clip(damping * max(shorter, 0.1), 1e-4, 1e2)), 0
                if gain < _CONVERGED * len(best.theta):
                    return replace(best, converged=True)
            else:
                # The cost is rough where contacts chatter: smaller steps, and slopes over a wider stretch.
                damping, refused, widen = min(damping * 100.0, 1e2), refused + 1, min(2.0 * widen, 4.0)
                if refused == _REFUSED:
                    return replace(best, converged=expected < _SETTLED * len(best.theta))
        return best

    def look_about(self, estimate: Estimate) -> Estimate:
        """Looks along the ways that the data leave open, and returns the best that was found.

        Contacts make the cost rough, and slopes lead to the nearest dent of it. So each unknown of the model is moved
        far to either side, with all others going along as they should: what a slow valley hides shows at once.
        """
        free = np.flatnonzero(~self.held)
        covariance = np.linalg.inv(estimate.information)[np.ix_(free, free)]
        moved = np.flatnonzero(self.problem.simulated[free])
        ways = covariance[:, moved] / np.sqrt(np.diag(covariance)[moved])
        thetas = np.tile(estimate.theta, (len(_FAR) * len(moved), 1))
        thetas[:, free] += np.concatenate([far * ways.T for far in _FAR])
        thetas = np.clip(thetas, self.lower, self.upper)
        scores = self._score(self._simulate(thetas, estimate.local), thetas)
        k = int(np.argmin(scores))
        return replace(estimate, theta=thetas[k]) if scores[k] < self.score(estimate) else estimate

    def reweigh(self, estimate: Estimate, errors: Sequence[Float[Array, " r"]]) -> Estimate:
        """Estimates each channel's noise level from the errors that are left."""
        floor = self.problem.noise_floor()
        noise = estimate.noise.copy()
        ratio, count = np.zeros(len(floor)), np.zeros(len(floor))
        for k, parts in enumerate(self._by_channel(errors)):
            if parts:
                everything = np.abs(np.concatenate(parts))
                ratio[k], count[k] = max(_scale(everything) / floor[k], 1.0), len(everything)
        if self.pooled:
            ratio = self._pool(ratio[None] ** 2, count)[0] ** 0.5
        noise[count > 0] = (ratio * floor)[count > 0]
        return replace(estimate, noise=noise, cost=np.inf)

    def _pool(self, square: Float[Array, "n c"], count: Float[Array, " c"]) -> Float[Array, "n c"]:
        """Returns the mean square of all channels of one kind, for each of them."""
        kinds = np.array([c.stream for c in self.problem.channels])
        out = square.copy()
        for kind in np.unique(kinds):
            own = (kinds == kind) & (count > 0)
            if own.any():
                out[:, own] = (square[:, own] @ count[own] / count[own].sum())[:, None]
        return out

    # Looking.

    def assess(self, estimate: Estimate) -> Estimate:
        """Returns an estimate with the information that the data would give there, without going anywhere."""
        moves = np.diag(self.problem.first_step)
        linear = self._linearise(estimate, moves, [s.local_step for s in self.problem.segments])
        normal = self._normal(estimate, linear)
        return replace(estimate, cost=normal.cost, information=normal.information())

    def compare(self, estimate: Estimate, thetas: Float[Array, "n p"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Returns by how much other values really cost more, and by how much they should as far as all is linear.

        Start states go along as they should.
        """
        moves = self._moves(estimate.information)
        linear = self._linearise(estimate, moves, [s.local_step for s in self.problem.segments], everything=True)
        normal = self._normal(estimate, linear)
        delta = thetas - estimate.theta
        locals_ = tuple(
            x + (np.linalg.solve(C, -h[:, None] - B.T @ delta.T).T if len(h) else np.zeros((len(delta), 0)))
            for x, B, C, h in zip(estimate.local, normal.B, normal.C, normal.h, strict=True)
        )
        A, g = normal._reduced(0.0)
        shift = sum(0.5 * float(h @ np.linalg.solve(C, h)) for C, h in zip(normal.C, normal.h, strict=True) if len(h))
        expected = delta @ g + 0.5 * np.einsum("ni,ij,nj->n", delta, A, delta) - shift
        return self._costs(thetas, locals_, estimate) - normal.cost, expected

    def finish(self, estimate: Estimate) -> Estimate:
        """Returns the estimate with its covariance: that of what is held included, and of correlated errors.

        Errors of a model are no white noise: they last for a tenth of a second or so, and one cause shows in several
        channels. So the spread of the estimate is taken from how errors really add up over such times (a sandwich
        with clusters in time), from each channel's own correlation, and from how the estimate would change without
        each of the recordings in turn; the largest of these counts.
        """
        p = self.problem
        moves = self._moves(estimate.information)
        linear = self._linearise(estimate, moves, [s.local_step for s in p.segments], everything=True)
        estimate = self.reweigh(estimate, linear.errors)
        correlation = self._correlations(estimate, linear.errors)
        tempered = self._normal(estimate, linear)
        white = self._normal(replace(estimate, correlation=np.maximum(correlation, 1.0)), linear)
        own = np.linalg.inv(white.information())
        bread = np.linalg.inv(tempered.information())
        together = bread @ (self._spread(estimate, linear, tempered) + self.prior_precision) @ bread
        apart = np.diag(self._jackknife(estimate, linear))
        ratio = np.sqrt(np.maximum(np.maximum(np.diag(together), apart) / np.diag(own), 1.0))
        covariance = own * np.outer(ratio, ratio)
        limit = np.sqrt(np.minimum(np.diag(np.linalg.inv(self.prior_precision)) / np.diag(covariance), 1.0))
        covariance = covariance * np.outer(limit, limit)  # never wider than it was before
        covariance = covariance + np.diag((MODEL_SD * p.size_of_unknowns) ** 2)
        information = np.linalg.inv(covariance)
        return replace(
            estimate,
            cost=tempered.cost,
            correlation=correlation,
            information=0.5 * (information + information.T),
        )

    def _correlations(self, estimate: Estimate, errors: Sequence[Float[Array, " r"]]) -> Float[Array, " c"]:
        """Returns how many successive numbers of each channel are worth one that is independent."""
        out = estimate.correlation.copy()
        pieces = self._by_channel(errors)
        for k, parts in enumerate(pieces):
            limit = HUBER * estimate.noise[k]
            if parts:
                out[k] = _correlation([np.clip(part, -limit, limit) for part in parts])
        return out

    def _spread(self, estimate: Estimate, linear: _Linear, normal: _Normal) -> Float[Array, "p p"]:
        """Returns the covariance of the gradient, with errors within a tenth of a second of each other as one."""
        p = self.problem
        total, clusters = np.zeros((p.size, p.size)), 0
        for s, layout in enumerate(p.layout):
            keep = layout.keep
            noise = estimate.noise[layout.channel[keep]]
            weight = 1.0 / estimate.correlation[layout.channel[keep]]
            J, L = linear.jacobians[s][keep] / noise[:, None], linear.local_jacobians[s][keep] / noise[:, None]
            if L.shape[1]:
                J = J - L @ np.linalg.solve(normal.C[s], normal.B[s].T)
            r = linear.errors[s][keep] / noise
            gradient = J * (weight * np.clip(r, -HUBER, HUBER))[:, None]
            cluster = ((layout.t[keep] - p.segments[s].t0) / _CLUSTER_S).astype(int)
            sums = np.zeros((cluster.max(initial=0) + 1, p.size))
            np.add.at(sums, cluster, gradient)
            sums = sums - sums.mean(axis=0)  # at the minimum they add up to what the prior pulls
            total += sums.T @ sums
            clusters += len(sums)
        return total * clusters / max(clusters - len(p.segments), 1)

    def _jackknife(self, estimate: Estimate, linear: _Linear) -> Float[Array, "p p"]:
        """Returns the covariance that follows from leaving out each recording (or third of one) in turn."""
        p = self.problem
        names = list(dict.fromkeys(s.recording for s in p.segments))
        parts = 1 if len(names) > 2 else 3
        shifts = [self._without(estimate, linear, {name}, k, parts) for name in names for k in range(parts)]
        away = np.array(shifts) - np.mean(shifts, axis=0)
        return (len(shifts) - 1) / len(shifts) * away.T @ away

    def _without(
        self, estimate: Estimate, linear: _Linear, names: Set[str], part: int = 0, parts: int = 1
    ) -> Float[Array, " p"]:
        """Returns by how much the estimate would change without some recordings (or one of several parts of each)."""
        p = self.problem
        normal = _Normal(p.size, [len(x) for x in estimate.local])
        normal.add_prior(estimate.theta - self.prior_mean, self.prior_precision)
        for s, (segment, layout) in enumerate(zip(p.segments, p.layout, strict=True)):
            which = np.minimum(parts * (layout.t - segment.t0) / (segment.end - segment.t0), parts - 1e-9).astype(int)
            out = (which == part) if segment.recording in names else np.zeros(len(which), dtype=bool)
            self._add(normal, s, estimate, linear, layout.keep & ~out)
        return normal.step(0.0, self.lower - estimate.theta, self.upper - estimate.theta)[0]

    def without(self, estimate: Estimate, names: Set[str]) -> Float[Array, " p"]:
        """Returns what would have been found without some recordings, by one step from what was found with them."""
        moves = np.diag(self.problem.first_step)
        linear = self._linearise(estimate, moves, [s.local_step for s in self.problem.segments])
        held = np.where(self.held, 0.0, self._without(estimate, linear, names))
        return np.clip(estimate.theta + held, self.lower, self.upper)

    def _by_channel(self, errors: Sequence[Float[Array, " r"]]) -> list[list[Float[Array, " m"]]]:
        """Sorts errors by channel, one piece a segment."""
        pieces: list[list[np.ndarray]] = [[] for _ in self.problem.channels]
        for layout, error in zip(self.problem.layout, errors, strict=True):
            for k in np.unique(layout.channel):
                own = error[(layout.channel == k) & layout.keep]
                if len(own) > 3:
                    pieces[k].append(own)
        return pieces

    def score(self, estimate: Estimate) -> float:
        """Returns how well an estimate explains everything, whatever noise it was fitted with: less is better."""
        points = [(s, estimate.theta[None], x[None]) for s, x in enumerate(estimate.local)]
        return float(self._score(self.problem.simulate(points), estimate.theta[None])[0])

    def misfits(self, estimate: Estimate) -> dict[str, float]:
        """Returns how large errors in the object's pose are over the least that they can be, for each recording in
        which it was measured."""
        poses = {m.stream for s in self.problem.segments for m in s.measured if m.is_pose}
        floor = self.problem.noise_floor()
        ratios: dict[str, list[np.ndarray]] = {}
        for k, parts in enumerate(self._by_channel(self.errors(estimate))):
            c = self.problem.channels[k]
            if c.stream in poses:
                ratios.setdefault(c.recording, []).extend(part / floor[k] for part in parts)
        return {
            name: float(np.sqrt(np.mean(np.concatenate(parts) ** 2))) for name, parts in ratios.items() if parts
        }  # fmt: skip

    def errors(self, estimate: Estimate) -> list[Float[Array, " r"]]:
        """Returns measured minus predicted of each segment."""
        points = [(s, estimate.theta[None], x[None]) for s, x in enumerate(estimate.local)]
        signals = self.problem.simulate(points)
        return [self.problem.errors(s, signals[s], estimate.theta[None])[0] for s in range(len(points))]

    def costs(self, thetas: Float[Array, "n p"], estimate: Estimate) -> Float[Array, " n"]:
        """Returns the cost of other values, with the start states as they are."""
        locals_ = tuple(np.repeat(x[None], len(thetas), axis=0) for x in estimate.local)
        return self._costs(thetas, locals_, estimate)

    def _simulate(self, thetas: Float[Array, "n p"], local: Sequence[Float[Array, " l"]]) -> list[Signals]:
        n = len(thetas)
        points = [(s, thetas, np.repeat(x[None], n, axis=0)) for s, x in enumerate(local)]
        return self.problem.simulate(points)

    def _score(self, signals: Sequence[Signals], thetas: Float[Array, "n p"]) -> Float[Array, " n"]:
        """Returns minus the log likelihood with the noise level of each channel as it is then, and no start known."""
        p, channels = self.problem, len(self.problem.channels)
        total, count = np.zeros((len(thetas), channels)), np.zeros(channels)
        for s in range(len(signals)):
            layout = p.layout[s]
            errors = np.abs(p.errors(s, signals[s], thetas)[:, layout.keep])
            member = np.zeros((errors.shape[1], channels))
            member[np.arange(errors.shape[1]), layout.channel[layout.keep]] = 1.0
            total += np.nan_to_num(errors, nan=1e6) @ member
            count += member.sum(axis=0)
        used = count > 0
        floor = p.noise_floor()[used]
        level = np.ones((len(thetas), channels))
        level[:, used] = np.hypot(1.25 * total[:, used] / count[used], floor) / floor
        if self.pooled:
            level = np.sqrt(self._pool(level**2, count))
        away = thetas - self.prior_mean
        prior = 0.5 * np.einsum("ni,ij,nj->n", away, self.prior_precision, away)
        return (count / _CORRELATION * np.log(level)).sum(axis=1) + prior

    def _cost(self, signals: Sequence[Signals], thetas: Float[Array, "n p"], estimate: Estimate) -> Float[Array, " n"]:
        away = thetas - self.prior_mean
        cost = 0.5 * np.einsum("ni,ij,nj->n", away, self.prior_precision, away)
        for s in range(len(signals)):
            r, weight = self._whitened(s, signals[s], thetas, estimate)
            cost = cost + (_huber(r) * weight).sum(axis=1)
        return cost

    def _costs(
        self, thetas: Float[Array, "n p"], locals_: Sequence[Float[Array, "n l"]], estimate: Estimate
    ) -> Float[Array, " n"]:
        points = [(s, thetas, x) for s, x in enumerate(locals_)]
        cost = self._cost(self.problem.simulate(points), thetas, estimate)
        for s, x in enumerate(locals_):
            cost = cost + 0.5 * ((x / self.problem.segments[s].local_sd) ** 2).sum(axis=1)
        return cost

    def _whitened(
        self, s: int, signals: Signals, thetas: Float[Array, "n p"], estimate: Estimate
    ) -> tuple[Float[Array, "n r"], Float[Array, " r"]]:
        layout = self.problem.layout[s]
        errors = self.problem.errors(s, signals, thetas)[:, layout.keep]
        channel = layout.channel[layout.keep]
        return errors / estimate.noise[channel], 1.0 / estimate.correlation[channel]

    def _moves(self, information: Float[Array, "p p"], widen: float = 1.0) -> Float[Array, "p p"]:
        """Returns by what to move the unknowns to see how the errors change, a column for each simulation.

        What the data leave open is a way along which several unknowns change together, and by much. Its slope would be
        a small difference of large ones if each unknown were moved by itself, and contacts make those rough. So what is
        free is moved along the axes of its covariance, as far as it is unsure.
        """
        p = self.problem
        covariance = np.linalg.inv(information)
        sd = np.sqrt(np.maximum(np.diag(covariance), 1e-18))
        moves = np.diag(np.clip(0.5 * sd, 0.3 * p.first_step, 2.0 * p.first_step))
        free = np.flatnonzero(p.simulated & ~self.held)
        if len(free) and not self._tied():
            scaled = covariance[np.ix_(free, free)] / np.outer(p.first_step[free], p.first_step[free])
            values, axes = np.linalg.eigh(0.5 * (scaled + scaled.T))
            lengths = np.sqrt(np.maximum(values, 1e-18)) * _MOVE
            # A step is far enough from nothing, and not as far as to lead to another motion.
            most = np.abs(axes).max(axis=0)
            lengths = np.clip(lengths, 0.3 / most, 2.0 / most)
            moves[np.ix_(free, free)] = axes * lengths * p.first_step[free][:, None]
        return widen * moves

    def _linearise(
        self,
        estimate: Estimate,
        moves: Float[Array, "p p"],
        local_steps: Sequence[Float[Array, " l"]],
        *,
        everything: bool = False,
    ) -> _Linear:
        """Simulates the unknowns moved, all segments together; held ones only if asked for everything."""
        p = self.problem
        wanted = np.ones(p.size, dtype=bool) if everything else ~self.held
        beyond = estimate.theta[:, None] + moves
        out = ((beyond > self.upper[:, None]) | (beyond < self.lower[:, None]))[wanted].any(axis=0)
        moves = np.where(out, -moves, moves)
        step = np.diag(moves)
        simulated, plain = np.flatnonzero(p.simulated & wanted), np.flatnonzero(~p.simulated & wanted)
        own = moves[np.ix_(simulated, simulated)]
        points = []
        tied = [(mass, radii) for mass, radii in self._tied() if mass in simulated and radii[0] in simulated]
        for s, x in enumerate(estimate.local):
            thetas = np.tile(estimate.theta, (1 + len(simulated) + len(x), 1))
            locals_ = np.tile(x, (len(thetas), 1))
            thetas[1 : 1 + len(simulated), simulated] += own.T
            for mass, radii in tied:
                thetas[1 + int(np.flatnonzero(simulated == mass)[0]), radii] += 0.5 * step[mass]
            locals_[1 + len(simulated) + np.arange(len(x)), np.arange(len(x))] += local_steps[s]
            points.append((s, thetas, locals_))
        signals = p.simulate(points)
        errors, jacobians, local_jacobians = [], [], []
        for s, thetas, _ in points:
            e = p.errors(s, signals[s], thetas)
            J = np.zeros((e.shape[1], p.size))
            J[:, simulated] = np.linalg.solve(own.T, np.nan_to_num(e[1 : 1 + len(simulated)] - e[0])).T
            for mass, radii in tied:
                J[:, mass] -= 0.5 * J[:, radii].sum(axis=1)
            if len(plain):
                nudged = np.tile(estimate.theta, (len(plain), 1))
                nudged[np.arange(len(plain)), plain] += step[plain]
                again = {k: np.repeat(v[:1], len(plain), axis=0) for k, v in signals[s].items()}
                J[:, plain] = (p.errors(s, again, nudged) - e[0]).T / step[plain]
            errors.append(e[0])
            jacobians.append(np.nan_to_num(J))
            local_jacobians.append(np.nan_to_num((e[1 + len(simulated) :] - e[0]).T / local_steps[s]))
        return _Linear(errors, jacobians, local_jacobians)

    def _tied(self) -> list[tuple[int, Int[Array, " 3"]]]:
        """Returns where a body's mass and the three radii of its inertia are, if both are unknown.

        They are moved together, as if the density changed: the motion of a free body does not depend on that at all,
        and differences of two slopes through bounces would not tell so.
        """
        p, names = self.problem, {u.name for u in self.problem.unknowns}
        bodies = [n.removesuffix(".mass") for n in names if n.endswith(".mass")]
        return [
            (p.where(f"{b}.mass").start, p.where(f"{b}.inertia").start + np.arange(3))
            for b in bodies
            if f"{b}.inertia" in names
        ]

    def _normal(self, estimate: Estimate, linear: _Linear) -> _Normal:
        normal = _Normal(self.problem.size, [len(x) for x in estimate.local])
        normal.add_prior(estimate.theta - self.prior_mean, self.prior_precision)
        for s, layout in enumerate(self.problem.layout):
            self._add(normal, s, estimate, linear, layout.keep)
        return normal

    def _add(self, normal: _Normal, s: int, estimate: Estimate, linear: _Linear, keep: Bool[Array, " r"]) -> None:
        """Adds some of the numbers of a segment to normal equations, and what is known of its start."""
        channel = self.problem.layout[s].channel[keep]
        noise, weight = estimate.noise[channel], 1.0 / estimate.correlation[channel]
        J, L = linear.jacobians[s][keep] / noise[:, None], linear.local_jacobians[s][keep] / noise[:, None]
        normal.add(s, J, L, linear.errors[s][keep] / noise, weight)
        normal.add_local_prior(s, estimate.local[s], self.problem.segments[s].local_sd)


@dataclass(frozen=True, eq=False)
class _Linear:
    """Errors of each segment, and how they change with the unknowns and with the start."""

    errors: list[Float[Array, " r"]]
    jacobians: list[Float[Array, "r p"]]
    local_jacobians: list[Float[Array, "r l"]]


class _Normal:
    """Normal equations with one block of start coordinates for each segment."""

    def __init__(self, size: int, local: Sequence[int]):
        self.A, self.g = np.zeros((size, size)), np.zeros(size)
        self.B = [np.zeros((size, n)) for n in local]
        self.C, self.h = [np.zeros((n, n)) for n in local], [np.zeros(n) for n in local]
        self.cost = 0.0

    def add_prior(self, away: Float[Array, " p"], precision: Float[Array, "p p"]) -> None:
        self.A += precision
        self.g += precision @ away
        self.cost += 0.5 * float(away @ precision @ away)

    def add_local_prior(self, s: int, away: Float[Array, " l"], sd: Float[Array, " l"]) -> None:
        self.C[s] += np.diag(sd**-2)
        self.h[s] += away / sd**2
        self.cost += 0.5 * float(((away / sd) ** 2).sum())

    def add(
        self, s: int, J: Float[Array, "r p"], L: Float[Array, "r l"], r: Float[Array, " r"], weight: Float[Array, " r"]
    ) -> None:
        self.cost += float((_huber(r) * weight).sum())
        w = weight * np.minimum(1.0, HUBER / np.maximum(np.abs(r), 1e-12))
        Jw, Lw = J * w[:, None], L * w[:, None]
        self.A += Jw.T @ J
        self.g += Jw.T @ r
        self.B[s] += Jw.T @ L
        self.C[s] += Lw.T @ L
        self.h[s] += Lw.T @ r

    def _reduced(self, damping: float) -> tuple[Float[Array, "p p"], Float[Array, " p"]]:
        A, g = self.A + damping * np.diag(np.diag(self.A)), self.g.copy()
        for B, C, h in zip(self.B, self.C, self.h, strict=True):
            if len(h):
                C = C + damping * np.diag(np.diag(C))
                BC = np.linalg.solve(C, B.T).T
                A, g = A - BC @ B.T, g - BC @ h
        return A, g

    def information(self) -> Float[Array, "p p"]:
        A, _ = self._reduced(0.0)
        return 0.5 * (A + A.T)

    def step(
        self, damping: float, lower: Float[Array, " p"], upper: Float[Array, " p"]
    ) -> tuple[Float[Array, " p"], list[Float[Array, " l"]], float]:
        """Returns the step of all unknowns within their bounds, that of the start states, and the expected gain."""
        A, g = self._reduced(damping)
        free = np.ones(len(g), dtype=bool)
        delta = np.zeros(len(g))
        for _ in range(len(g) + 1):  # unknowns that would leave their bounds are held there
            delta[free] = np.linalg.solve(A[np.ix_(free, free)], -g[free] - A[np.ix_(free, ~free)] @ delta[~free])
            out = free & ((delta < lower) | (delta > upper))
            if not out.any():
                break
            delta[out] = np.clip(delta[out], lower[out], upper[out])
            free &= ~out
        locals_ = [
            np.linalg.solve(C + damping * np.diag(np.diag(C)), -h - B.T @ delta) if len(h) else np.zeros(0)
            for B, C, h in zip(self.B, self.C, self.h, strict=True)
        ]
        return delta, locals_, float(0.5 * delta @ A @ delta)


def _scale(errors: Float[Array, " m"]) -> float:
    """Returns the standard deviation of errors (given by size) but for outliers, which count as if at the limit."""
    scale = float(np.sqrt(np.mean(errors**2)))
    for _ in range(5):
        scale = float(np.sqrt(np.mean(np.minimum(errors, HUBER * scale) ** 2)))
    return scale


def _huber(r: Float[Array, "*n"]) -> Float[Array, "*n"]:
    a = np.abs(r)
    cost = np.where(a <= HUBER, 0.5 * r * r, HUBER * (a - 0.5 * HUBER))
    return np.where(np.isfinite(cost), cost, np.inf)


def _correlation(pieces: Sequence[Float[Array, " m"]]) -> float:
    """Returns the integrated autocorrelation time of errors, in samples; 1 if they are independent."""
    total = sum(float(piece @ piece) for piece in pieces)
    longest = min(max(len(piece) for piece in pieces) - 1, 400)
    if total <= 0:
        return 1.0
    tau = 1.0
    for lag in range(1, longest):
        rho = sum(float(piece[lag:] @ piece[:-lag]) for piece in pieces if len(piece) > lag) / total
        if rho < 0.05:
            break
        tau += 2.0 * rho
    return tau
