"""``python -m deskgrid.wire`` prints the table of limits for docs/reference/limits.md."""

from deskgrid.wire.table import markdown

print(markdown())
