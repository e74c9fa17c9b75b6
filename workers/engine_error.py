"""The error object that an engine answers with, whatever its dialect."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic_core import from_json

_STATUS_OF_TYPE = {"BadRequestError": 400, "invalid_request_error": 400, "rate_limit_error": 429, "overloaded": 429}


@dataclass(frozen=True, slots=True)
class EngineError:
    """What it says; texts are empty where it says nothing. `status` is the HTTP status that it names, if any."""

    message: str = ""
    type: str = ""
    code: str = ""
    param: str = ""
    status: int | None = None


def read_error(body: bytes) -> EngineError | None:
    """The error object in a body, None when there is none; a page of HTML is never quoted."""
    try:
        value = from_json(body)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, str):
        return engine_error({"message": error, "type": value.get("error_type"), "code": value.get("code")})
    if error:
        return engine_error(error)
    if value.get("object") == "error" or "message" in value:
        return engine_error(value)
    return _of_validation(value["detail"]) if "detail" in value else None


def engine_error(value: object) -> EngineError:
    """The error that a decoded JSON value describes."""
    if not isinstance(value, Mapping):
        return EngineError(message=_text(value))
    kind = _text(value.get("type"))
    said = (_status(value.get(key)) for key in ("code", "http_status_code", "status"))
    return EngineError(
        message=_text(value.get("message")),
        type=kind,
        code=_text(value.get("code")),
        param=_text(value.get("param")),
        status=next((status for status in said if status), None) or _STATUS_OF_TYPE.get(kind),
    )


def _of_validation(detail: object) -> EngineError:
    """What a framework's validation says: a text, or a list of objects whose `input` repeats what was sent."""
    if isinstance(detail, str):
        return EngineError(message=detail)
    first = detail[0] if isinstance(detail, list) and detail and isinstance(detail[0], dict) else {}
    places = first.get("loc")
    place = [str(part) for part in places if part != "body"] if isinstance(places, list) else []
    message = f"{'.'.join(place)}: {_text(first.get('msg'))}" if place else _text(first.get("msg"))
    return EngineError(message=message, type=_text(first.get("type")), param=place[0] if place else "")


def _status(value: object) -> int | None:
    """An HTTP error status given as a number or as its digits."""
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3 else value
    return number if isinstance(number, int) and 400 <= number < 600 else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
