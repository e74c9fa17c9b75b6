import json
import ssl
from datetime import UTC, datetime
from socket import gaierror
from typing import Any

import httpx2
import pytest

from jobs.outcomes import Symptom
from workers.detail import DETAIL_CHARS, Censor
from workers.symptoms import Finding, of_error_object, of_exception, of_response

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
TICKET = "My parcel 4711 has not arrived, and your grammar is bad."
BASE_URL = "http://127.0.0.1:8000/v1"
KEY = "sk-live-0123456789"


def seen(status: int, body: object = None, **headers: str) -> Finding:
    """The finding for an answer with a JSON body (bytes are sent as they are)."""
    sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return of_response(status, named, sent, now=NOW, clean=Censor(TICKET, KEY))


def vllm(message: str, kind: str = "BadRequestError", code: int = 400, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def of_openai(message: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


OVERLOADED = [
    (429, None),
    (429, vllm("Too many requests", "TooManyRequestsError", 429)),
    (429, {"error": "Model is overloaded", "error_type": "overloaded"}),
    (503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}),
    (503, b"<html><h1>503 Service Temporarily Unavailable</h1></html>"),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    (500, {"error": {"type": "overloaded_error", "message": "Overloaded"}}),
]
TOO_LONG = [
    (400, vllm("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.")),
    (400, vllm("The decoder prompt (length 5000) is longer than the maximum model length of 4096.")),
    (400, {"object": "error", "message": "max_tokens must be at least 1, got -186.", "code": 400}),
    (
        400,
        {
            "object": "error",
            "message": "The input (61709 tokens) is longer than the model's context length",
            "code": 400,
        },
    ),
    (400, of_openai("Too many tokens.", "context_length_exceeded", "messages")),
    (400, {"error": {"code": 400, "message": "request (4390 tokens) exceeds", "type": "exceed_context_size_error"}}),
    (500, {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}),
    (500, {"error": {"code": 500, "message": "input is too large to process. increase the physical batch size"}}),
    (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096.",
            "error_type": "validation",
        },
    ),
    (422, {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1500"}),
    (413, b"<html><h1>413 Request Entity Too Large</h1></html>"),
]
BLOCKED = [
    (401, {"error": "Unauthorized"}, "api_key"),
    (401, None, "api_key"),
    (407, None, "api_key"),
    (402, of_openai("Payment required"), "no credit"),
    (429, of_openai("You exceeded your current quota.", "insufficient_quota"), "no credit"),
    (403, of_openai("This key may not use this model.", "forbidden"), "may not use this model"),
    (403, b"<html>Forbidden</html>", "may not use this model"),
    (404, vllm("The model `llama` does not exist.", "NotFoundError", 404, "model"), "does not serve this model"),
    (404, of_openai("No such model.", "model_not_found"), "does not serve this model"),
    (404, {"error": {"message": 'model "llama" not found, try pulling it first'}}, "does not serve this model"),
    (400, of_openai("Unknown name.", "model_not_found"), "does not serve this model"),
    (404, {"detail": "Not Found"}, "base_url"),
    (404, b"<html>404</html>", "base_url"),
    (405, {"detail": "Method Not Allowed"}, "base_url"),
    (400, of_openai("Invalid schema.", None, "response_format"), "schema"),
    (400, vllm("Grammar error: Unknown format: uri"), "schema"),
    (400, vllm("xgrammar could not compile the request"), "schema"),
    (400, vllm("The provided JSON schema contains features not supported"), "schema"),
    (
        422,
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "response_format"], "msg": "no", "input": {}}]},
        "schema",
    ),
    (
        422,
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "no", "input": 1}]},
        "parameter",
    ),
    (400, of_openai("Use 'max_completion_tokens'.", "unsupported_parameter", "max_tokens"), "parameter max_tokens"),
    (200, b"<!doctype html><html><body>Welcome</body></html>", "a web page"),
    (200, {"object": "chat.completion", "choices": []}, "does not stream"),
]
REFUSED = [
    (400, vllm("The request could not be understood.")),
    (400, None),
    (400, b"<html>Bad Request</html>"),
    (400, of_openai("The prompt was blocked.", "content_filter", "prompt")),
    (400, of_openai("The response was filtered due to Azure OpenAI's content management policy.")),
    (422, {"detail": "Unprocessable"}),
    (418, None),
    (451, of_openai("Unavailable for legal reasons")),
]
SERVER_ERROR = [
    (500, vllm("EngineCore encountered an issue.", "InternalServerError", 500)),
    (500, None),
    (501, None),
    (502, b"<html><h1>502 Bad Gateway</h1></html>"),
    (504, b"upstream request timeout"),
    (599, b"\xff\xfe\x00"),
    (200, {"error": {"message": "something broke"}}),
]


@pytest.mark.parametrize(("status", "body"), OVERLOADED)
def test_an_engine_that_has_too_much_to_do_is_overloaded(status: int, body: object) -> None:
    assert seen(status, body).symptom is Symptom.OVERLOADED


@pytest.mark.parametrize(("status", "body"), TOO_LONG)
def test_a_prompt_over_the_context_is_too_long_in_every_engines_words(status: int, body: object) -> None:
    found = seen(status, body)
    assert found.symptom is Symptom.TOO_LONG
    assert found.http_status == status


@pytest.mark.parametrize(("status", "body", "advice"), BLOCKED)
def test_what_no_request_can_get_past_blocks_and_says_what_to_mend(status: int, body: object, advice: str) -> None:
    found = seen(status, body)
    assert found.symptom is Symptom.BLOCKED
    assert found.detail.startswith(f"HTTP {status}: ")
    assert advice in found.detail


@pytest.mark.parametrize(("status", "body"), REFUSED)
def test_any_other_client_error_is_a_refusal_of_this_ticket(status: int, body: object) -> None:
    assert seen(status, body).symptom is Symptom.REFUSED


@pytest.mark.parametrize(("status", "body"), SERVER_ERROR)
def test_any_other_server_error_is_the_engines(status: int, body: object) -> None:
    assert seen(status, body).symptom is Symptom.SERVER_ERROR


def test_a_filter_says_so() -> None:
    assert "content filter" in seen(400, of_openai("no", "content_policy_violation")).detail


def test_a_request_timeout_of_the_server_is_a_timeout() -> None:
    assert seen(408).symptom is Symptom.TIMED_OUT


def test_a_success_that_is_no_stream_is_no_answer() -> None:
    found = seen(200, b"hello", content_type="text/plain; charset=utf-8")
    assert found == Finding(Symptom.INVALID_OUTPUT, "HTTP 200: the answer is no event stream but text/plain", 200)


def test_an_error_object_under_a_success_counts_by_its_own_code() -> None:
    body = {"error": {"code": 400, "message": "the request exceeds", "type": "exceed_context_size_error"}}
    assert seen(200, body).symptom is Symptom.TOO_LONG


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed_but_named(status: int) -> None:
    found = seen(status, location="https://elsewhere.example/v1/chat/completions?token=secret")
    assert found.symptom is Symptom.BLOCKED
    assert "https://elsewhere.example/v1/chat/completions:" in found.detail
    assert "secret" not in found.detail


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("0", 0.0),
        ("-3", 0.0),
        ("Mon, 30 Nov 2026 06:00:45 GMT", 45.0),
        ("Mon, 30 Nov 2026 07:00:45 +0100", 45.0),
        ("Mon, 30 Nov 2026 06:00:45 -0000", 45.0),
        ("Mon, 30 Nov 2026 05:00:00 GMT", 0.0),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
    ],
)
@pytest.mark.parametrize("status", [429, 503, 500])
def test_retry_after_is_read_as_seconds_or_as_a_date(status: int, value: str, seconds: float | None) -> None:
    assert seen(status, retry_after=value).retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("error", "symptom"),
    [
        ({"message": "context length exceeded", "code": 400}, Symptom.TOO_LONG),
        ({"message": "bad", "type": "BadRequestError"}, Symptom.REFUSED),
        ({"message": "bad", "code": "400"}, Symptom.REFUSED),
        ({"message": "slow down", "type": "rate_limit_error"}, Symptom.OVERLOADED),
        ({"message": "overloaded", "http_status_code": 503}, Symptom.OVERLOADED),
        ({"message": "no", "code": "context_length_exceeded"}, Symptom.TOO_LONG),
        ({"message": "engine died", "code": 500}, Symptom.SERVER_ERROR),
        ({"message": "engine died", "code": 7}, Symptom.SERVER_ERROR),
        ("engine died", Symptom.SERVER_ERROR),
        (True, Symptom.SERVER_ERROR),
    ],
)
def test_an_error_inside_a_stream_counts_by_its_code(error: object, symptom: Symptom) -> None:
    assert of_error_object(error, clean=Censor(TICKET, KEY)).symptom is symptom


def raised(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "symptom", "words"),
    [
        (raised(httpx2.ConnectError("x"), ConnectionRefusedError(111, "x")), Symptom.UNREACHABLE, "connection refused"),
        (raised(httpx2.ConnectError("x"), gaierror(-2, "x")), Symptom.UNREACHABLE, "host name is unknown"),
        (raised(httpx2.ConnectError("x"), OSError(113, "No route to host")), Symptom.UNREACHABLE, "No route to host"),
        (httpx2.ConnectError("x"), Symptom.UNREACHABLE, "unknown reason"),
        (httpx2.ConnectTimeout("x"), Symptom.UNREACHABLE, "does not answer in time"),
        (raised(httpx2.ConnectError("x"), ssl.SSLError(1, "x")), Symptom.UNREACHABLE, "TLS: handshake failed"),
        (ssl.SSLError(1, "x"), Symptom.UNREACHABLE, "TLS"),
        (
            raised(httpx2.ConnectError("x"), ExceptionGroup("x", [OSError("y"), ConnectionRefusedError(111, "x")])),
            Symptom.UNREACHABLE,
            "connection refused",
        ),
        (httpx2.ReadError("x"), Symptom.DISCONNECTED, "connection broke"),
        (httpx2.WriteError("x"), Symptom.DISCONNECTED, "connection broke"),
        (httpx2.RemoteProtocolError("x"), Symptom.DISCONNECTED, "connection broke"),
        (httpx2.DecodingError("x"), Symptom.DISCONNECTED, "connection broke"),
        (ConnectionResetError(104, "x"), Symptom.DISCONNECTED, "connection broke"),
        (httpx2.ReadTimeout("x"), Symptom.TIMED_OUT, "stood still"),
    ],
)
def test_a_broken_connection_is_told_from_one_that_was_never_made(
    error: Exception, symptom: Symptom, words: str
) -> None:
    found = of_exception(error, BASE_URL)
    assert found.symptom is symptom
    assert words in found.detail


def test_an_error_that_was_being_handled_elsewhere_does_not_count() -> None:
    broken = httpx2.ReadError("x")
    broken.__context__ = httpx2.ConnectError("an earlier one")
    assert of_exception(broken, BASE_URL).symptom is Symptom.DISCONNECTED


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/v1", "http://me:hidden@127.0.0.1:8000/v1?key=hidden"])
def test_where_there_is_no_connection_the_setting_and_its_value_are_named(url: str) -> None:
    assert of_exception(httpx2.ConnectError("x"), url).detail == (
        "no connection to the endpoint: check the pool's base_url, http://127.0.0.1:8000/v1, and that its engine runs: "
        "unknown reason"
    )


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("e", "Unauthorized: the key e is not the one that the test-model wants"),
        ("the", "Unauthorized: the key e is not the one that the test-model wants"),
        ("test", "Unauthorized: the key e is not the one that the test-model wants"),
        ("wants", "Unauthorized: the key e is not the one that the test-model ***"),
        ("Unauthorize", "***d: the key e is not the one that the test-model wants"),
        ("sk-right", "Unauthorized: the key e is not the one that the test-model wants"),
    ],
)
def test_a_secret_is_taken_out_where_that_hides_something_and_garbles_nothing(secret: str, said: str) -> None:
    assert Censor("a ticket", secret)("Unauthorized: the key e is not the one that the test-model wants") == said


# What a detail may say.


def test_an_engines_message_is_kept_for_the_person_who_mends_it() -> None:
    found = seen(500, vllm("EngineCore encountered an issue.", "InternalServerError", 500))
    assert found.detail == "HTTP 500: the engine failed (EngineCore encountered an issue.)"


def test_a_page_of_html_is_never_quoted() -> None:
    assert seen(502, b"<html><h1>Bad Gateway</h1></html>").detail == "HTTP 502: the engine failed"


def test_a_detail_is_one_bounded_line() -> None:
    found = seen(500, vllm("first line\nsecond\0 line " + "x" * 5000))
    assert "\n" not in found.detail
    assert "\0" not in found.detail
    assert len(found.detail) == DETAIL_CHARS


@pytest.mark.parametrize(
    "echo",
    [
        TICKET,
        TICKET.upper(),
        repr(TICKET.replace(" ", "\n")),
        json.dumps(TICKET),
        "parcel 4711 has",
        "'My parcel 4711...",
    ],
)
def test_a_message_that_repeats_the_ticket_is_cleaned_of_it(echo: str) -> None:
    found = seen(400, vllm(f"cannot parse {echo} here"))
    assert "4711" not in found.detail
    assert "cannot parse" in found.detail
    assert found.symptom is Symptom.REFUSED  # the ticket speaks of grammar, the engine does not


@pytest.mark.parametrize(
    "ticket", ["Où est mon colis numéro 4711 ?", "لم تصل الطرود بعد ٤٧١١ يوم", "我的包裹还没有到达请尽快处理"]
)
def test_escaped_text_of_any_script_is_recognised(ticket: str) -> None:
    clean = Censor(ticket, None)
    said = clean(f"cannot parse {json.dumps(ticket)} here")
    assert said.startswith("cannot parse")
    assert not set(ticket) & {character for character in said if ord(character) > 127} - {"…"}
    assert "4711" not in said


def test_what_a_validator_was_given_is_cut_off() -> None:
    said = Censor("hello", None)("[{'type': 'string_type', 'loc': ('body', 'x'), 'input': 'anything at all'}]")
    assert said == "[{'type': 'string_type', 'loc': ('body', 'x'),"


def test_the_key_is_never_quoted() -> None:
    found = seen(401, of_openai(f"Incorrect API key provided: {KEY}."))
    assert KEY not in found.detail
    assert "***" in found.detail


def test_broken_escapes_do_no_harm() -> None:
    said = Censor("ticket", None)(r"a lone \ud83d surrogate, a pair \ud83d\ude00, not one \u12")
    said.encode()
    assert "\N{GRINNING FACE}" in said
