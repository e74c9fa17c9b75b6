"""The engine as its clients see it: it reads calls, lets the core work on them and turns its events into answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.engine.request import Aborted, Event, Finished, FirstToken, Request, Stall, Token
from tests.engine import wire
from tests.engine.answer import AnswerSettings, ticket_hash
from tests.engine.call import Call, Prompt, Surface, kept_headers, read_prompt
from tests.engine.driver import RealTimeDriver
from tests.engine.faults import REFUSALS, WRONG_ANSWERS, Fault, FaultPlan
from tests.engine.http import Exchange
from tests.engine.log import LogRow, RequestLog
from tests.engine.metrics import EngineMetrics
from tests.engine.misanswer import wrong_answer
from tests.engine.refusals import (
    Refusal,
    no_such_model,
    overloaded,
    priority_not_enabled,
    scripted,
    too_long,
    unauthorized,
)


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What the server shows of itself.

    A chunk is sent for every `stream_interval`-th token, as vLLM's option of that name does; the first is never held
    back. `metrics_gone` answers 404 for /metrics. `log_text` keeps the tickets' text in the log.
    """

    model: str = "test-model"
    api_key: str | None = None
    answer: AnswerSettings = field(default_factory=AnswerSettings)
    stream_interval: int = 1
    log_text: bool = False
    metrics_gone: bool = False

    def changed(self, values: Mapping[str, Any]) -> Self:
        """A copy with some fields changed, those of `answer` included; a ValueError names what does not exist."""
        own = {item.name for item in fields(self)} - {"answer", "model"}
        of_answer = {item.name for item in fields(AnswerSettings)}
        unknown = sorted(set(values) - own - of_answer)
        if unknown:
            raise ValueError(f"unknown setting {unknown[0]!r}")
        answer = replace(self.answer, **{name: values[name] for name in values if name in of_answer})
        return replace(self, answer=answer, **{name: values[name] for name in values if name in own})


class ModelService:
    """Serves calls on one event loop; everything here runs on that loop's thread."""

    def __init__(
        self, profile: EngineProfile, settings: ServiceSettings | None = None, log_path: Path | None = None
    ) -> None:
        self.settings = self._first_settings = settings or ServiceSettings()
        self._first_profile = profile
        self.driver = RealTimeDriver(profile, self._on_event, self._flush)
        self.log = RequestLog(log_path)
        self.faults = FaultPlan()
        self.metrics = EngineMetrics(self.settings.model)
        self._calls: dict[str, Call] = {}
        self._touched: dict[str, Call] = {}
        self._number = 0
        self._serial = 0  # never reset: ids stay unique

    def authorize(self, exchange: Exchange) -> None:
        """Raises Refusal for a request without the key, where there is one."""
        refusal = self._key_refusal(exchange)
        if refusal is not None:
            raise refusal

    def serve(self, exchange: Exchange, surface: Surface) -> None:
        """Answer one completion request, now or as the engine gets to it. Raises Refusal for one it cannot read."""
        call = self._read(exchange, surface)
        if call.fault is not None and call.fault.kind == "drop_before_headers":
            exchange.drop()
            self._end(call, f"fault:{call.fault.kind}")
            return
        scripted_refusal = _scripted_refusal(call)
        refusal = scripted_refusal or self._own_refusal(call) or self._submit(call)
        if refusal is not None:
            call.row.status = refusal.status
            self._end(call, f"fault:{call.row.fault}" if scripted_refusal else "rejected")
            exchange.respond(refusal.status, refusal.encoded(), headers=refusal.headers)

    def reset(self) -> None:
        """Be as at the start: settings, profile, counters, no log, no faults, not frozen; calls under way go on."""
        self.settings = self._first_settings
        self.driver.set_profile(self._first_profile)
        self.driver.thaw()
        self.log.clear()
        self.faults = FaultPlan()
        self.metrics = EngineMetrics(self.settings.model)
        self.driver.core.forget_prefixes()
        self._number = 0

    def under_way(self) -> list[LogRow]:
        """The rows of calls that have not ended."""
        return [call.row for call in self._calls.values()]

    def close(self) -> None:
        self.driver.close()
        self.log.close()

    # A call comes in.

    def _read(self, exchange: Exchange, surface: Surface) -> Call:
        settings = self.settings
        prompt = read_prompt(exchange.request, surface, settings.answer.bytes_per_token)
        self._number += 1
        self._serial += 1
        row = LogRow(
            number=self._number,
            id=f"{'chatcmpl' if surface == 'chat' else 'cmpl'}-{self._serial}",
            klass=prompt.klass,
            priority=prompt.priority,
            stream=prompt.stream,
            ticket=ticket_hash(prompt.ticket),
            prompt_tokens=prompt.prompt_tokens,
            max_tokens=prompt.max_tokens,
            arrived_at=self.driver.clock.wall_now(),
            headers=kept_headers(exchange.request.headers),
            text=prompt.ticket if settings.log_text else None,
        )
        fault = self.faults.draw(row.number, prompt.ticket, prompt.klass)
        answer = prompt.right_answer(settings.answer)
        if fault is not None:
            row.fault = fault.kind
            if fault.kind in WRONG_ANSWERS:
                answer = wrong_answer(fault, answer, prompt, settings.answer)
        created = int(row.arrived_at)
        head = wire.event_head(surface, row.id, created, prompt.model)
        return Call(prompt, answer, fault, exchange, row, created, head)

    def _key_refusal(self, exchange: Exchange) -> Refusal | None:
        key = self.settings.api_key
        if key is None or exchange.request.headers.get("authorization") == f"Bearer {key}":
            return None
        return unauthorized()

    def _own_refusal(self, call: Call) -> Refusal | None:
        prompt = call.prompt
        refusal = self._key_refusal(call.exchange)
        if refusal is not None:
            return refusal
        if prompt.model != self.settings.model:
            return no_such_model(prompt.model)
        profile = self.driver.core.profile
        if prompt.priority and profile.policy == "fcfs" and profile.refuses_priority:
            return priority_not_enabled(prompt.priority)
        output_tokens = prompt.max_tokens or 1
        if prompt.prompt_tokens + output_tokens > profile.context_tokens:
            return too_long(profile.context_tokens, prompt.prompt_tokens, output_tokens)
        return None

    def _submit(self, call: Call) -> Refusal | None:
        prompt, row = call.prompt, call.row
        request = Request(
            id=row.id,
            prompt_tokens=prompt.prompt_tokens,
            output_tokens=call.answer.tokens,
            priority=prompt.priority,
            klass=prompt.klass,
            prefix=self._prefix(prompt),
            stall=_stall(call.fault),
        )
        rejected = self.driver.submit(request)
        if rejected is not None:
            if rejected.reason == "queue_full":
                return overloaded(1)
            return too_long(self.driver.core.profile.context_tokens, prompt.prompt_tokens, call.answer.tokens)
        hold_seconds = call.fault.hold_seconds if call.fault is not None else 0.0
        call.exchange.on_disconnect = lambda: self.driver.abort(row.id, hold_seconds=hold_seconds)
        self._calls[row.id] = call
        if prompt.stream:
            row.status = 200
            call.exchange.start_stream()
            self._touched[row.id] = call
        return None

    def _prefix(self, prompt: Prompt) -> str | None:
        """The text by which a prefix cache would know this prompt."""
        tokens = self.driver.core.profile.prefix_cache_tokens
        return prompt.text[: int(tokens * self.settings.answer.bytes_per_token)] if tokens else None

    # The core's events go out.

    def _on_event(self, event: Event) -> None:
        call = self._calls[event.request.id]
        if isinstance(event, Token):
            if event.number % self.settings.stream_interval == 0 or event.number == call.answer.tokens:
                self._say(call, event.number)
        elif isinstance(event, FirstToken):
            self._on_first_token(call, event)
        elif isinstance(event, Finished):
            self._on_finished(call, event)
        else:
            self._on_aborted(call, event)

    def _flush(self) -> None:
        touched, self._touched = self._touched, {}
        for call in touched.values():
            call.exchange.flush()

    def _on_first_token(self, call: Call, event: FirstToken) -> None:
        row, clock = call.row, self.driver.clock
        row.started_at = clock.wall(event.started_at)
        row.first_token_at = clock.wall(event.at)
        row.cached_tokens = event.cached_tokens
        self.metrics.ttft.observe(row.first_token_at - row.arrived_at)
        self._say(call, 1)

    def _say(self, call: Call, token: int) -> None:
        """Stream what the answer has come to by the end of this token."""
        if call.dropped:
            return
        if call.prompt.stream:
            self._touched[call.row.id] = call
            if token == 1:
                wire.send_opening(call)
            upto = call.answer.text_until(token)
            if upto > call.said:
                wire.send_text(call, call.answer.text[call.said : upto])
                call.said = upto
        fault = call.fault
        if fault is not None and fault.kind == "drop_mid_stream" and token >= fault.after_tokens:
            call.dropped = True
            call.exchange.flush()
            call.exchange.drop()
            self.driver.abort(call.row.id)

    def _on_finished(self, call: Call, event: Finished) -> None:
        row, answer = call.row, call.answer
        row.output_tokens = answer.tokens
        row.finish_reason = answer.finish_reason
        row.label = answer.label
        if not call.dropped:
            if call.prompt.stream:
                wire.send_closing(call)
                self._touched[row.id] = call
            else:
                row.status = 200
                call.exchange.respond(200, wire.whole(call))
        self._count(call, event.at, answer.finish_reason)
        spoilt = call.dropped or row.fault in WRONG_ANSWERS
        self._end(call, f"fault:{row.fault}" if spoilt else "ok", event.at)

    def _on_aborted(self, call: Call, event: Aborted) -> None:
        row = call.row
        row.output_tokens = event.output_tokens
        if event.started_at is not None and row.started_at is None:
            row.started_at = self.driver.clock.wall(event.started_at)
        self._count(call, event.at, "abort")
        self._end(call, f"fault:{row.fault}" if call.dropped else "aborted", event.at)

    def _count(self, call: Call, at: float, reason: str) -> None:
        row, metrics = call.row, self.metrics
        metrics.prompt_tokens += row.prompt_tokens
        metrics.cached_tokens += row.cached_tokens
        metrics.generation_tokens += row.output_tokens
        metrics.finished[reason if reason in ("length", "abort") else "stop"] += 1
        if row.started_at is not None:
            metrics.queue_time.observe(row.started_at - row.arrived_at)
        metrics.latency.observe(self.driver.clock.wall(at) - row.arrived_at)

    def _end(self, call: Call, outcome: str, at: float | None = None) -> None:
        self._calls.pop(call.row.id, None)
        clock = self.driver.clock
        call.row.outcome = outcome
        call.row.ended_at = clock.wall_now() if at is None else clock.wall(at)
        self.log.add(call.row)


def _scripted_refusal(call: Call) -> Refusal | None:
    fault, prompt = call.fault, call.prompt
    if fault is None or fault.kind not in REFUSALS:
        return None
    max_tokens = prompt.max_tokens or call.answer.tokens
    return scripted(fault, model=prompt.model, prompt_tokens=prompt.prompt_tokens, max_tokens=max_tokens)


def _stall(fault: Fault | None) -> Stall | None:
    if fault is None or fault.kind not in ("slow_first_token", "stall"):
        return None
    return Stall(0 if fault.kind == "slow_first_token" else fault.after_tokens, fault.stall_seconds)
