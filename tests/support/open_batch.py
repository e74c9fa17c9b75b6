"""A batch at work and a forecast of it, as the scheduler sees them."""

from datetime import timedelta

from jobs.states import BatchState
from jobs.store.batches import BatchWork
from jobs.store.forecasts import StoredForecast
from tests.support.store import START

WORK = BatchWork(
    id="batch_1",
    state=BatchState.RUNNING,
    blocked=None,
    spec={},
    model="test-model",
    pools=("gpu",),
    not_before=None,
    deadline_at=START + timedelta(hours=1),
    created_at=START,
    started_at=START,
    total=10,
    pending=4,
    running=1,
    succeeded=3,
    failed=2,
    expired=0,
    cancelled=0,
    reused=0,
    prompt_tokens=900,
    completion_tokens=90,
    wasted_tokens=30,
    text_bytes_left=100,
)
FORECAST = StoredForecast(
    batch_id="batch_1",
    at=START,
    jobs_left=5,
    tokens_left=500,
    achieved_rate=None,
    needed_rate=0.5,
    floor_rate=None,
    full_rate=None,
    chat_slots=None,
    p50_at=START + timedelta(minutes=5),
    p90_at=None,
    floor_at=None,
    pace="at_risk",
)
