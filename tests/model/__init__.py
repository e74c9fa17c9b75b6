"""Model checking by test: random nights of two schedulers, workers that die and zombies, against a model in dicts."""

import pytest

PARTS = ("house", "leading", "night", "permits", "watch", "working")

pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in PARTS))  # so that a failure shows both sides
