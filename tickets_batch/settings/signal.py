"""The sources of what is known of the chat: one table for each type, with the keys that mean something to it."""

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from tickets_batch.settings.secret import Secret, Section

SignalType = Literal["ledger", "engine", "prometheus", "probe"]
Query = Annotated[Annotated[str, Field(min_length=1)] | None, Field(description="a PromQL query as text")]
HttpUrl = Annotated[
    Annotated[str, Field(pattern=r"^https?://[^\s/]\S*$")] | None,
    Field(description='an http or https URL, as in "http://127.0.0.1:8000/metrics"'),
]


class LedgerSignal(Section):
    """The gateway and the in-process guard report every interactive request."""

    type: Literal["ledger"]


class EngineSignal(Section):
    """The engine's own metrics, from the root of base_url or from `url`; one for each replica adds them up."""

    type: Literal["engine"]
    url: HttpUrl = None


class PrometheusSignal(Section):
    """PromQL of the operator's: chat requests in flight, chat requests waiting, chat's TTFT in seconds.

    `authorization` refers to the value of that header, as in "Bearer ...".
    """

    type: Literal["prometheus"]
    url: HttpUrl = None
    in_flight: Query = None
    waiting: Query = None
    ttft: Query = None
    authorization: Annotated[
        Secret | None,
        Field(description='only a reference to the header\'s value: { env = "NAME" } or { file = "/path" }'),
    ] = None

    @property
    def queries(self) -> dict[str, str]:
        """The queries that were given, by what they answer."""
        asked = {"in_flight": self.in_flight, "waiting": self.waiting, "ttft": self.ttft}
        return {name: query for name, query in asked.items() if query is not None}

    @model_validator(mode="after")
    def _url_and_query(self) -> Self:
        if (self.url is None) != (not self.queries):
            raise ValueError("url and at least one of in_flight, waiting and ttft go together")
        return self


class ProbeSignal(Section):
    """A request of one token now and then."""

    type: Literal["probe"]
    every_seconds: Annotated[float, Field(ge=1, le=3600)] = 10.0


class UnknownSignal(Section):
    """What has no type of these: refused at its type, whatever else it holds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: SignalType


def _tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return f"<{kind}>" if kind in get_args(SignalType) else "<unknown>"


Signal = Annotated[
    Annotated[LedgerSignal, Tag("<ledger>")]
    | Annotated[EngineSignal, Tag("<engine>")]
    | Annotated[PrometheusSignal, Tag("<prometheus>")]
    | Annotated[ProbeSignal, Tag("<probe>")]
    | Annotated[UnknownSignal, Tag("<unknown>")],
    Discriminator(_tag),
]
