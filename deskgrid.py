"""deskgrid: bags of tasks on lab PCs that come and go on schedule. These are its public names, and nothing else."""

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
