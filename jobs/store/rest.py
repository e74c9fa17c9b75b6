"""The rest of a job between two attempts, by the database's time."""

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, or_

from jobs.tables import jobs

LONGEST_REST = timedelta(minutes=10)  # an engine may ask for five minutes, and up to half of that is added


def is_rested(now: ColumnElement[Any], latest: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether a job may be tried `now`; `latest` is LONGEST_REST later.

    A job that seems to rest for longer still was put aside before the clock was set back.
    """
    rests_until = jobs.c.not_before
    return or_(rests_until.is_(None), rests_until <= now, rests_until > latest)
