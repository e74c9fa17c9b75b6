"""One pool as one process sees it: the client, the gate, the health of the engine, the estimates."""

from dataclasses import dataclass, field

from scheduler.duration import DurationEstimator
from scheduler.estimate import TokenEstimator
from scheduler.permit import Ask
from tickets_batch.settings import Pool
from workers.client import ModelClient
from workers.gate import Gate
from workers.health import EndpointHealth


@dataclass(slots=True)
class Endpoint:
    """Everything a process needs to call one pool."""

    pool: Pool
    client: ModelClient
    gate: Gate
    health: EndpointHealth = field(default_factory=EndpointHealth)
    estimator: TokenEstimator = field(default_factory=TokenEstimator)
    durations: DurationEstimator = field(default_factory=DurationEstimator)

    def ask(self, prompt_bytes: int, output_cap: int) -> Ask:
        """What a request of this size is to be admitted with."""
        prompt_tokens = self.estimator.of_bytes(prompt_bytes)
        expected_ms = max(1, round(1000 * self.durations.predict(prompt_tokens, output_cap)))
        return Ask(prompt_tokens, output_cap, expected_ms)
