"""One validated object for every setting: from a TOML file, from the environment, or from both (the environment wins).

Every key `a.b` of the file is also the variable `TICKETS_BATCH__A__B`; lists and tables are JSON there.
"""

from tickets_batch.settings.classification import Classification, Example
from tickets_batch.settings.load import load, to_environment
from tickets_batch.settings.model import Alert, Gateway, Scheduler, Settings, Worker
from tickets_batch.settings.pool import Capacity, Engine, Pool, Protected
from tickets_batch.settings.secret import Secret, Url, reveal
from tickets_batch.settings.signal import (
    EngineSignal,
    LedgerSignal,
    ProbeSignal,
    PrometheusSignal,
    Signal,
    SignalType,
)
from tickets_batch.settings.sink import Sink
from tickets_batch.settings.source import Columns, ExportFormat, Source, Urgent

__all__ = [
    "Alert",
    "Capacity",
    "Classification",
    "Columns",
    "Engine",
    "EngineSignal",
    "Example",
    "ExportFormat",
    "Gateway",
    "LedgerSignal",
    "Pool",
    "ProbeSignal",
    "PrometheusSignal",
    "Protected",
    "Scheduler",
    "Secret",
    "Settings",
    "Signal",
    "SignalType",
    "Sink",
    "Source",
    "Urgent",
    "Url",
    "Worker",
    "load",
    "reveal",
    "to_environment",
]
