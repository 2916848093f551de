"""``python -m deskgrid.wire`` prints the table of limits for SECURITY.md."""

from deskgrid.wire.table import markdown

print(markdown())
