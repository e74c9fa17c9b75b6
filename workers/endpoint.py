"""One pool as one process sees it: the client, the gate, the health of the engine, the estimates."""

from dataclasses import dataclass, field

from scheduler.duration import DurationEstimator
from scheduler.estimate import TokenEstimator
from scheduler.permit import Ask
from tickets_batch.settings import Pool
from workers.client import ModelClient
from workers.cutting import Cutting
from workers.gate import Gate
from workers.health import EndpointHealth

WHOLE_IN_A_ROW = 8  # answers that came in one piece before no first token is expected any more


@dataclass(slots=True)
class Endpoint:
    """Everything a process needs to call one pool."""

    pool: Pool
    client: ModelClient
    gate: Gate
    health: EndpointHealth = field(default_factory=EndpointHealth)
    estimator: TokenEstimator = field(default_factory=TokenEstimator)
    durations: DurationEstimator = field(default_factory=DurationEstimator)
    cutting: Cutting = field(default_factory=Cutting)
    _whole_in_a_row: int = 0

    @property
    def most_tokens(self) -> int:
        """The largest request of batch that the pool could ever carry."""
        return self.pool.capacity.tokens - self.pool.protected.interactive.tokens

    def ask(self, prompt_bytes: int, output_cap: int) -> Ask:
        """What a request of this size is to be admitted with.

        Where answers come in one piece it waits for no first token: the prompts would hold the prefill window until
        the answers are there, and no rate would ever be learned to widen it.
        """
        prompt_tokens = self.estimator.within(prompt_bytes, self.most_tokens - output_cap)
        expected_ms = max(1, round(1000 * self.durations.predict(prompt_tokens, output_cap)))
        return Ask(prompt_tokens, output_cap, expected_ms, streamed=self._whole_in_a_row < WHOLE_IN_A_ROW)

    def heard(self, *, whole: bool) -> None:
        """An answer came: in one piece, or its first token before the rest."""
        self._whole_in_a_row = self._whole_in_a_row + 1 if whole else 0
