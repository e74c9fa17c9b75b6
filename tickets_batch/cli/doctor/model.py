"""One pool's model, tried out with a few small requests, one at a time: what the night will ask of it.

The requests are outside of admission and go as batch's do, behind the chat where the engine knows priorities.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from functools import partial

from jobs.answer import InvalidOutput, parse_answer
from jobs.outcomes import Attempt, Symptom
from jobs.prompt import build_messages, response_format
from jobs.spec import ClassificationSpec
from tickets_batch.cli.doctor.abort import COUNTING, FREE_TEXT, NEEDED_SECONDS, cut_one
from tickets_batch.cli.doctor.check import Check, Level
from tickets_batch.errors import UserError
from tickets_batch.settings import Pool
from workers.client import ModelClient
from workers.health import SIGNS, Sign
from workers.priority import PRIORITIES
from workers.served import EndpointUnavailable, Served, served

LIST_SECONDS = 3.0
ANSWER_SECONDS = 10.0
POOL_SECONDS = 20.0  # for all of it: what has no time left is not tried
CLOCK_SECONDS = 2.0
NAMED = 5
PIECES_TOKENS = 16  # of an answer that must come in pieces; proxies hold back as much as a few thousand bytes

TO_DO = {  # where the detail does not say it
    Symptom.INVALID_OUTPUT: "switch structured outputs on in the engine, or raise classification.max_output_tokens",
    Symptom.TIMED_OUT: "see that it is up, and not busy for as long",
    Symptom.SERVER_ERROR: "its log says why",
    Symptom.DISCONNECTED: "its log says why, or that of a proxy before it",
    Symptom.TOO_LONG: "shorten instructions and examples, or serve the model with a longer context",
    Symptom.REFUSED: "a ticket as harmless as the sample must pass: see its log, or its filter",
    Symptom.OVERLOADED: "run doctor again when it is less busy",
}

SAMPLE = ("Where is my parcel?", "I ordered nine days ago and nothing has come. When will it arrive?")
# Words that nobody says who is not made to.
UNHEARD = ClassificationSpec(labels={"quillfern": "", "ostermark": ""}, max_output_tokens=48)
PARROT = [
    {
        "role": "system",
        "content": "You are a parrot. Whatever you are asked, answer with the word parrot and nothing else: no JSON.",
    },
    {"role": "user", "content": "Say your word."},
]


def examine(spec: ClassificationSpec, pool: Pool) -> Iterator[Check]:
    """Whether the model is there, answers as it should, keeps to the schema, and lets go of what is cut."""
    with asyncio.Runner() as runner:
        examination = _Examination(spec, pool)
        try:
            for look in (examination.there, examination.sample, examination.schema, examination.abort):
                found = runner.run(look())
                yield from found
                if any(check.about == examination.about and check.level != "ok" for check in found):
                    return  # the rest would say the same
        except UserError as error:
            yield Check(examination.about, "problem", " ".join(str(error).splitlines()))
        finally:
            runner.run(examination.aclose())


class _Examination:
    """The looks at one pool, in the order in which they are to be taken."""

    def __init__(self, spec: ClassificationSpec, pool: Pool) -> None:
        self.about = f"pool {pool.name}"
        self._spec = spec
        self._ends_at = time.monotonic() + POOL_SECONDS
        self._pool = pool
        self._client: ModelClient | None = None
        self._served: Served | None = None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def there(self) -> list[Check]:
        """The endpoint answers, and its clock is right."""
        try:
            self._served = found = await served(self._pool, LIST_SECONDS)
        except EndpointUnavailable:  # what a ticket meets says more, and it need not wait for as long as usual
            self._make_client(ANSWER_SECONDS / 2)
            return []
        self._make_client(ANSWER_SECONDS)
        if found.ahead_seconds is None or abs(found.ahead_seconds) < CLOCK_SECONDS:
            return []
        off = f"{abs(found.ahead_seconds):,.0f} s {'ahead of' if found.ahead_seconds > 0 else 'behind'}"
        words = f"the endpoint's clock is {off} this machine's: set it right (NTP), a Retry-After may be a time of day"
        return [Check(f"{self.about} clock", "warning", words)]

    async def sample(self) -> list[Check]:
        """One call like those of the night: a single short ticket."""
        begun = asyncio.Event()
        attempt = await self._ask(build_messages(self._spec, *SAMPLE), self._spec, begun.set)
        if attempt is None:
            return [self._no_time("")]
        if attempt.symptom is not None:
            level: Level = "warning" if attempt.symptom is Symptom.OVERLOADED else "problem"
            return [Check(self.about, level, self._why_no_answer(attempt))]
        first = f"first token after {attempt.ttft_seconds:.2f} s, " if attempt.ttft_seconds is not None else ""
        words = (
            f"{self._pool.model} at {self._pool.base_url} answered a sample ticket with {attempt.label!r} in "
            f"{attempt.seconds:.2f} s, {first}{attempt.usage.prompt_tokens} prompt tokens"
        )
        whole = [] if begun.is_set() else await self._in_one_piece()  # so short an answer may well come in one
        return [Check(self.about, "ok", words), *self._particulars(attempt), *whole]

    async def schema(self) -> list[Check]:
        """Whether the answer keeps to the schema though the prompt pulls the other way."""
        about = f"{self.about} schema"
        attempt = await self._ask(PARROT, UNHEARD)
        if attempt is None:
            return [self._no_time("schema")]
        if attempt.symptom is None:
            return [Check(about, "ok", "enforced: told to say something else, the model kept to the labels")]
        if attempt.symptom is not Symptom.INVALID_OUTPUT:
            words = f"could not be tried ({attempt.symptom}: {attempt.detail}): run doctor again"
            return [Check(about, "warning", words)]
        if _is_half_said(attempt.raw or ""):
            words = f"not clear whether it is enforced ({attempt.detail}): every answer is checked in any case"
            return [Check(about, "warning", words)]
        words = (
            "taken but not enforced: told to say something else, the model did. Every answer is checked, so tickets "
            "are tried again and some fail as invalid_output: switch structured outputs on in the engine"
        )
        return [Check(about, "warning", words)]

    async def abort(self) -> list[Check]:
        """Whether a request that is cut leaves its slot, and how soon."""
        if self._left_seconds() < NEEDED_SECONDS:
            return [self._no_time("abort")]
        assert self._client is not None  # noqa: S101 - made in the first look
        return [await cut_one(self._pool, self._client, self._left_seconds())]

    async def _in_one_piece(self) -> list[Check]:
        """A warning where a longer answer comes in one piece too though it was to be streamed."""
        assert self._client is not None  # noqa: S101 - made in the first look
        begun = asyncio.Event()
        try:
            async with asyncio.timeout(self._left_seconds()):
                attempt = await self._client.classify(
                    COUNTING, FREE_TEXT, PIECES_TOKENS, parse=str, on_first_token=begun.set
                )
        except TimeoutError:
            return []
        if (
            begun.is_set()
            or SIGNS[attempt.symptom] is not Sign.WORKS
            or attempt.usage.completion_tokens < PIECES_TOKENS
        ):
            return []
        words = (
            f"an answer of {PIECES_TOKENS} tokens came in one piece after {attempt.seconds:.2f} s though it was to be "
            "streamed: no first token is seen, so nothing paces batch's prompts for the chat. Switch buffering "
            "off in the proxy before the model (nginx: proxy_buffering off), or let the engine stream"
        )
        return [Check(f"{self.about} stream", "warning", words)]

    def _particulars(self, attempt: Attempt) -> Iterator[Check]:
        """What else the sample showed."""
        models = self._served.models if self._served is not None else None
        if models is not None and self._pool.model not in models and self._pool.engine != "llama.cpp":
            words = f"it answers to {self._pool.model}, but lists {_named(models)}: is it the model you mean?"
            yield Check(f"{self.about} model", "warning", words)
        if not attempt.usage.total or not attempt.usage.prompt_tokens:
            words = (
                f"{self._pool.model} reports no usage in the stream, so tokens are booked as estimated: let the engine "
                "(or the proxy before it) honour stream_options.include_usage"
            )
            yield Check(f"{self.about} usage", "warning", words)
        if self._pool.engine in PRIORITIES and self._client is not None and self._client.priority is None:
            words = "the engine takes no priority, so batch's requests queue with the chat's: see below how to start it"
            yield Check(f"{self.about} priority", "warning", words)

    def _why_no_answer(self, attempt: Attempt) -> str:
        is_told = attempt.detail.startswith("HTTP ")
        status = f" (HTTP {attempt.http_status})" if attempt.http_status and not is_told else ""
        models = self._served.models if self._served is not None else None
        listed = f"; it lists {_named(models)}" if models and self._pool.model not in models else ""
        to_do = f"; {TO_DO[attempt.symptom]}" if attempt.symptom in TO_DO else ""
        return f"{self._pool.base_url}: {attempt.symptom}{status}: {attempt.detail}{listed}{to_do}"

    def _make_client(self, seconds: float) -> None:
        seconds = min(seconds, self._pool.request_timeout_seconds)
        self._client = ModelClient(self._pool.model_copy(update={"request_timeout_seconds": seconds}), at_once=1)

    def _left_seconds(self) -> float:
        return self._ends_at - time.monotonic()

    def _no_time(self, what: str) -> Check:
        words = (
            f"not tried: the pool took {POOL_SECONDS:g} s for what came before; run doctor again when it is less busy"
        )
        return Check(f"{self.about} {what}".strip(), "warning", words)

    async def _ask(
        self,
        messages: list[dict[str, str]],
        spec: ClassificationSpec,
        on_first_token: Callable[[], None] | None = None,
    ) -> Attempt | None:
        """One answer; None where there is no time left for one."""
        assert self._client is not None  # noqa: S101 - made in the first look
        parse = partial(_exact, spec) if spec is UNHEARD else partial(parse_answer, spec)
        try:
            async with asyncio.timeout(self._left_seconds()):
                cap = spec.max_output_tokens
                return await self._client.classify(
                    messages, response_format(spec), cap, parse=parse, on_first_token=on_first_token
                )
        except TimeoutError:
            return None


def _exact(spec: ClassificationSpec, text: str) -> str | InvalidOutput:
    """The label if the answer is just what the schema allows; nothing is read into it."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return InvalidOutput("not JSON")
    if not isinstance(answer, dict) or list(answer) != ["label"] or answer["label"] not in spec.labels:
        return InvalidOutput("JSON outside the schema")
    return str(answer["label"])


def _is_half_said(text: str) -> bool:
    """Whether it may be the beginning of an answer that keeps to the schema, and no more."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text.lstrip()[:1] in ("", "{")
    return False


def _named(models: tuple[str, ...]) -> str:
    more = f" and {len(models) - NAMED} more" if len(models) > NAMED else ""
    return ", ".join(models[:NAMED]) + more if models else "none"
