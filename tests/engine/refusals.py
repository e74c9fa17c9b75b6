"""The HTTP errors a model server answers with, in the shapes that vLLM and OpenAI give them."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from tests.engine.faults import Fault


@dataclass(eq=False)
class Refusal(Exception):
    """An error answer: status, JSON body and extra headers."""

    status: int
    body: dict[str, Any]
    headers: tuple[tuple[str, str], ...] = ()

    def encoded(self) -> bytes:
        return json.dumps(self.body).encode()


def vllm_error(status: int, kind: str, message: str, param: str | None = None) -> Refusal:
    return Refusal(status, {"error": {"message": message, "type": kind, "param": param, "code": status}})


def openai_error(status: int, kind: str, message: str, code: str | None, param: str | None = None) -> Refusal:
    return Refusal(status, {"error": {"message": message, "type": kind, "param": param, "code": code}})


def bad_request(message: str, param: str | None = None) -> Refusal:
    return vllm_error(400, "BadRequestError", message, param)


def unauthorized() -> Refusal:
    return Refusal(401, {"error": "Unauthorized"})


def no_such_path(path: str) -> Refusal:
    return Refusal(404, {"detail": f"Not Found: {path}"})


def no_such_model(model: str) -> Refusal:
    return vllm_error(404, "NotFoundError", f"The model `{model}` does not exist.", "model")


def priority_not_enabled(priority: int) -> Refusal:
    return bad_request(f"Got priority {priority} but Priority scheduling is not enabled.")


def too_long(context_tokens: int, prompt_tokens: int, output_tokens: int, shape: str = "vllm") -> Refusal:
    message = (
        f"This model's maximum context length is {context_tokens} tokens. However, you requested "
        f"{prompt_tokens + output_tokens} tokens ({prompt_tokens} in the messages, {output_tokens} in the "
        "completion). Please reduce the length of the messages or completion."
    )
    if shape == "openai":
        return openai_error(400, "invalid_request_error", message, "context_length_exceeded", "messages")
    return bad_request(message)


def overloaded(retry_after_seconds: float | None = None, form: str = "seconds") -> Refusal:
    refusal = vllm_error(429, "TooManyRequestsError", "The engine's queue is full, try again later.")
    return Refusal(429, refusal.body, _retry_after(retry_after_seconds, form))


def scripted(fault: Fault, *, model: str, prompt_tokens: int, max_tokens: int) -> Refusal:
    """The error answer that a fault of the refusing kind stands for."""
    match fault.kind:
        case "429":
            return overloaded(fault.retry_after_seconds, fault.retry_after_form)
        case "503":
            refusal = vllm_error(503, "ServiceUnavailableError", "The engine is not ready.")
            retry_after = _retry_after(fault.retry_after_seconds, fault.retry_after_form)
            return Refusal(503, refusal.body, retry_after)
        case "500":
            return vllm_error(500, "InternalServerError", "EngineCore encountered an issue.")
        case "401":
            return unauthorized()
        case "403":
            return openai_error(403, "permission_error", "This key may not use this model.", "forbidden")
        case "404":
            return no_such_model(model)
        case "context_too_long":
            return too_long(max(1, prompt_tokens - 1), prompt_tokens, max_tokens, fault.shape)
        case "content_filter":
            message = "The prompt was blocked by the content management policy."
            return openai_error(400, "invalid_request_error", message, "content_filter", "prompt")
        case "schema_refused":
            message = "Invalid schema for response_format: the grammar could not be compiled."
            return openai_error(400, "invalid_request_error", message, None, "response_format")
        case _:
            return bad_request("The request could not be understood.")


def _retry_after(seconds: float | None, form: str) -> tuple[tuple[str, str], ...]:
    if seconds is None:
        return ()
    if form == "date":
        when = datetime.now(UTC) + timedelta(seconds=seconds)
        return (("retry-after", format_datetime(when, usegmt=True)),)
    return (("retry-after", f"{seconds:g}"),)
