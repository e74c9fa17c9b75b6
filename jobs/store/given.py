"""Many rows in one parameter: a statement keeps one text, one plan and one round trip for any number of them."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import FromClause, Text, bindparam, cast, column, func, select, type_coerce
from sqlalchemy.dialects.postgresql import JSON as POSTGRESQL_JSON
from sqlalchemy.types import TypeEngine

ROWS = "given_rows"


def given(dialect: str, name: str, **columns: TypeEngine[Any]) -> FromClause:
    """A table expression with these columns whose rows come in the parameter ROWS, as `packed` makes it."""
    rows = bindparam(ROWS, type_=Text)
    if dialect == "postgresql":
        typed = [column(key, type_) for key, type_ in columns.items()]
        call = func.json_to_recordset(cast(rows, POSTGRESQL_JSON))
        return call.table_valued(*typed).render_derived(name=name, with_types=True)
    each = func.json_each(rows).table_valued("value", name=f"{name}_each")
    return select(
        *(type_coerce(func.json_extract(each.c.value, f"$.{key}"), type_).label(key) for key, type_ in columns.items())
    ).subquery(name)


def packed(dialect: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The parameter for `given`; instants are written as the database compares them."""

    def written(value: object) -> str:
        if isinstance(value, datetime):
            utc = value.astimezone(UTC)
            return utc.isoformat() if dialect == "postgresql" else utc.strftime("%Y-%m-%d %H:%M:%S.%f")
        raise TypeError(f"cannot hand over {value!r}")

    return {ROWS: json.dumps(rows, default=written, separators=(",", ":"))}
