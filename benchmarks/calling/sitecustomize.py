"""Every Python that is started with this folder on its path writes down its calls, in the folder of $DESKGRID_CALLS.

There is a file for each thread, ROLE-PID-NUMBER, in the format of `pstats`. Files are written again and again, because
a worker kills the processes of its tasks. The seconds are those of the clock: waiting counts for what waits.

With $DESKGRID_REACH, it writes when which function was called instead, in the file ROLE-PID of that folder: a line for
each call of a function below one of the folders in $DESKGRID_REACH_OF, of the monotonic clock in ns, file, first line
and name.
"""

import atexit
import cProfile
import inspect
import marshal
import os
import sys
import threading
import time
from types import FrameType

# Between two times of writing. Seconds; what happens after the last one is not seen of a process that is killed.
WRITE_S = 0.5

_profiles: list[cProfile.Profile] = []


def role() -> str:
    """What this process is to the grid, by how it was started."""
    words = [os.path.basename(word) for word in sys.orig_argv]
    if "start.py" in words:
        return "task processes"
    if any(word.startswith("deskgrid.broker.") for word in words):
        return "forecasts"
    return next((role for role in ("broker", "worker") if role in words), "client")


def begin(*_: object) -> None:
    """From now on, in this thread."""
    profile = cProfile.Profile()
    _profiles.append(profile)
    profile.enable()


def write(folder: str) -> None:
    """What has been called so far."""
    for number, profile in enumerate(list(_profiles)):
        profile.snapshot_stats()
        if not profile.stats:
            continue  # a thread that has been in one call of C since it began: `pstats` reads no such file
        path = os.path.join(folder, f"{role()}-{os.getpid()}-{number}")
        with open(path + ".part", "wb") as file:
            marshal.dump(profile.stats, file)
        os.replace(path + ".part", path)


def write_often(folder: str) -> None:
    """Until the process ends, or the folder is gone."""
    while os.path.isdir(folder):
        time.sleep(WRITE_S)
        write(folder)


class Reach:
    """Writes down each call of a function below these folders. Each copy of a process writes its own file."""

    def __init__(self, folder: str, ours: tuple[str, ...]) -> None:
        self._folder, self._ours = folder, ours
        self._role, self._first = role(), os.getpid()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # Modules, bodies of classes, lambdas and comprehensions are no functions of their own.
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(self._ours):
            pid = os.getpid()
            name = f"{self._role if pid == self._first else 'task processes'}-{pid}"
            line = f"{time.monotonic_ns()}\t{code.co_filename}\t{code.co_firstlineno}\t{code.co_qualname}\n"
            with open(os.path.join(self._folder, name), "a") as file:
                file.write(line)


if "DESKGRID_REACH" in os.environ:
    reach = Reach(os.environ["DESKGRID_REACH"], tuple(os.environ["DESKGRID_REACH_OF"].split(os.pathsep)))
    threading.setprofile(reach)
    sys.setprofile(reach)

if "DESKGRID_CALLS" in os.environ:
    threading.Thread(target=write_often, args=(os.environ["DESKGRID_CALLS"],), daemon=True).start()
    atexit.register(write, os.environ["DESKGRID_CALLS"])
    threading.setprofile(begin)
    begin()
