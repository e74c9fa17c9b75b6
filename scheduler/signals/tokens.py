"""How many tokens a chat request holds, where only the number of requests is seen. Pure."""

from scheduler.capacity import Amount, PoolCapacity

LEARNING_SHARE = 0.05  # of one reading in the mean


class TokensPerRequest:
    """The mean over what the ledger's own chat requests held; until there were any, a slot's share of the capacity."""

    def __init__(self, capacity: PoolCapacity) -> None:
        usual = capacity.protected_interactive if capacity.protected_interactive.slots else capacity.total
        self._mean = usual.tokens / max(1, usual.slots)

    def learn(self, in_flight: Amount) -> None:
        """What chat holds now, as the ledger counts it."""
        if in_flight.slots > 0:
            self._mean += LEARNING_SHARE * (in_flight.tokens / in_flight.slots - self._mean)

    def amount(self, requests: int) -> Amount:
        """So many requests, on both axes."""
        return Amount(requests, round(requests * self._mean))
