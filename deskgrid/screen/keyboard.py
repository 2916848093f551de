"""Reads single keys from a terminal, without Enter, on POSIX and Windows. Use only one instance at a time."""

import os
import sys
import threading
import time
from types import TracebackType

# Seconds between two checks for a key on a Windows console.
_POLL_S = 0.05


if sys.platform == "win32":
    import msvcrt

    # Keys without a letter, of which Windows sends two characters, as other terminals send them.
    _WINDOWS = {
        "H": "\x1b[A",
        "P": "\x1b[B",
        "I": "\x1b[5~",
        "Q": "\x1b[6~",
        "G": "\x1b[H",
        "O": "\x1b[F",
    }

    class Keyboard:
        """Within its context, keys that are pressed can be read one by one."""

        def __enter__(self) -> "Keyboard":
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def pressed(self, seconds: float) -> str:
            """Return the key pressed within ``seconds``; "" if there is none."""
            deadline = time.monotonic() + seconds
            while not msvcrt.kbhit():
                if time.monotonic() >= deadline:
                    return ""
                time.sleep(_POLL_S)
            key = msvcrt.getwch()
            return _WINDOWS.get(msvcrt.getwch(), "") if key in ("\0", "\xe0") else key

else:
    import select
    import termios
    import tty
    from codecs import getincrementaldecoder

    # How keys without a letter begin; and for how long the rest may take, seconds.
    _BEGUN = (b"\x1b", b"\x1b[", b"\x1bO")
    _REST_S = 0.05

    class Keyboard:
        """Within its context, keys that are pressed can be read one by one, and are not echoed.

        Ctrl-C still interrupts. Ctrl-Z does nothing: a stopped program would leave its screen on the terminal.
        """

        def __init__(self, descriptor: int = 0) -> None:
            self._input = descriptor
            self._before: list[int | list[bytes | int]] | None = None
            self._never = threading.Event()
            self._decoder = getincrementaldecoder("utf-8")("replace")

        def __enter__(self) -> "Keyboard":
            if os.isatty(self._input):
                self._before = termios.tcgetattr(self._input)
                tty.setcbreak(self._input)
                now = termios.tcgetattr(self._input)
                now[6][termios.VSUSP] = b"\0"
                termios.tcsetattr(self._input, termios.TCSANOW, now)
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            if self._before is not None:
                termios.tcsetattr(self._input, termios.TCSAFLUSH, self._before)

        def pressed(self, seconds: float) -> str:
            """Return the keys pressed within ``seconds``; "" if there are none. EOFError: the terminal is gone."""
            if self._before is None:
                self._never.wait(seconds)
                return ""
            if not select.select([self._input], [], [], seconds)[0]:
                return ""
            keys = self._read()
            # The bytes of one key may come apart, over a network; a key that is Esc comes alone.
            while keys.endswith(_BEGUN) and select.select([self._input], [], [], _REST_S)[0]:
                keys += self._read()
            return self._decoder.decode(keys)

        def _read(self) -> bytes:
            keys = os.read(self._input, 64)
            if not keys:
                raise EOFError("the terminal is gone")
            return keys
