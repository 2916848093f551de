"""deskgrid: bags of tasks on lab PCs that come and go on schedule. This module has its public names, and nothing else.

Rule 1: all our modules are imported below the name ``deskgrid``, the only name that an installation adds. In a checkout
the other packages (``broker/``, ``worker/``, ...) are beside this folder; in an installation they are inside it.
Rule 2: a name is loaded when it is first used. Every process imports this file first, whichever part of deskgrid it
needs: a worker, for example, does not need the client.
"""

import os.path
from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "Amdahl",
    "Bag",
    "BagRejected",
    "Change",
    "DeskgridError",
    "Downey",
    "Eta",
    "File",
    "Grid",
    "GridClosed",
    "GridRefused",
    "GridUnreachable",
    "PicklingFailed",
    "Progress",
    "RankLog",
    "RemoteError",
    "RemoteTraceback",
    "RequestFailed",
    "ResultUnreadable",
    "Shared",
    "Task",
    "TaskCancelled",
    "TaskCrashed",
    "TaskError",
    "TaskLog",
    "TaskTimeout",
    "__version__",
    "task",
]

# The modules of the public names, except for the errors.
_PLACES = {
    "Amdahl": "deskgrid.scheduler.parallel.speedup",
    "Bag": "deskgrid.client.bag",
    "Change": "deskgrid.client.whatif",
    "Downey": "deskgrid.scheduler.parallel.speedup",
    "Eta": "deskgrid.client.eta",
    "File": "deskgrid.files",
    "Grid": "deskgrid.client.grid",
    "Progress": "deskgrid.client.progress",
    "RankLog": "deskgrid.client.logs",
    "Shared": "deskgrid.files",
    "Task": "deskgrid.client.task",
    "TaskLog": "deskgrid.client.logs",
    "__version__": "deskgrid.wire",
    "task": "deskgrid.client.task",
}

_beside = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if os.path.isfile(os.path.join(_beside, "pyproject.toml")):
    __path__.append(_beside)

if TYPE_CHECKING:
    from deskgrid.client.bag import Bag
    from deskgrid.client.eta import Eta
    from deskgrid.client.grid import Grid
    from deskgrid.client.logs import RankLog, TaskLog
    from deskgrid.client.progress import Progress
    from deskgrid.client.task import Task, task
    from deskgrid.client.whatif import Change
    from deskgrid.errors import (
        BagRejected,
        DeskgridError,
        GridClosed,
        GridRefused,
        GridUnreachable,
        PicklingFailed,
        RemoteError,
        RemoteTraceback,
        RequestFailed,
        ResultUnreadable,
        TaskCancelled,
        TaskCrashed,
        TaskError,
        TaskTimeout,
    )
    from deskgrid.files import File, Shared
    from deskgrid.scheduler.parallel.speedup import Amdahl, Downey
    from deskgrid.wire import VERSION as __version__
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'deskgrid' has no attribute {name!r}")
        place = import_module(_PLACES.get(name, "deskgrid.errors"))
        globals()[name] = found = getattr(place, "VERSION" if name == "__version__" else name)
        return found


def __dir__() -> list[str]:
    return [*__all__]
