"""Functions with what is said of their calls: `task`, and what `Grid.submit`, `Grid.map` and `Grid.bag` make of it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from deskgrid.client.needs import Gang
from deskgrid.client.options import (
    BagKeywords,
    TaskKeywords,
    checked_env,
    checked_modules,
    checked_options,
    options_of,
    takes,
)
from deskgrid.client.refusals import check_runs
from deskgrid.client.submission import checked_seconds
from deskgrid.wire import TaskOptions

if TYPE_CHECKING:
    from deskgrid.client.environments.asked import Env

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

# The options of a call for which none are given: one value, because each submit would pay for another.
NO_OPTIONS = TaskOptions()


@dataclass(frozen=True, slots=True)
class Task(Generic[FunctionT]):
    """A function with the runtime and the options of its calls. Made by `task`; calling it calls the function."""

    function: FunctionT
    runtime: float | None = None
    options: TaskOptions = NO_OPTIONS
    modules: tuple[str, ...] = ()
    env: "Env | None" = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def of_a_bag(
        self, modules: Sequence[str], checkpoint: bool | None, gang: Gang | None, given: BagKeywords
    ) -> "Task[FunctionT]":
        """Return the task with what is said of a bag of it. Raises `BagRejected`."""
        before = self.options if checkpoint is None else replace(self.options, checkpoint=checkpoint)
        options = options_of(before, gang, given, BagKeywords)
        more = self.modules + checked_modules(modules)
        return replace(self, options=options, modules=more, env=checked_env(given.get("env")) or self.env)

    def in_chunks(self, size: int) -> "Task[Any]":
        """Return a task that makes ``size`` calls, one after the other: of a list of their arguments."""
        function = self.function

        # A nested function travels by value: tasks on a worker cannot import our modules.
        def each(chunk: list[tuple[Any, ...]]) -> list[Any]:
            return [function(*args) for args in chunk]

        runtime = None if self.runtime is None else checked_seconds(self.runtime * size, "the runtime")
        timeout = None if self.options.timeout is None else self.options.timeout * size
        return Task(each, runtime, checked_options(replace(self.options, timeout=timeout)), self.modules, self.env)


@takes(TaskKeywords)
def task(
    function: FunctionT,
    runtime: float | None = None,
    timeout: float | None = None,
    retries: int = 0,
    modules: Sequence[str] = (),
    *,
    checkpoint: bool = False,
    gang: Gang | None = None,
    **options: Unpack[TaskKeywords],
) -> Task[FunctionT]:
    """Set the predicted runtime of calls of ``function``, for `Grid.submit`, `Grid.map` and `Grid.bag`.

    ``runtime``: the predicted seconds of a call. ``timeout``: seconds after which a call is stopped and counts as
    failed. ``retries``: how many times a call that raised, or was stopped, is tried again. ``modules`` and
    ``checkpoint``: see `Grid.bag`.

    Raises `BagRejected` if one of these values is invalid.
    """
    before = TaskOptions(timeout, retries, checkpoint=checkpoint)
    seconds = None if runtime is None else checked_seconds(runtime, "the runtime")
    kept = options_of(before, gang, options, TaskKeywords)
    check_runs(function)
    return Task(function, seconds, kept, checked_modules(modules), checked_env(options.get("env")))


def chunks(calls: Iterable[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield ``size`` calls at a time."""
    calls = iter(calls)
    while chunk := list(islice(calls, size)):
        yield chunk


def as_task(function: Any) -> Task[Any]:
    """Return ``function`` as a task. Raises TypeError if it cannot be called."""
    if isinstance(function, Task):
        return function
    if not callable(function):
        raise TypeError(f"a task is something that can be called, not {function!r:.80}")
    check_runs(function)
    return Task(function)
