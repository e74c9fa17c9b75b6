"""How many files a process may have open: as many as its connections need, as far as the system lets it."""

import subprocess
import sys

import pytest

from tickets_batch.local.open_files import OTHER_FILES, of_gateway, of_worker
from tickets_batch.settings import Settings

CODE = """
import resource, sys
from tickets_batch.local.open_files import make_room_for
soft, hard, needed = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
make_room_for(needed, "9 requests at a time")
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "needed", "becomes", "said"),
    [
        (200, 600, 500, "500 600", ""),
        (200, 600, 100, "200 600", ""),
        (200, 400, 500, "400 400", "9 requests at a time need 500 open files, and 400 are allowed: raise ulimit -n\n"),
    ],
)
def test_the_limit_is_raised_as_far_as_it_goes(soft: int, hard: int, needed: int, becomes: str, said: str) -> None:
    argv = [sys.executable, "-c", CODE, str(soft), str(hard), str(needed)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert (ended.stdout.strip(), ended.stderr) == (becomes, said)


def test_a_worker_needs_a_connection_for_each_request_that_it_may_have_at_each_pool() -> None:
    pools = [
        {"name": name, "base_url": "http://x/v1", "model": "m", "capacity": {"slots": slots, "tokens": 10_000}}
        for name, slots in (("a", 20), ("b", 1000))
    ]
    settings = Settings(pool=pools, worker={"at_once": 256})
    assert of_worker(settings) == 20 + 256 + OTHER_FILES
    assert of_gateway(1000) == 2000 + OTHER_FILES
