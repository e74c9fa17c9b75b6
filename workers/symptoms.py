"""What a refusal, an error in the stream or a broken connection says about a call: the error table's left side."""

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from socket import gaierror

import httpx2

from jobs.hindrance import Hindrance
from jobs.outcomes import Symptom
from workers.detail import bounded
from workers.engine_error import EngineError, engine_error, read_error

Clean = Callable[[str], str]
"""Takes out of an engine's message what must not be kept."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What went wrong with one call, in the words of the error table."""

    symptom: Symptom
    detail: str
    http_status: int | None = None
    retry_after_seconds: float | None = None


# Names by which engines say that prompt and answer do not fit the model's context. Wordings differ, so does the status.
_TOO_LONG = re.compile(
    r"context[_ ](length|size|window)|maximum (model|context|input|prompt) length|prompt is too long"
    r"|max_model_len|max_seq_len|max_tokens must be at least 1, got -|must have less than \d+ tokens"
    r"|`inputs` tokens \+ `max_new_tokens`|input is too (long|large)|too large to process"
    r"|exceeds? the maximum number of tokens"
    r"|contextwindowexceeded|exceed_context_size",
    re.IGNORECASE,
)
_CONTENT_FILTER = re.compile(r"content[_ ]?(filter|management policy|policy_violation)|responsible_?ai", re.IGNORECASE)
_SCHEMA = re.compile(
    r"response_format|json[_ ]?schema|guided_|guided decoding|structured[_ ]outputs?|\b\w*grammar\b|llguidance",
    re.IGNORECASE,
)
_MODEL = re.compile(r"\bmodels?\b", re.IGNORECASE)
_REQUEST_FIELDS = frozenset({"model", "temperature", "max_tokens", "stream", "stream_options", "response_format"})
_UNSUPPORTED = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter", "extra_forbidden"})
_OVERLOADED_STATUS = frozenset({429, 503, 529})
_OVERLOADED_TYPES = frozenset({"overloaded", "overloaded_error", "unavailable_error", "rate_limit_error"})
_NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})


def of_response(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime, clean: Clean) -> Finding:
    """The finding for an answer that is no stream: any status but 2xx, or a 2xx with something else than events.

    `now` (aware) turns a `Retry-After` date into seconds.
    """
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    error = read_error(body)
    if 200 <= status < 300:
        return _of_no_stream(status, content_type, body, error, clean)
    if 300 <= status < 400:
        where = f" to {clean(_without_user(headers['location']))}" if "location" in headers else ""
        return _blocked(status, Hindrance.REDIRECTED, what=where)
    return of_error(status, error or EngineError(), clean=clean, retry_after_seconds=_retry_after(headers, now))


def of_error_object(error: object, *, clean: Clean) -> Finding:
    """The finding for an error object inside a stream that began well."""
    read = engine_error(error)
    return of_error(read.status or 500, read, clean=clean)


def of_error(status: int, error: EngineError, *, clean: Clean, retry_after_seconds: float | None = None) -> Finding:
    """The finding for an engine's error of an HTTP status, 400 or more."""
    said = clean(error.message)
    if status in _OVERLOADED_STATUS or (status >= 500 and error.type in _OVERLOADED_TYPES):
        if error.code in _NO_CREDIT or error.type in _NO_CREDIT:
            return _blocked(status, Hindrance.NO_CREDIT, said)
        detail = _detail(status, "the engine is overloaded", said)
        return Finding(Symptom.OVERLOADED, detail, status, retry_after_seconds)
    if status != 404 and any(_TOO_LONG.search(text) for text in (error.code, error.type, error.message)):
        return Finding(Symptom.TOO_LONG, _detail(status, "longer than the engine's context", said), status)
    if status >= 500:
        return Finding(Symptom.SERVER_ERROR, _detail(status, "the engine failed", said), status, retry_after_seconds)
    if any(_CONTENT_FILTER.search(text) for text in (error.code, error.type, error.message)):
        return Finding(Symptom.REFUSED, _detail(status, "stopped by a content filter", said), status)
    if hindrance := _hindrance(status, error, said):
        return _blocked(status, hindrance, said, what=bounded(clean(error.param), 40) or "that it names")
    match status:
        case 408:
            return Finding(Symptom.TIMED_OUT, _detail(status, "the engine gave up waiting", said), status)
        case 413:
            return Finding(Symptom.TOO_LONG, _detail(status, "longer than the engine takes", said), status)
        case _:
            return Finding(Symptom.REFUSED, _detail(status, "the engine refuses this request", said), status)


def of_exception(error: BaseException, base_url: str) -> Finding:
    """The finding for a connection to a pool's `base_url` that could not be made or broke."""
    if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, ssl.SSLError)):
        where = f"check the pool's base_url, {_without_user(base_url)}, and that its engine runs"
        return Finding(Symptom.UNREACHABLE, bounded(Hindrance.UNREACHABLE.of(f"{where}: {_why_no_connection(error)}")))
    if isinstance(error, httpx2.TimeoutException):
        return Finding(Symptom.TIMED_OUT, "the connection stood still")
    return Finding(Symptom.DISCONNECTED, "the connection broke")


def _of_no_stream(status: int, content_type: str, body: bytes, error: EngineError | None, clean: Clean) -> Finding:
    if error is not None and (error.status or error.message):
        return of_error(error.status or 500, error, clean=clean)
    if content_type == "text/html" or body.lstrip()[:1] == b"<":
        return _blocked(status, Hindrance.WEB_PAGE)
    if b'"choices"' in body:
        return _blocked(status, Hindrance.NO_STREAM)
    kind = bounded(clean(content_type), 40) or "of no type"
    return Finding(Symptom.INVALID_OUTPUT, _detail(status, f"the answer is no event stream but {kind}", ""), status)


def _hindrance(status: int, error: EngineError, said: str) -> Hindrance | None:
    """Why no request can succeed, where none can."""
    names_model = error.code == "model_not_found" or error.param == "model"
    match status:
        case 401 | 407:
            return Hindrance.NO_KEY
        case 402:
            return Hindrance.NO_CREDIT
        case 403:
            return Hindrance.KEY_NOT_ALLOWED
        case 404 if names_model or _MODEL.search(said):
            return Hindrance.NO_MODEL
        case 404 | 405 | 410:
            return Hindrance.NO_PATH
        case _ if names_model:
            return Hindrance.NO_MODEL
        case _ if error.param == "response_format" or _SCHEMA.search(said):
            return Hindrance.NO_SCHEMA
        case _ if error.param in _REQUEST_FIELDS or {error.code, error.type} & _UNSUPPORTED:
            return Hindrance.NO_PARAMETER
        case _:
            return None


def _blocked(status: int, hindrance: Hindrance, said: str = "", *, what: str = "") -> Finding:
    return Finding(Symptom.BLOCKED, _detail(status, hindrance.of(what), said), status)


def _detail(status: int, what: str, said: str) -> str:
    return bounded(f"HTTP {status}: {what} ({said})" if said else f"HTTP {status}: {what}")


def _retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds from `now`, from a number or an HTTP date; None where there is neither."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except (ValueError, OverflowError):  # of a year without end
            return None
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds()
    return max(0.0, seconds) if isfinite(seconds) else None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, and the members of groups among them."""
    left = [error]
    seen: set[int] = set()  # chains can be circular
    while left:
        cause = left.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            left += cause.exceptions
        left += [below for below in (cause.__cause__, cause.__context__) if below is not None]


def _why_no_connection(error: BaseException) -> str:
    causes = list(_causes(error))
    for cause in causes:
        match cause:
            case ssl.SSLCertVerificationError():
                return f"TLS: {cause.verify_message}"
            case ssl.SSLError():
                return f"TLS: {getattr(cause, 'reason', None) or 'handshake failed'}"
            case gaierror():
                return "the host name is unknown"
            case ConnectionRefusedError():
                return "connection refused"
            case httpx2.ConnectTimeout():
                return "it does not answer in time"
    return next((cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), "unknown reason")


def _without_user(url: str) -> str:
    """The URL without who calls it, which may hold a password."""
    scheme, mark, rest = _without_query(url).rpartition("//")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _without_query(location: str) -> str:
    return bounded(location.partition("?")[0].partition("#")[0], 100)
