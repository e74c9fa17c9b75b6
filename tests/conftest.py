"""The fixtures that tests share, each in the module of its subject under `tests/support`."""

import pytest

pytest_plugins = ["tests.support.databases", "tests.support.valkey"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole nights begin first: with two tests at a time, the last file would else keep one worker waiting."""
    items.sort(key=lambda item: "e2e" not in item.path.parts)
