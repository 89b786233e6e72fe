"""Writes the tables of docs/logs.md from the columns and record types of the event log, so that they cannot drift."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from architecture import with_region
from surecast.event_log_records import COLUMNS, RECORD_TYPES, SPARK_SCHEMA, optional_columns, required_columns

PAGE = Path(__file__).resolve().parent.parent / "docs" / "logs.md"


def main() -> None:
    """Writes the page, or with --check says that it is stale."""
    text = page()
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == text else f"{PAGE} is stale: run tools/log_reference.py")
    PAGE.write_text(text, encoding="utf-8")


def page() -> str:
    """Returns the page with its regions written anew."""
    text = PAGE.read_text(encoding="utf-8")
    for name, region in (("columns", column_table()), ("record types", type_table()), ("schema", schema())):
        text = with_region(text, name, region, tool="log_reference")
    return text


def column_table() -> str:
    """Returns the table of all columns."""
    rows = ["| column | type | unit | meaning | since |", "|---|---|---|---|---|"]
    for column in COLUMNS.values():
        allowed = f"; one of {', '.join(map(str, column.allowed))}" if column.allowed else ""
        rows.append(f"| `{column.name}` | {column.type} | {column.unit} | {column.meaning}{allowed} | {column.since} |")
    return "\n".join(rows) + "\n"


def type_table() -> str:
    """Returns the table of all record types, each with the sentences of its class."""
    rows = ["| type | always has | may have | when it is written |", "|---|---|---|---|"]
    for kind, record_type in RECORD_TYPES.items():
        always, perhaps = (", ".join(f"`{name}`" for name in f(kind)) for f in (required_columns, optional_columns))
        rows.append(f"| `{kind}` | {always} | {perhaps} | {' '.join((record_type.__doc__ or '').split())} |")
    return "\n".join(rows) + "\n"


def schema() -> str:
    """Returns the schema of Spark as a block of SQL."""
    return "```sql\n" + textwrap.fill(SPARK_SCHEMA, 118) + "\n```\n"


if __name__ == "__main__":
    main()
