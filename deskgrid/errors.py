"""Everything that can go wrong for a client, by what you can do about it.

`DeskgridError` is the root. Failures of tasks are below `TaskError`. Only an exception that the task itself raised
comes back as it is, with its traceback on the worker as its ``__cause__`` (as in `concurrent.futures`).
"""


class DeskgridError(Exception):
    """The root of all errors of deskgrid."""


class GridUnreachable(DeskgridError):
    """No broker answers. Start it, or check the address and the network."""


class GridRefused(DeskgridError):
    """The broker refuses this client, or the join line is wrong. Trying again without a change would not help."""


class GridClosed(DeskgridError, RuntimeError):
    """This Grid was shut down. Open another."""


class RequestFailed(DeskgridError):
    """The broker did not do what you asked; the message says why."""


class BagRejected(DeskgridError):
    """The grid cannot take the bag, or one of its tasks, as it is. Nothing of the bag is left on the grid."""


class PicklingFailed(BagRejected):
    """The function or an argument cannot travel to a worker."""


class PythonMismatch(BagRejected):
    """The grid runs another minor version of Python, which cannot load what this one pickles."""


class TaskError(DeskgridError):
    """A task failed, but not with an exception that can be raised here."""


class RemoteError(TaskError):
    """The task raised an exception that cannot be rebuilt here, or its command failed."""


class TaskCrashed(TaskError):
    """The task's process died: by a segmentation fault, by `os._exit`, or killed because it used too much memory."""


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
