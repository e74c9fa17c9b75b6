"""A level that may drift, seen through noise: how far it can be trusted for the hours to come. Pure.

Several local-level models (Durbin and Koopman, Time Series Analysis by State Space Methods, chapter 2) run side by
side, from one whose level never moves to one that moves a good deal within an hour, each with and without a part that
comes and goes within minutes. What was seen weighs them by how well they would have foretold it, so a steady night
averages all it has seen and one that turned follows. The variance of the noise is learned with them (conjugate, so
errors are Student's t: little seen means wide).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BLOCK_SECONDS = 60.0  # the unit of the noise: what a mean over so long scatters
WANDER_SECONDS = 600.0  # how long the part that comes and goes stays
DRIFTS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)  # of the level in a block, as a variance relative to the noise
WANDERS = (0.0, 0.5, 2.0)  # of the part that comes and goes, as a variance relative to the noise
GUESSED_NOISE = 0.25  # of a block, relative to the level, until more has been seen
GUESS_WEIGHT = 2.0  # blocks' worth of that guess
JUMP = 0.5  # of the level when it jumps, relative to it
JUMP_CHANCE = 1 / 480  # of a jump in a block: one in a night


@dataclass(frozen=True, slots=True)
class Block:
    """The mean of a stretch of `seconds` that ended at `at` (seconds on any one clock)."""

    at: float
    seconds: float
    value: float


@dataclass(frozen=True, slots=True)
class Prior:
    """What was thought of the level before the first block."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """What one model says of the time to come, and its weight among the models; variances are absolute."""

    weight: float
    level: float
    wander: float
    level_variance: float
    covariance: float
    wander_variance: float
    drift_variance: float  # added to the level's in each second
    wander_spread: float  # the variance of the part that comes and goes, in the long run
    noise_variance: float  # of a mean over BLOCK_SECONDS

    def sum_variance(self, seconds: float) -> float:
        """The variance of the level's integral over the `seconds` to come, noise included."""
        lasting = WANDER_SECONDS * -math.expm1(-seconds / WANDER_SECONDS)
        known = (
            self.level_variance * seconds**2
            + 2 * self.covariance * seconds * lasting
            + self.wander_variance * lasting**2
        )
        drift = self.drift_variance * seconds**3 / 3
        # The integral of an Ornstein-Uhlenbeck process that starts at a known value.
        fresh = WANDER_SECONDS * (2 * seconds - 3 * WANDER_SECONDS)
        fresh += WANDER_SECONDS**2 * (4 * math.exp(-seconds / WANDER_SECONDS) - math.exp(-2 * seconds / WANDER_SECONDS))
        return known + drift + self.wander_spread * max(0.0, fresh) + self.noise_variance * BLOCK_SECONDS * seconds

    def sum_wander(self, seconds: float) -> float:
        """What the part that comes and goes still adds over the `seconds` to come."""
        return self.wander * WANDER_SECONDS * -math.expm1(-seconds / WANDER_SECONDS)


def expectations(blocks: Sequence[Block], scale: float, prior: Prior | None = None) -> list[Expectation]:
    """One for each model, weights summing to 1. `scale` is the usual size of a value, for the guess of the noise.

    Without blocks and without a prior: none.
    """
    if (not blocks and prior is None) or scale <= 0:
        return []
    models = [_Model(drift, wander, scale, prior) for drift in DRIFTS for wander in WANDERS]
    for model in models:
        model.run(blocks)
    best = max(model.log_evidence for model in models)
    weights = [math.exp(model.log_evidence - best) for model in models]
    whole = math.fsum(weights)
    return [model.expectation(weight / whole) for model, weight in zip(models, weights, strict=True)]


class _Model:
    """A Kalman filter over (level, wander) with all variances relative to the noise of a block.

    In each block the level may also have jumped; the two possibilities are merged into one after it, as a first-order
    generalized pseudo-Bayesian estimator does (Bar-Shalom et al., Estimation with Applications to Tracking and
    Navigation, section 11.6).
    """

    def __init__(self, drift: float, wander: float, scale: float, prior: Prior | None) -> None:
        self._drift, self._wander = drift, wander
        self._guess = (GUESSED_NOISE * scale) ** 2
        self._jump = (JUMP * scale) ** 2
        self._is_known = prior is not None
        self._level = prior.mean if prior else 0.0
        self._p = prior.deviation**2 / self._guess if prior else 0.0
        self._away, self._c, self._w = 0.0, 0.0, wander
        self._seen = 0
        self._squares = 0.0
        self.log_evidence = 0.0

    def run(self, blocks: Iterable[Block]) -> None:
        at: float | None = None
        for block in blocks:
            noise = BLOCK_SECONDS / block.seconds
            if self._is_known:
                self._wait(block.seconds if at is None else max(0.0, block.at - at))
                self._see(block.value, noise)
            else:  # nothing was thought of the level: the first block says it all
                self._is_known = True
                self._level, self._p, self._c = block.value, self._wander + noise, -self._wander
            at = block.at

    def _wait(self, seconds: float) -> None:
        kept = math.exp(-seconds / WANDER_SECONDS)
        self._p += self._drift * seconds / BLOCK_SECONDS
        self._away *= kept
        self._c *= kept
        self._w = self._w * kept**2 + self._wander * (1 - kept**2)

    def _see(self, value: float, noise: float) -> None:
        p, c, w, unit = self._p, self._c, self._w, self._noise
        jump = self._jump / unit
        miss = value - self._level - self._away
        spread = p + 2 * c + w + noise
        stayed = math.log(1 - JUMP_CHANCE) + _log_density(miss, unit * spread)
        jumped = math.log(JUMP_CHANCE) + _log_density(miss, unit * (spread + jump))
        seen = max(stayed, jumped) + math.log1p(math.exp(-abs(stayed - jumped)))
        share = math.exp(jumped - seen)
        self.log_evidence += seen
        gain, gain_jumped = (p + c) / spread, (p + jump + c) / (spread + jump)
        away, away_jumped = (c + w) / spread, (c + w) / (spread + jump)
        apart, apart_away = (gain_jumped - gain) * miss, (away_jumped - away) * miss
        both = share * (1 - share) / unit
        self._level += (1 - share) * gain * miss + share * gain_jumped * miss
        self._away += (1 - share) * away * miss + share * away_jumped * miss
        self._p = (1 - share) * (p - gain * (p + c)) + share * (p + jump - gain_jumped * (p + jump + c))
        self._c = (1 - share) * (c - gain * (c + w)) + share * (c - gain_jumped * (c + w))
        self._w = (1 - share) * (w - away * (c + w)) + share * (w - away_jumped * (c + w))
        self._p += both * apart**2
        self._c += both * apart * apart_away
        self._w += both * apart_away**2
        self._seen += 1
        self._squares += (1 - share) * miss**2 / spread + share * miss**2 / (spread + jump)

    @property
    def _noise(self) -> float:
        return (GUESS_WEIGHT * self._guess + self._squares) / (GUESS_WEIGHT + self._seen)

    def expectation(self, weight: float) -> Expectation:
        freedom = GUESS_WEIGHT + self._seen
        noise = self._noise * freedom / max(1.0, freedom - 2)  # Student's t is wider than the normal in its place
        return Expectation(
            weight,
            self._level,
            self._away,
            self._p * noise,
            self._c * noise,
            self._w * noise,
            self._drift * noise / BLOCK_SECONDS,
            self._wander * noise,
            noise,
        )


def _log_density(miss: float, variance: float) -> float:
    """Of a normal distribution around nought, but for a constant."""
    return -0.5 * (miss**2 / variance + math.log(variance))
