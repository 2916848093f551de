"""The errors of a client. Each exception says what to do about it.

`DeskgridError` is the root of all. For a failed task you get a `TaskError`, unless the task raised an exception: then
you get that exception, and its ``__cause__`` has the traceback from the worker, as in `concurrent.futures`. If it had a
cause itself, ``__context__`` has that.
"""


class DeskgridError(Exception):
    """The root of all errors of deskgrid."""


class GridUnreachable(DeskgridError):
    """No broker answers. Start it, or check the address and the network."""


class GridRefused(DeskgridError):
    """The broker does not let this client in, or the join line is not one. Trying again would not help."""


class GridClosed(DeskgridError, RuntimeError):
    """This Grid was shut down. Open another one."""


class RequestFailed(DeskgridError):
    """The broker did not do what you asked; the message says why."""


class BagRejected(DeskgridError):
    """The bag, or one of its tasks, cannot be accepted. Nothing of the bag is left on the grid."""


class PicklingFailed(BagRejected):
    """The function or an argument cannot be sent to a worker."""


class TaskError(DeskgridError):
    """A task failed, but not with an exception that can be raised here."""


class RemoteError(TaskError):
    """The task raised an exception whose type cannot be loaded here, or its command failed.

    It is also of the nearest base of that type that can be loaded: ``except ValueError`` catches it, for example.
    """


class TaskCrashed(TaskError):
    """The task ended its process: by a segmentation fault, by `os._exit`, or by using too much memory."""


class TaskTimeout(TaskError):
    """The task ran longer than the timeout it was submitted with."""


class TaskCancelled(TaskError):
    """The task was cancelled."""


class ResultUnreadable(TaskError):
    """The task is done, but its result cannot be unpickled here."""


class RemoteTraceback(Exception):
    """The cause of a task's exception: its traceback on the worker, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""' if self.args else ""
