"""What the tests of the whole product share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.night import Night


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    """A folder without settings and tickets; whatever is started in it ends with the test."""
    made = Night(tmp_path)
    yield made
    made.close()
