"""What a process needs to know of a batch to work on its jobs: made once, used for every one of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from jobs.answer import parse_answer
from jobs.job import Job
from jobs.prompt import build_messages, response_format, shorten_middle
from jobs.spec import ClassificationSpec
from jobs.store.batches import BatchWork
from workers.client import Messages
from workers.verdict import Parse

SHORTENED_CHARS = 4_000  # about 1,000 tokens: what every engine's context has room for
MESSAGE_BYTES = 16  # what a chat template puts around one message, roughly


@dataclass(frozen=True, slots=True)
class Brief:
    """A batch's spec in the forms in which it is used."""

    batch_id: str
    pools: tuple[str, ...]
    spec: ClassificationSpec
    response_format: Mapping[str, Any]
    parse: Parse
    shared_bytes: int

    @classmethod
    def of(cls, work: BatchWork) -> "Brief":
        """The brief of a batch as the store has it."""
        spec = ClassificationSpec.model_validate(work.spec)
        shared = build_messages(spec, "", "")
        return cls(
            batch_id=work.id,
            pools=work.pools,
            spec=spec,
            response_format=response_format(spec),
            parse=partial(parse_answer, spec),
            shared_bytes=sum(len(message["content"].encode()) + MESSAGE_BYTES for message in shared),
        )

    def messages(self, job: Job) -> Messages:
        """What the model is sent for a job."""
        body = shorten_middle(job.body, SHORTENED_CHARS) if job.truncated else job.body
        return build_messages(self.spec, job.subject, body)

    def prompt_bytes(self, job: Job) -> int:
        """The size of the prompt, without building it."""
        body = len(job.body.encode())
        return (
            self.shared_bytes + len(job.subject.encode()) + (min(body, 4 * SHORTENED_CHARS) if job.truncated else body)
        )
