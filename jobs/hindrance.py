"""Why a batch can be blocked: the words that `blocked` is made of, each of which the runbook knows."""

from enum import StrEnum


class Hindrance(StrEnum):
    """Why no ticket of a batch can succeed now, and what to mend; `{what}` stands for what was seen.

    An HTTP status may stand before it, and what the engine said after it.
    """

    NO_KEY = "the engine wants a valid key: set the pool's api_key, or OPENAI_API_KEY"
    KEY_NOT_ALLOWED = "the pool's api_key may not use this model"
    NO_CREDIT = "the account behind the pool's api_key has no credit left"
    NO_MODEL = "the engine does not serve this model: set the pool's model, or --model, to one that it lists"
    NO_PATH = "nothing answers at this path: check the pool's base_url, or OPENAI_BASE_URL"
    WEB_PAGE = "a web page answers instead of an engine: check the pool's base_url"
    REDIRECTED = "the endpoint redirects{what}: set the pool's base_url to where the engine is"
    NO_STREAM = "the endpoint does not stream: it ignores stream=true"
    NO_SCHEMA = "the engine refuses the schema of the answer (response_format)"
    NO_PARAMETER = "the engine does not take the parameter {what}"
    UNREACHABLE = "no connection to the endpoint: {what}"
    NO_POOL = "none of its pools ({what}) is in the settings of the workers: add it there, or submit the batch anew"
    REFUSED = "the endpoint refuses every request"

    def of(self, what: str) -> str:
        """It, with what was seen."""
        return self.replace("{what}", what)
