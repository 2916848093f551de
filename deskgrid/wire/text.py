"""Text from other machines, which is cleaned and shortened once, where it enters; and the rule for names.

Clean text contains nothing that a terminal might obey: no control characters, no escape sequences, no marks that change
the direction of writing. Each character that is not printable becomes "?", which is never longer.
"""

import re

# The name of a credential. A PC has that of its credential, so both sides of the wire need the rule. It is shown in
# lists, logs and errors, and is part of file names, so it is short and plain. It has no "~": a second worker of one PC
# is called NAME~2, and no credential can have that name.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def clean(text: str) -> str:
    """Return ``text`` on one line, without anything that a terminal might obey."""
    return text if text.isprintable() else text.translate(_table(text, ""))


def clean_lines(text: str) -> str:
    """Clean text that may have several lines and tabs."""
    return text if text.isprintable() else text.replace("\r\n", "\n").translate(_table(text, "\n\t"))


def _table(text: str, kept: str) -> dict[int, str]:
    """Return the table for `str.translate`; each distinct character of ``text`` is checked only once."""
    return {ord(each): "?" for each in set(text) if not each.isprintable() and each not in kept}


def is_longer(text: str, most: int) -> bool:
    """Whether ``text`` has more than ``most`` bytes as UTF-8."""
    return len(text) > most or (not text.isascii() and len(text.encode("utf-8", "replace")) > most)


def cut(text: str, most: int) -> str:
    """Return ``text`` cut to ``most`` bytes of UTF-8; a text that was cut ends in "..."."""
    if not is_longer(text, most):
        return text
    return text[:most].encode("utf-8", "replace")[: most - 3].decode("utf-8", "ignore") + "..."


def without_middle(text: str, most: int) -> str:
    """Return ``text`` cut to ``most`` characters: its head, a line that says how much was cut, and its tail."""
    if len(text) <= most:
        return text
    half = most // 2 - 32
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"


def name_error(name: object) -> str:
    """Return the error message for an invalid ``name``, or "" if it is valid."""
    if isinstance(name, str) and NAME.fullmatch(name):
        return ""
    return f"a name is 1 to 64 letters, digits, and . _ @ - inside, not {name!r:.80}"
