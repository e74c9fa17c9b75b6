"""What a setting accepts, in words for whoever gave it something else."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accepts:
    """Said when a value is not accepted, where its type or its pattern alone would say too little.

    A field's description is another thing: it says in one sentence what the key is for.
    """

    words: str
