"""`python -m tests.engine`: run the engine as a process of its own, until SIGTERM or SIGINT."""

import argparse
import asyncio
import json
import os
import signal
from pathlib import Path

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.answer import AnswerSettings
from tests.engine.server import EngineServer
from tests.engine.service import ServiceSettings

PARENT_CHECK_SECONDS = 0.25


def main() -> None:
    options = _parser().parse_args()
    base = EngineProfile.instant() if options.profile == "instant" else EngineProfile()
    asked = {name: getattr(options, name) for name in ("slots", "policy", "max_queue", "prefix_cache_tokens")}
    profile = base.changed({name: value for name, value in asked.items() if value is not None})
    profile = profile.changed(json.loads(options.set)).at_speed(options.speed)
    oracle = json.loads(options.oracle.read_bytes()) if options.oracle else {}
    answer = AnswerSettings(
        answer_tokens=options.answer_tokens,
        answer_sigma=options.answer_sigma,
        chat_tokens=options.chat_tokens,
        bytes_per_token=options.bytes_per_token,
        oracle=oracle,
    )
    settings = ServiceSettings(
        model=options.model,
        api_key=options.api_key,
        answer=answer,
        stream_interval=options.stream_interval,
        log_text=options.log_text,
    )
    server = EngineServer(profile, settings, port=options.port, log_path=options.log)
    asyncio.run(_serve(server, os.getppid() if options.die_with_parent else None))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.engine", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: a free one, printed at start")
    parser.add_argument("--profile", choices=("default", "instant"), default="default")
    parser.add_argument("--slots", type=int)
    parser.add_argument("--policy", choices=("fcfs", "priority"))
    parser.add_argument("--max-queue", type=int, help="waiting requests above which it answers 429")
    parser.add_argument("--prefix-cache-tokens", type=int)
    parser.add_argument("--set", default="{}", metavar="JSON", help="any other fields of the profile")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times as fast as the profile says")
    parser.add_argument("--model", default="test-model")
    parser.add_argument("--api-key", help="require this bearer key")
    parser.add_argument("--answer-tokens", type=int, help="tokens of a labelled answer (default: its text)")
    parser.add_argument("--answer-sigma", type=float, default=0.0, help="lognormal spread of --answer-tokens")
    parser.add_argument("--chat-tokens", type=int, help="tokens of a free answer (default: the request's cap)")
    parser.add_argument("--bytes-per-token", type=float, default=4.0)
    parser.add_argument("--oracle", type=Path, help="JSON object of ticket text to label")
    parser.add_argument("--stream-interval", type=int, default=1)
    parser.add_argument("--log", type=Path, help="append one JSON line per ended request to this file")
    parser.add_argument("--log-text", action="store_true", help="keep the tickets' text in the log")
    parser.add_argument("--die-with-parent", action="store_true")
    return parser


async def _serve(server: EngineServer, parent: int | None) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with server:
        print(f"{server.address}/v1", flush=True)
        while not stopped.is_set():
            try:
                await asyncio.wait_for(stopped.wait(), PARENT_CHECK_SECONDS if parent is not None else None)
            except TimeoutError:
                if os.getppid() != parent:
                    stopped.set()


if __name__ == "__main__":
    main()
