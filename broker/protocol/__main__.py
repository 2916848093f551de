"""``python -m broker.protocol`` prints the table of limits for SECURITY.md."""

from broker.protocol.table import markdown

print(markdown())
