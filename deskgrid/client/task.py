"""Functions with what is said of their calls: `task`, and what `Grid.submit`, `Grid.map` and `Grid.bag` make of it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from deskgrid.client.needs import Gang
from deskgrid.client.options import (
    BagKeywords,
    DefaultKeywords,
    TaskKeywords,
    changes_of,
    checked_env,
    checked_modules,
    checked_options,
    options_of,
    takes,
)
from deskgrid.client.refusals import check_runs
from deskgrid.client.submission import Seconds, checked_seconds
from deskgrid.client.template import name_of
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
    # Which of the options were said, and which are only what they are by default.
    said: tuple[tuple[str, Any], ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def over(self, defaults: "Task[Any]") -> "Task[FunctionT]":
        """Return the task with ``defaults`` for what is not said of it. Raises `BagRejected` if they do not agree."""
        return replace(
            self,
            runtime=defaults.runtime if self.runtime is None else self.runtime,
            options=_changed(defaults.options, dict(self.said)),
            modules=defaults.modules + self.modules,
            env=self.env or defaults.env,
        )

    def of_a_bag(
        self, modules: Sequence[str], checkpoint: bool | None, gang: Gang | None, given: BagKeywords
    ) -> "Task[FunctionT]":
        """Return the task with what is said of a bag of it. Raises `BagRejected`."""
        before = self.options if checkpoint is None else replace(self.options, checkpoint=checkpoint)
        options = options_of(before, gang, given)
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
        each.__qualname__ = name_of(function)  # what people see of it
        options = checked_options(replace(self.options, timeout=timeout))
        return Task(each, runtime, options, self.modules, self.env, self.said)


@takes(TaskKeywords)
def task(
    function: FunctionT,
    runtime: Seconds | None = None,
    timeout: Seconds | None = None,
    retries: int | None = None,
    modules: Sequence[str] = (),
    *,
    checkpoint: bool | None = None,
    gang: Gang | None = None,
    **options: Unpack[TaskKeywords],
) -> Task[FunctionT]:
    """Set the predicted runtime of calls of ``function``, for `Grid.submit`, `Grid.map` and `Grid.bag`.

    ``runtime``: the predicted seconds of a call. ``timeout``: seconds after which a call is stopped and counts as
    failed. ``retries``: how many times a call that raised, or was stopped, is tried again. ``modules`` and
    ``checkpoint``: see `Grid.bag`.

    Raises `BagRejected` if one of these values is invalid.
    """
    given = {"timeout": timeout, "retries": retries, "checkpoint": checkpoint}
    said = {name: value for name, value in given.items() if value is not None}
    said |= changes_of(gang, options)
    seconds = None if runtime is None else checked_seconds(runtime, "the runtime")
    env = checked_env(options.get("env"))
    check_runs(function)
    return Task(function, seconds, _changed(NO_OPTIONS, said), checked_modules(modules), env, (*said.items(),))


def defaults_of(**given: Unpack[DefaultKeywords]) -> Task[Any]:
    """Return what is said of all tasks of a Grid, as a task of no function. Raises `BagRejected`."""
    if not given:
        return NO_DEFAULTS
    said = changes_of(given.get("gang"), given)
    runtime, modules = given.get("runtime"), checked_modules(given.get("modules") or ())
    seconds = None if runtime is None else checked_seconds(runtime, "the runtime")
    env = checked_env(given.get("env"))
    return Task(_nothing, seconds, _changed(NO_OPTIONS, said), modules, env, (*said.items(),))


def _changed(options: TaskOptions, said: dict[str, Any]) -> TaskOptions:
    return checked_options(replace(options, **said)) if said else options


def _nothing() -> None:
    """Stand for a function that is not known yet."""


# What is said of all tasks of a Grid for which nothing is said.
NO_DEFAULTS = Task(_nothing)


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
