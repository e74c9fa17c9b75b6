"""The fixtures that tests share, each in the module of its subject under `tests/support`."""

pytest_plugins = ["tests.support.databases", "tests.support.valkey"]
