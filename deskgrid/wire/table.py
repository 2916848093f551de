"""The limits of all fields as a table for people, made from the fields themselves."""

from collections.abc import Iterator

from deskgrid.wire.codec import FIELDS
from deskgrid.wire.fields import Optional, Rows, fields_of
from deskgrid.wire.limits import CONTROL_BYTES
from deskgrid.wire.messages import MOST
from deskgrid.wire.task_options import TaskOptions

# The marks around the table in a page.
BEGIN = "<!-- limits of the protocol: made by python -m deskgrid.wire -->"
END = "<!-- end of the limits of the protocol -->"


def markdown() -> str:
    """Return the table: a line for each field and limit, with the messages and rows that have that field."""
    found: dict[tuple[str, str], list[str]] = {}
    parts = {kind.__name__: fields_of(kind) for kind in (*_row_kinds(), TaskOptions)}
    for name, fields in ({kind.__name__: fields for kind, fields in FIELDS.items()} | parts).items():
        for field, limit in fields.items():
            found.setdefault((field, str(limit)), []).append(name)
    lines = [f"| `{field}` | {', '.join(names)} | {limit} |" for (field, limit), names in found.items()]
    whole = []
    for most in sorted(set(MOST.values()) - {CONTROL_BYTES}):
        kinds = ", ".join(kind.__name__ for kind, its in MOST.items() if its == most)
        whole.append(f"| all fields together, not counting large payloads | {kinds} | {most // 2**20} MiB |")
    whole.append(f"| all fields together | every other message | {CONTROL_BYTES // 2**20} MiB |")
    return "\n".join([BEGIN, "| field | of | at most |", "|---|---|---|", *lines, *whole, END])


def _row_kinds() -> Iterator[type]:
    """Yield every kind of row in a message."""
    for fields in FIELDS.values():
        for field in fields.values():
            inner = field.inner if isinstance(field, Optional) else field
            if isinstance(inner, Rows):
                yield inner.kind
