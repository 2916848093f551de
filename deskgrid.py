"""deskgrid: bags of tasks on lab PCs that come and go on schedule. These are its public names, and nothing else."""

try:
    from broker.client.bag import Bag, TaskLog
    from broker.client.errors import (
        BagRejected,
        DeskgridError,
        GridClosed,
        GridRefused,
        GridUnreachable,
        PicklingFailed,
        PythonMismatch,
        RemoteError,
        RemoteTraceback,
        RequestFailed,
        ResultUnreadable,
        TaskCancelled,
        TaskCrashed,
        TaskError,
        TaskTimeout,
    )
    from broker.client.grid import Grid, Task, task
    from broker.client.meter import Progress
    from broker.protocol import VERSION as __version__
except ImportError:
    import sys

    ours, found = __file__.removesuffix("deskgrid.py") + "broker", sys.modules.get("broker")
    places = [str(place) for place in getattr(found, "__path__", [])]
    if found is None or ours in places:
        raise
    where = getattr(found, "__file__", None) or places
    message = f"{where} hides a package of deskgrid that is called broker, too: rename yours to import deskgrid"
    raise ImportError(message) from None

__all__ = [
    "Bag",
    "BagRejected",
    "DeskgridError",
    "Grid",
    "GridClosed",
    "GridRefused",
    "GridUnreachable",
    "PicklingFailed",
    "Progress",
    "PythonMismatch",
    "RemoteError",
    "RemoteTraceback",
    "RequestFailed",
    "ResultUnreadable",
    "Task",
    "TaskCancelled",
    "TaskCrashed",
    "TaskError",
    "TaskLog",
    "TaskTimeout",
    "__version__",
    "task",
]
