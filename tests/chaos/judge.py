"""The judge: what a run must not have done, told from its evidence alone.

Every rule gives complaints, one line each; a run without any has passed. What a fault explains is no complaint, and
how much it explains is bounded here, by the promises of the design's first section.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from jobs.outcomes import Symptom
from jobs.states import JobState
from scheduler.capacity import Amount
from scheduler.ledger import LEASE_SECONDS
from tests.chaos.evidence import Evidence, Incident, JobLeft
from tests.chaos.plan import EVERYTHING, PARTS, SCHEDULERS, WORKERS
from tests.chaos.world import ATTEMPTS, JOB_LEASE_SECONDS, SLOTS
from tests.engine.answer import expected_label, ticket_hash
from tests.engine.log import LogRow
from tests.support.chat import NUMBER, Felt, Outcome
from tests.support.promise import UNFLUSHED
from tests.support.shift import LABELS

SLACK_SECONDS = 0.5  # between the clocks of two processes, and for what is on its way
RECLAIM_SECONDS = 2.0  # asked back, heard of by renewal, closed, noticed by the engine
AFTERMATH_SECONDS = LEASE_SECONDS + 3.0  # for so long a fault may still show at the engine
UNHARMED_SECONDS = JOB_LEASE_SECONDS / 3  # then one renewal fails, and two more are tried in time
COMMIT_SECONDS = 3.0  # from the end of an answer until its result is written, on a busy machine
SHOWN = 5  # of many complaints alike, and of many names in one

# An attempt that ends in one of these has cost the ticket one of its tries.
_SPENDING = frozenset({Symptom.SERVER_ERROR, Symptom.TIMED_OUT, Symptom.DISCONNECTED, Symptom.INVALID_OUTPUT})
_NOT_CALLED = frozenset({Symptom.UNREACHABLE, Symptom.TOO_LARGE})  # an attempt in which nothing was sent
# Wrong in form, and yet there is no doubt which label is meant.
_UNDERSTOOD = frozenset({"fenced", "list", "ignore_response_format"})
_ENDING = frozenset({"refused", "too_long"})  # by the engine's own word, at once


def judge(evidence: Evidence) -> list[str]:
    """Every complaint about a run."""
    rules = (_lost, _results, _failures, _repeats, _paid_again, _permits, _capacity, _chat, _surprises)
    return list(chain.from_iterable(islice(rule(evidence), SHOWN) for rule in rules))


def repeated(evidence: Evidence) -> int:
    """Answers that the engine gave in full and of which the store knows nothing."""
    answered = Counter(
        row.ticket
        for row in _calls(evidence)
        if row.outcome == "ok" or (row.fault in _UNDERSTOOD and row.label is not None)
    )
    unknown = _unaccounted(evidence)
    kept = Counter(ticket for ticket, job in _jobs(evidence).items() if job.labels)
    return sum(max(0, min(unknown[ticket], answered[ticket] - kept[ticket])) for ticket in answered)


def may_be_repeated(evidence: Evidence) -> int:
    """The most of them that may be: what was in flight when workers lost lives or leases, one unflushed write each."""
    calls = [row for row in _rows(evidence) if row.klass == "batch"]
    return sum(len(_held(calls, loss.began_at)) + UNFLUSHED * loss.workers for loss in _losses(evidence))


# --- the rules


def _lost(evidence: Evidence) -> Iterator[str]:
    found = Counter(job.custom_id for job in evidence.jobs)
    if missing := evidence.tickets.keys() - found.keys():
        yield f"lost: {_some(missing)} are not in the store"
    if more := [custom_id for custom_id, count in found.items() if count > 1]:
        yield f"lost: {_some(more)} are there more than once"
    if unfinished := [f"{job.custom_id} ({job.state})" for job in evidence.jobs if not job.state.is_final]:
        yield f"lost: {_some(unfinished)} have no final state; the batch is {evidence.batch_state}"
    elif not evidence.batch_state.is_final:
        yield f"lost: every ticket has ended and the batch is {evidence.batch_state}"
    if evidence.inconsistency:
        yield f"lost: {evidence.inconsistency}"


def _results(evidence: Evidence) -> Iterator[str]:
    said: dict[str, set[str]] = {}
    for row in evidence.engine:
        if row.label is not None:
            said.setdefault(row.ticket, set()).add(row.label)
    for job in evidence.jobs:
        if job.state is not JobState.SUCCEEDED:
            if job.labels:
                yield f"result: {job.custom_id} is {job.state} and has the result {job.labels[0]}"
            continue
        if len(job.labels) != 1 or job.symptoms.count(None) != 1:
            kept = job.symptoms.count(None)
            yield f"result: {job.custom_id} succeeded with {len(job.labels)} results of {kept} answers kept"
            continue
        text = evidence.tickets.get(job.custom_id, "")
        if job.labels[0] != expected_label(text, LABELS):
            yield f"result: {job.custom_id} is {job.labels[0]}, the engine's is {expected_label(text, LABELS)}"
        elif job.labels[0] not in said.get(ticket_hash(text), set()):
            yield f"result: the engine never said {job.labels[0]} of {job.custom_id}"


def _failures(evidence: Evidence) -> Iterator[str]:
    """A ticket fails by what the engine said of it, or after all of its tries."""
    scripted = {row.ticket for row in evidence.engine if row.fault is not None}
    for job in evidence.jobs:
        if job.state is JobState.SUCCEEDED or not job.state.is_final:
            continue
        if job.state is not JobState.FAILED:
            yield f"failure: {job.custom_id} is {job.state}, and nobody has asked for that"
            continue
        word = (job.error or "").partition(":")[0]
        if word in _ENDING:
            if ticket_hash(evidence.tickets[job.custom_id]) not in scripted:
                yield f"failure: {job.custom_id} failed ({job.error}) by no fault of the engine's script"
        elif sum(symptom in _SPENDING for symptom in job.symptoms) < ATTEMPTS:
            showed = ", ".join(map(str, job.symptoms)) or "nothing"
            yield f"failure: {job.custom_id} failed ({job.error}) after {showed}"


def _repeats(evidence: Evidence) -> Iterator[str]:
    """A call more than the store accounts for takes a fault that made a worker lose what it held, at that time."""
    count, most = repeated(evidence), may_be_repeated(evidence)
    if count > most:
        yield f"repeats: {count} answers were paid for twice, at most {most} may be"
    losses, calls = _losses(evidence), _calls(evidence)
    for ticket, more in sorted(_unaccounted(evidence).items()):
        flights = [(row.arrived_at, _end(row) + COMMIT_SECONDS) for row in calls if row.ticket == ticket]
        touched = sum(any(loss.overlaps(*flight) for flight in flights) for loss in losses)
        if more > touched:
            name = next((job.custom_id for key, job in _jobs(evidence).items() if key == ticket), ticket)
            yield f"repeats: {name} was called {len(flights)} times, {more - touched} more than attempts and faults say"


def _paid_again(evidence: Evidence) -> Iterator[str]:
    """A committed result is never paid for again, but by a worker that was not there when its lease ran out."""
    if _is_sqlite(evidence) and any(incident.fault.kind == "clock step" for incident in evidence.incidents):
        return  # there the time of a commit is that of the process that made it
    zombies = [loss for loss in _losses(evidence) if loss.leaves_zombies]
    committed = {ticket: job.finished_at for ticket, job in _jobs(evidence).items() if job.labels}
    for row in _calls(evidence):
        at = committed.get(row.ticket)
        if at is None or row.arrived_at <= at + SLACK_SECONDS:
            continue
        if not any(loss.overlaps(row.arrived_at, row.arrived_at) for loss in zombies):
            yield f"paid again: a call at {row.arrived_at:.2f} for a ticket whose result was committed at {at:.2f}"


def _permits(evidence: Evidence) -> Iterator[str]:
    left = evidence.permits
    for name, amount in (("batch", left.batch), ("chat", left.interactive), ("reclaiming", left.reclaiming)):
        if amount != Amount(0, 0):
            yield f"permits: {name} still holds {amount.slots} slots and {amount.tokens} tokens"
    if left.prefill_tokens:
        yield f"permits: {left.prefill_tokens} prompt tokens are still booked"


def most_at_engine(evidence: Evidence) -> int:
    """The most requests that the engine held at one moment."""
    rows = _rows(evidence)
    return max((len(_held(rows, row.arrived_at)) for row in rows), default=0)


def _capacity(evidence: Evidence) -> Iterator[str]:
    """At the engine there is never more than its slots, but for what is being reclaimed or was in flight at a fault."""
    rows = _rows(evidence)
    shaken = [(i.began_at, i.over_at + _shakes_on_seconds(i)) for i in evidence.incidents if _shakes_capacity(i)]
    strange = [row for row in rows if not any(_overlap((row.arrived_at, _end(row)), each) for each in shaken)]
    worst: tuple[int, float] | None = None
    for at in sorted(row.arrived_at for row in strange):
        held = [row for row in _held(strange, at) if row.outcome != "aborted" or _end(row) - at >= RECLAIM_SECONDS]
        if len(held) > SLOTS and (worst is None or len(held) > worst[0]):
            worst = len(held), at
    if worst is not None:
        count, at = worst
        yield f"capacity: {count} requests that no fault explains at an engine of {SLOTS} slots at {at:.2f}"


def _chat(evidence: Evidence) -> Iterator[str]:
    met = {row.headers.get(NUMBER): row for row in evidence.engine if row.klass == "interactive"}
    for felt in evidence.chat:
        row = met.get(str(felt.number))
        if felt.outcome is Outcome.ANSWERED or (row is not None and row.fault is not None):
            continue
        if felt.outcome is Outcome.HUNG:
            yield f"chat: request {felt.number} of {felt.sent_at:.2f} hung: {felt.detail}"
        elif felt.outcome is Outcome.REFUSED and not _during(evidence, felt, _crowds_chat):
            yield f"chat: request {felt.number} of {felt.sent_at:.2f} was refused, and no fault had crowded the chat"
        elif felt.outcome is Outcome.FAILED and not _during(evidence, felt, _breaks_chat):
            yield f"chat: request {felt.number} of {felt.sent_at:.2f} failed: {felt.detail}"


def _surprises(evidence: Evidence) -> Iterator[str]:
    """An error that a part did not expect is a fault even where nothing came of it."""
    for each in evidence.tracebacks:
        yield f"surprise: {each}"


# --- what a fault explains


@dataclass(frozen=True, slots=True)
class _Loss:
    """Workers lost what they held: their lives, or leases that nobody could renew in time."""

    workers: int
    began_at: float
    until: float
    leaves_zombies: bool  # they go on with what they have lost, until they are told

    def overlaps(self, began_at: float, ended_at: float) -> bool:
        return _overlap((began_at, ended_at), (self.began_at, self.until))


def _losses(evidence: Evidence) -> list[_Loss]:
    found = ((incident, _workers_hit(incident, evidence)) for incident in evidence.incidents)
    return [
        _Loss(workers, incident.began_at, incident.over_at + after_seconds, after_seconds > 0.0)
        for incident, (workers, after_seconds) in found
        if workers
    ]


def _workers_hit(incident: Incident, evidence: Evidence) -> tuple[int, float]:
    """How many workers may lose what they hold by it, and for how long after it they may not know."""
    fault = incident.fault
    lasted_seconds = incident.over_at - incident.began_at
    if fault.kind == "kill" and fault.target in (*PARTS, EVERYTHING):
        return _many_of(fault.target), 0.0
    if fault.kind == "clock step":  # on PostgreSQL the time is the server's
        return (len(WORKERS) if _is_sqlite(evidence) else 0), math.inf
    # Who stands still within a transaction keeps locks on the batch's own row, for which every worker then waits.
    if fault.kind == "half-open" and fault.target.endswith("- database"):
        return len(WORKERS), math.inf  # found out when the connection is used, or after long silence
    if lasted_seconds < UNHARMED_SECONDS:
        return 0, 0.0
    if fault.kind == "refuse" and fault.target.endswith("- database"):
        return _many_of(fault.target), JOB_LEASE_SECONDS
    if (
        fault.target in ("postgresql", EVERYTHING, *SCHEDULERS, *WORKERS)
        or (fault.kind == "disk full" and fault.target == evidence.plan.database)
        or fault.target.endswith("- database")
    ):
        return len(WORKERS), JOB_LEASE_SECONDS
    return 0, 0.0


def _many_of(target: str) -> int:
    """How many workers a target is, or is of."""
    return len(WORKERS) if target == EVERYTHING else int(target.startswith(WORKERS))


def _touches(incident: Incident, *services: str) -> bool:
    fault = incident.fault
    if fault.target == EVERYTHING:
        return fault.kind in ("kill", "pause")
    names = {"redis": "valkey", "engine": "engine"}
    return any(
        fault.target.endswith(f"- {service}") or names[service] in (fault.target, fault.kind.rpartition(" ")[2])
        for service in services
    ) or (fault.kind == "engine says" and "engine" in services)


def _shakes_capacity(incident: Incident) -> bool:
    """Whether somebody may go on at the engine whom the ledger no longer counts, or nobody is asked."""
    fault = incident.fault
    is_late = fault.kind in ("pause", "stall") and fault.target.startswith((*WORKERS, "gateway", EVERYTHING))
    return is_late or _touches(incident, "redis", "engine")


def _shakes_on_seconds(incident: Incident) -> float:
    """Whoever is half-open finds out later than the fault is over."""
    return AFTERMATH_SECONDS if incident.fault.kind == "half-open" else SLACK_SECONDS


def _crowds_chat(incident: Incident) -> float | None:
    """For how long after a fault chat requests may be refused, where it makes them pile up or the engine full."""
    is_cause = incident.fault.target.startswith("gateway") or _touches(incident, "redis", "engine")
    return AFTERMATH_SECONDS if is_cause else None


def _breaks_chat(incident: Incident) -> float | None:
    """For how long after a fault chat requests may break, where it ends connections or spoils answers."""
    fault = incident.fault
    if fault.kind == "half-open":  # found out when an idle connection is used
        return AFTERMATH_SECONDS if fault.target == "gateway - engine" else None
    is_cause = (
        (fault.target in ("gateway", EVERYTHING) and fault.kind != "clock step")
        or fault.target in ("gateway - engine", "engine")
        or fault.kind == "engine says"
    )
    return SLACK_SECONDS if is_cause else None


def _during(evidence: Evidence, felt: Felt, explains: Callable[[Incident], float | None]) -> bool:
    for incident in evidence.incidents:
        after_seconds = explains(incident)
        if after_seconds is None or felt.ended_at < incident.began_at - SLACK_SECONDS:
            continue
        if felt.sent_at <= incident.over_at + after_seconds:
            return True
    return False


def _is_sqlite(evidence: Evidence) -> bool:
    return evidence.plan.database == "sqlite"


def _jobs(evidence: Evidence) -> dict[str, JobLeft]:
    """By the hash of their tickets' texts, as the engine's log has them."""
    texts = evidence.tickets
    return {ticket_hash(texts[job.custom_id]): job for job in evidence.jobs if job.custom_id in texts}


def _calls(evidence: Evidence) -> list[LogRow]:
    return [row for row in evidence.engine if row.klass == "batch"]


def _unaccounted(evidence: Evidence) -> Counter[str]:
    """How many calls for each ticket are more than the attempts that the store has of it."""
    made = Counter(row.ticket for row in _calls(evidence))
    for ticket, job in _jobs(evidence).items():
        made[ticket] -= sum(symptom not in _NOT_CALLED for symptom in job.symptoms)
    return +made


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _rows(evidence: Evidence) -> list[LogRow]:
    """The requests that took time at the engine."""
    return [row for row in evidence.engine if row.ended_at is not None and row.ended_at > row.arrived_at]


def _held(rows: Iterable[LogRow], at: float) -> list[LogRow]:
    return [row for row in rows if row.arrived_at <= at < _end(row)]


def _end(row: LogRow) -> float:
    assert row.ended_at is not None
    return row.ended_at


def _some(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
