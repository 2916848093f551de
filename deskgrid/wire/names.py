"""The rule for names of credentials. A PC has the name of its credential, so both sides of the wire need the rule."""

import re

# A name is shown in lists, logs and errors, and is part of file names, so it is short and plain. It has no "~": a
# second worker of one PC is called NAME~2, and no credential can have that name.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def name_error(name: object) -> str:
    """Return the error message for an invalid ``name``, or "" if it is valid."""
    if isinstance(name, str) and NAME.fullmatch(name):
        return ""
    return f"a name is 1 to 64 letters, digits, and . _ @ - inside, not {name!r:.80}"
