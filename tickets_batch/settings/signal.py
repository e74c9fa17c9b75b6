"""The sources of what is known of the chat: one table for each type, with the keys that mean something to it."""

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from tickets_batch.settings.accepts import Accepts
from tickets_batch.settings.secret import Secret, Section, Text

SignalType = Literal["ledger", "engine", "prometheus", "probe"]
Query = Annotated[Text | None, Accepts("a PromQL query as text")]
HttpUrl = Annotated[
    Annotated[str, Field(pattern=r"^https?://[^\s/]\S*$")] | None,
    Accepts('an http or https URL, as in "http://127.0.0.1:8000/metrics"'),
]


class LedgerSignal(Section):
    """The gateway and the in-process guard report every interactive request."""

    type: Annotated[Literal["ledger"], Field(description="the gateway and the guard report every chat request")]


class EngineSignal(Section):
    """The engine's own metrics, from the root of base_url or from `url`; one for each replica adds them up."""

    type: Annotated[Literal["engine"], Field(description="the engine's own metrics tell of the chat")]
    url: Annotated[
        HttpUrl,
        Field(description="where they are; without it under the root of `base_url`; one table for each replica"),
    ] = None


class PrometheusSignal(Section):
    """PromQL of the operator's: chat requests in flight, chat requests waiting, chat's TTFT in seconds."""

    type: Annotated[Literal["prometheus"], Field(description="queries of yours to Prometheus tell of the chat")]
    url: Annotated[HttpUrl, Field(description="where Prometheus is")] = None
    in_flight: Annotated[Query, Field(description="PromQL for the chat requests in flight")] = None
    waiting: Annotated[Query, Field(description="PromQL for the chat requests that wait")] = None
    ttft: Annotated[Query, Field(description="PromQL for the chat's time to first token, in seconds")] = None
    authorization: Annotated[
        Secret | None,
        Field(description='a reference to the value of that header, as in "Bearer ..."'),
        Accepts('only a reference to the header\'s value: { env = "NAME" } or { file = "/path" }'),
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

    type: Annotated[Literal["probe"], Field(description="a request of one token now and then")]
    every_seconds: Annotated[float, Field(ge=1, le=3600, description="how often, in seconds")] = 10.0


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
