"""How much work a batch is, in tokens, from its jobs and the bytes of their texts: pure."""

from dataclasses import dataclass
from typing import Self

from jobs.prompt import build_messages
from jobs.spec import ClassificationSpec

BYTES_PER_TOKEN = 4  # of the usual tokenizers on European text


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """What a job of a batch comes to, apart from its own text.

    The unit stays the same for all of a batch: what its tokens really are differs by language and model, but then it
    does so for those done and those left alike, and a forecast divides the one by the other.
    """

    tokens_per_job: float

    @classmethod
    def of(cls, spec: ClassificationSpec) -> Self:
        """That of a spec: what all of its prompts share, and half of the longest answer."""
        shared = sum(len(message["content"].encode()) for message in build_messages(spec, "", ""))
        return cls(shared / BYTES_PER_TOKEN + spec.max_output_tokens / 2)

    def tokens(self, jobs: int, text_bytes: int) -> float:
        """So many jobs, with texts of so many bytes together."""
        return jobs * self.tokens_per_job + text_bytes / BYTES_PER_TOKEN
