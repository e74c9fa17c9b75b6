"""Data sets that lie beside the checkout, not in it."""

import os
from pathlib import Path

import pytest

VARIABLE = "TICKETS_BATCH_SHARED_DATA"
ROOT = Path(__file__).resolve().parents[2]


def shared_data(name: str) -> Path:
    """The file `name` of the shared data; the test that asks for it is skipped where it is absent."""
    folder = Path(os.environ.get(VARIABLE) or ROOT.parent / "shared" / "data")
    path = folder / name
    if not path.is_file():
        pytest.skip(f"{name} is not in {folder}: name the folder of the shared data in {VARIABLE}")
    return path
