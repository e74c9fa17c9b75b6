"""What the demo's chat felt and what its batch got, in a few lines. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scheduler.pool_reading import quantile
from tickets_batch.demo.chat import Answer
from tickets_batch.words import counted


@dataclass(frozen=True, slots=True)
class Got:
    """What batch got: tickets answered, in how many seconds, for how many of them it might hold its floor only.

    `asked_back` tickets went back to the line because the chat came first.
    """

    tickets: int
    seconds: float
    at_floor_seconds: float
    asked_back: int

    @property
    def per_minute(self) -> float:
        """Tickets answered in a minute."""
        return 60 * self.tickets / self.seconds if self.seconds else 0.0


def chat_in_words(alone: Sequence[Answer], beside: Sequence[Answer]) -> Iterator[str]:
    """How long people waited for the first word, before the batch and beside it."""
    yield "What the chat felt: from the question to the first word of the answer"
    yield f"{'':14}{'half within':>12}{'19 of 20 within':>17}{'questions':>11}{'refused':>9}"
    yield _row("alone", alone)
    yield _row("beside batch", beside)
    failed = sum(answer.ttft_seconds is None and not answer.is_refused for answer in (*alone, *beside))
    if failed:
        yield f"  {counted(failed, 'question')} got no answer at all"


def batch_in_words(got: Got, *, slots: int, most_slots: int, floor_slots: int) -> Iterator[str]:
    """What batch did meanwhile, and what that was worth to the chat."""
    yield "What the batch got: what the chat left"
    yield f"  {counted(got.tickets, 'ticket')} in {got.seconds:.0f} s, {got.per_minute:.0f} a minute"
    yield f"  up to {most_slots} of {counted(slots, 'slot')} at a time"
    yield f"  only {floor_slots}, its floor, for {got.at_floor_seconds:.0f} s: the chat needed the rest"
    back = counted(got.asked_back, "ticket")
    yield f"  {back} asked back in the middle and done again: a question came first"


def _row(name: str, answers: Sequence[Answer]) -> str:
    waited = [answer.ttft_seconds for answer in answers if answer.ttft_seconds is not None]
    refused = sum(answer.is_refused for answer in answers)
    return (
        f"  {name:12}{_seconds(quantile(waited, 0.5)):>12}{_seconds(quantile(waited, 0.95)):>17}"
        f"{len(answers):>11}{refused:>9}"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
