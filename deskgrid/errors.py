"""Everything that can go wrong for a client, by what to do about it.

`DeskgridError` is the root. What a task did is below `TaskError`, except that an exception of the task's own comes back
as itself, with the traceback it had on the worker as its ``__cause__`` (as `concurrent.futures` does it).
"""


class DeskgridError(Exception):
    """The root of all errors of deskgrid."""


class GridUnreachable(DeskgridError):
    """No broker answers. Start it, or look at the address and the network."""


class GridRefused(DeskgridError):
    """The broker will not have this client, or the join line is none: trying again as it is would not help."""


class GridClosed(DeskgridError, RuntimeError):
    """This Grid was shut down. Open another."""


class RequestFailed(DeskgridError):
    """The broker did not do what it was asked; it says why."""


class BagRejected(DeskgridError):
    """The bag, or a task of it, cannot be accepted as it is. Nothing of it is left on the grid."""


class PicklingFailed(BagRejected):
    """The function or an argument cannot travel to a worker."""


class PythonMismatch(BagRejected):
    """The grid runs another minor version of Python, which cannot load what this one pickles."""


class TaskError(DeskgridError):
    """A task failed otherwise than by an exception that can be raised here."""


class RemoteError(TaskError):
    """The task raised an exception that cannot be rebuilt here, or its command failed."""


class TaskCrashed(TaskError):
    """The task ended its process: a segmentation fault, `os._exit`, or killed for its memory."""


class TaskTimeout(TaskError):
    """The task ran longer than the timeout it was submitted with."""


class TaskCancelled(TaskError):
    """The task was cancelled."""


class ResultUnreadable(TaskError):
    """The task is done, but what it returned cannot be unpickled here."""


class RemoteTraceback(Exception):
    """The cause of a task's exception: its traceback on the worker, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""' if self.args else ""
