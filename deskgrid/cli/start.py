"""What the console script calls. It imports nothing of ours before it is ready for Ctrl-C.

Importing the command line takes long enough for somebody to press Ctrl-C meanwhile. Nothing has begun by then, so the
process ends at once, without Python's traceback. Only while Python itself starts can we do nothing.
"""

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Run a command, and exit with its exit code."""
    # A shell has background jobs ignore it.
    catches = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if catches:
        signal.signal(signal.SIGINT, _leave)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed, as by >&-: the next file that is opened would be in its place
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it stays open
    from deskgrid.cli.front import main as front

    if catches:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    front()


def _leave(number: int, frame: Any) -> None:
    os._exit(128 + number)  # as front.py ends when it is interrupted, and as shells report it
