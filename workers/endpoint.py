"""One pool as one process sees it: the client, the gate, the health of the engine, the token estimate."""

from dataclasses import dataclass, field

from scheduler.estimate import TokenEstimator
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
