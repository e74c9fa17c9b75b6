"""How long a batch request will take, before the engine has said so; pure.

The first guess is that of a 7B model on one middle GPU. It corrects itself from the requests that ended: how many
seconds a prompt token and an output token take, and how much of its output cap an answer uses.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OUTPUT_TOKEN_SECONDS = 0.028
PROMPT_TOKEN_SECONDS = 8e-5
FIRST_FACTOR = 1.25  # cautious until requests have ended
WINDOW = 48  # requests that count: a few dozen, so that an engine that gets slower or faster is followed
ENOUGH = 8  # requests before they are believed
UPPER_QUANTILE = 0.9
PREFILL_QUANTILE = 0.25  # of the times to a first token: those that stood in no queue
TOGETHER = 0.01  # the pull of the two factors towards each other, as a share of all requests: a mix overcomes it
LEAST_SHARE = 0.01  # of the common factor that one of the two has at least
ROUNDS = 5  # of the fit: each one believes less of what lies far off
FIT_EVERY = 4  # requests
LEAST_SECONDS = 0.001  # shorter times are the clock's


@dataclass(frozen=True, slots=True)
class _Ended:
    """A request by the first guess: its seconds as a multiple of it, and the part of it that is output."""

    multiple: float
    output_part: float
    output_share: float  # of the cap
    prompt_token_seconds: float | None


class DurationEstimator:
    """Estimates seconds for one engine: a multiple of the first guess for prompt and for output, and an upper quantile.

    The two multiples are fitted to the last requests (least absolute relative error), and held together where these are
    alike, so that a mix of long prompts and long answers is told apart. What the fit leaves open, such as a queue, and
    how long answers are, goes in as an upper quantile: the estimate is more often too long than too short.
    """

    def __init__(self) -> None:
        self._ended: deque[_Ended] = deque(maxlen=WINDOW)
        self._count = 0
        self._prompt_factor = self._output_factor = FIRST_FACTOR
        self._output_share = 1.0
        self._prefill_seconds = PROMPT_TOKEN_SECONDS

    def predict(self, prompt_tokens: int, output_cap: int) -> float:
        """Seconds that a request will take from being sent to its last token, more often too many than too few."""
        prompt_seconds = PROMPT_TOKEN_SECONDS * prompt_tokens * self._prompt_factor
        return prompt_seconds + OUTPUT_TOKEN_SECONDS * output_cap * self._output_share * self._output_factor

    def prefilled(self, prompt_tokens: int, seconds: float) -> int:
        """How much of a prompt an engine without a queue has read `seconds` after it was sent, in tokens."""
        return min(prompt_tokens, int(max(0.0, seconds) / self._prefill_seconds))

    def learn(
        self,
        prompt_tokens: int,
        output_tokens: int,
        output_cap: int,
        seconds: float,
        ttft_seconds: float | None = None,
    ) -> None:
        """Take in a request that ended by itself, as the engine counted it; what tells nothing is left out."""
        if prompt_tokens < 1 or output_tokens < 1 or output_cap < 1 or seconds <= 0:
            return
        output_seconds = OUTPUT_TOKEN_SECONDS * output_tokens
        guess = output_seconds + PROMPT_TOKEN_SECONDS * prompt_tokens
        share = min(1.0, output_tokens / output_cap)
        prefill = None if ttft_seconds is None else max(ttft_seconds, LEAST_SECONDS) / prompt_tokens
        self._ended.append(_Ended(max(seconds, LEAST_SECONDS) / guess, output_seconds / guess, share, prefill))
        self._count += 1
        if self._count >= ENOUGH and self._count % FIT_EVERY == 0:
            self._fit()

    def _fit(self) -> None:
        prompt, output = _factors(self._ended)
        rest = _quantile(
            (e.multiple / (e.output_part * output + (1 - e.output_part) * prompt) for e in self._ended), UPPER_QUANTILE
        )
        self._prompt_factor, self._output_factor = prompt * rest, output * rest
        self._output_share = _quantile((e.output_share for e in self._ended), UPPER_QUANTILE)
        prefills = [e.prompt_token_seconds for e in self._ended if e.prompt_token_seconds is not None]
        if len(prefills) >= ENOUGH:
            self._prefill_seconds = _quantile(prefills, PREFILL_QUANTILE)


def _factors(ended: Sequence[_Ended]) -> tuple[float, float]:
    """The multiples for prompt and for output that fit best: iteratively reweighted least squares."""
    common = _quantile((e.multiple for e in ended), 0.5)
    prompt = output = common
    for _ in range(ROUNDS):
        pp = po = oo = py = oy = 0.0
        for e in ended:
            part, rest = e.output_part, 1 - e.output_part
            fit = part * output + rest * prompt
            weight = 1 / (fit * max(abs(e.multiple - fit), 0.05 * fit))
            pp, po, oo = pp + weight * rest * rest, po + weight * rest * part, oo + weight * part * part
            py, oy = py + weight * rest * e.multiple, oy + weight * part * e.multiple
        p_pull, o_pull = TOGETHER * len(ended) / prompt**2, TOGETHER * len(ended) / output**2
        pp, oo, py, oy = pp + p_pull, oo + o_pull, py + p_pull * common, oy + o_pull * common
        determinant = pp * oo - po * po  # above zero: the pull is
        prompt = max((py * oo - oy * po) / determinant, LEAST_SHARE * common)
        output = max((oy * pp - py * po) / determinant, LEAST_SHARE * common)
    return prompt, output


def _quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[int(share * (len(ordered) - 1))]
