"""Which machine this is, whatever its name: a copy of its disk that another one starts from is another one."""

import hashlib
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

# How long a program may take that macOS has for this. Seconds.
PATIENCE_S = 5.0
# Number of hexadecimal digits that stand for an id, which nobody else is to know.
_DIGITS = 16
_UUID = re.compile(r'"IOPlatformUUID"\s*=\s*"([^"]+)"')


def this_machine() -> str:
    """Return what stands for the id of this machine; empty if it has none, or another one after each start."""
    if sys.platform == "win32":
        found = _of_windows()
    elif sys.platform == "darwin":
        found = _of_macos()
    else:
        found = _of_linux()
    return hashlib.sha256(b"deskgrid " + found.encode()).hexdigest()[:_DIGITS] if found else ""


def _of_linux(file: Path = Path("/etc/machine-id"), run: Path = Path("/run")) -> str:
    """A machine that cannot keep its id has it in memory, below ``run``."""
    with suppress(OSError):
        if file.stat().st_dev != run.stat().st_dev:
            found = file.read_text(encoding="ascii", errors="replace").strip()
            return found if re.fullmatch("[0-9a-f]{32}", found) else ""
    return ""


def _of_macos() -> str:
    with suppress(OSError, subprocess.SubprocessError):
        argv = ["ioreg", "-rd1", "-c", "IOPlatformExpertDevice"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        if found := _UUID.search(done.stdout):
            return found[1]
    return ""


def _of_windows() -> str:
    if sys.platform == "win32":
        import winreg

        with (
            suppress(OSError),
            winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SOFTWARE\Microsoft\Cryptography") as key,
        ):
            return str(winreg.QueryValueEx(key, "MachineGuid")[0])
    return ""
