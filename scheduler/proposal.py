"""What a pool's `capacity` and `protected` should be, by what was measured: pure."""

from dataclasses import dataclass

from scheduler.capacity import Amount, PoolCapacity
from scheduler.curve import Curve

CHAT_SHARE = 0.4  # of the slots, where nothing is stored of the chat
FLOOR_SHARE = 0.1  # of the slots


@dataclass(frozen=True, slots=True)
class Proposal:
    """The lines, and why each number is what it is, a sentence each."""

    capacity: PoolCapacity
    reasons: tuple[str, ...]

    def as_toml(self) -> str:
        """The lines for the pool's table in `tickets-batch.toml`."""
        capacity = self.capacity
        lines = [f"capacity = {_table(capacity.total)}"]
        if not capacity.is_dedicated:
            lines.append(f"protected.interactive = {_table(capacity.protected_interactive)}")
        return "\n".join([*lines, f"protected.batch = {_table(capacity.floor)}"])


def propose(
    curve: Curve, configured: PoolCapacity, ttft_target_seconds: float, chat_peak_slots: int | None = None
) -> Proposal:
    """The capacity at which more would only make all slower, or the chat late; of it the shares of both classes.

    `chat_peak_slots` is the most that the chat usually has in flight, None where nothing is stored of it.
    """
    knee = curve.knee.in_flight
    slots, reasons = knee, [f"slots: the knee, nine tenths of the best tickets/s are reached at {knee} (measured)"]
    tokens = max(-(-configured.total.tokens // max(1, configured.total.slots)), curve.largest_tokens)
    token_reason = (
        f"tokens: {tokens:,} a slot, "
        + ("what 19 of 20 tickets ask for at most (measured)" if tokens == curve.largest_tokens else "as configured")
        + "; raise them for longer chat requests as far as the engine's KV cache has room"
    )
    if configured.is_dedicated:
        whole = Amount(slots, slots * tokens)
        return Proposal(PoolCapacity(whole, Amount(), whole), (*reasons, token_reason))
    within = curve.most_within(ttft_target_seconds)
    target = f"{ttft_target_seconds:g} s"
    if within is None and curve.is_probed:
        slots = 2
        reasons = [f"slots: at no number in flight did a chat probe wait less than {target} (measured): the least"]
    elif within is not None and within.in_flight < knee:
        slots = within.in_flight
        reasons = [f"slots: with more in flight a chat probe waited longer than {target} (measured)"]
    slots = max(2, slots)
    floor = max(1, round(FLOOR_SHARE * slots))
    if chat_peak_slots is None:
        chat = round(CHAT_SHARE * slots)
        reasons.append("interactive: two fifths (assumed: nothing is stored of the chat yet)")
    else:
        chat = chat_peak_slots + 1
        reasons.append(f"interactive: one more than the {chat_peak_slots} that 19 of 20 samples stay within (stored)")
    chat = min(max(1, chat), slots - floor)
    reasons.append("batch: a tenth of the slots, at least one (assumed); plan --tickets --deadline says what it does")
    return Proposal(
        PoolCapacity(Amount(slots, slots * tokens), Amount(chat, chat * tokens), Amount(floor, floor * tokens)),
        (*reasons, token_reason),
    )


def _table(amount: Amount) -> str:
    return f"{{ slots = {amount.slots}, tokens = {amount.tokens} }}"
