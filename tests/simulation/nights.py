"""Plays many nights in two processes; what only the peers did is kept in a file until a source of it changes."""

import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from hashlib import sha256
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.simulation.rows import OURS, OURS_PRIORITY, Night, Result, play

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "simulation"
PROCESSES = 2
PEER_SOURCES = (
    "scheduler/simulation/engine/core.py",
    "scheduler/simulation/engine/profile.py",
    "scheduler/simulation/engine/queue.py",
    "scheduler/simulation/engine/request.py",
    "scheduler/simulation/engine/sequence.py",
    "scheduler/simulation/shapes.py",
    "scheduler/simulation/site.py",
    "scheduler/simulation/tickets.py",
    "scheduler/simulation/trace.py",
    "scheduler/simulation/world.py",
    "tests/simulation/chats.py",
    "tests/simulation/clairvoyant.py",
    "tests/simulation/occupancy.py",
    "tests/simulation/peers.py",
    "tests/simulation/rows.py",
    "tests/simulation/sites.py",
)
CONSTANT = tuple[str, str, Any]  # module, name, value


def play_all(nights: Iterable[Night], constants: Iterable[CONSTANT] = ()) -> Mapping[Night, Result]:
    """The result of each night; `constants` of modules are changed for ours, which is always played anew."""
    wanted, kept = list(nights), _Kept()
    results = {night: result for night in wanted if (result := kept.get(night)) is not None}
    missing = [night for night in wanted if night not in results]
    # "spawn": a changed constant must not find a module that was imported before.
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), change_constants, (tuple(constants),)) as pool:
        try:
            for night, result in zip(missing, pool.map(play, missing), strict=True):
                results[night] = result
                kept.put(night, result)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # else an interrupt would wait for every night
            kept.save()
    return results


def change_constants(constants: Iterable[CONSTANT]) -> None:
    """Set module constants in this process."""
    for module, name, value in constants:
        found = import_module(module)
        if not hasattr(found, name):
            raise ValueError(f"{module} has no {name}")
        setattr(found, name, value)


class _Kept:
    """Results of peers by the hash of all they depend on."""

    def __init__(self) -> None:
        self._path = CACHE / "peers.json"
        self._results: dict[str, dict[str, float]] = {}
        self._new: dict[str, dict[str, float]] = {}
        self._digest = _digest()
        self._read()

    def get(self, night: Night) -> Result | None:
        found = self._results.get(self._key(night)) if _is_peer(night) else None
        return Result(**found) if found else None

    def put(self, night: Night, result: Result) -> None:
        if _is_peer(night):
            self._new[self._key(night)] = asdict(result)

    def save(self) -> None:
        """Write what is new beside what another process has written meanwhile; of two at one moment one may lose.

        Nothing is kept when a source was changed meanwhile: nobody knows which nights were played with which.
        """
        if not self._new or _digest() != self._digest:
            return
        self._read()
        self._results |= self._new
        self._new = {}
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE.parent / ".gitignore").write_text("*\n")
        fresh = self._path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(self._results))
        fresh.replace(self._path)

    def _key(self, night: Night) -> str:
        return sha256(f"{self._digest} {night!r}".encode()).hexdigest()[:32]

    def _read(self) -> None:
        if self._path.exists():
            self._results = json.loads(self._path.read_text())


def _is_peer(night: Night) -> bool:
    return night.row not in (OURS, OURS_PRIORITY)


def _digest() -> str:
    digest = sha256()
    for name in PEER_SOURCES:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()
