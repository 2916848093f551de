"""What a program may say of tasks and bags besides their function and items: each option once, and its check.

`task`, `Grid.bag` and `Grid.command` take these options as keywords. To add one, see `deskgrid.wire.task_options`.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from deskgrid import wire
from deskgrid.client.bag import Bag
from deskgrid.client.needs import READERS, Gang, Labels, Size, SpeedupGiven, check_needs, read_gang
from deskgrid.client.submission import Runtime, checked_seconds
from deskgrid.errors import BagRejected
from deskgrid.wire import TaskOptions

if TYPE_CHECKING:
    from deskgrid.client.environments.asked import Env

# What a program gives as an environment.
EnvGiven = str | Path | Iterable[str | Path] | None

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class TaskKeywords(TypedDict, total=False):
    """These are of each task. What is None is as if you had not given it.

    ``copies``: whether a PC that would be idle otherwise may run a task that takes long a second time; the first of the
    two answers counts. It is not for tasks that save checkpoints. ``min_piece``: of a task that saves checkpoints, how
    many seconds a PC must have for it; 60 if you give none.

    ``env``: the libraries that the bag brings, so that the PCs need not have them. ``"mine"`` stands for what the
    function and the modules that travel import, or the first Python file that a command names, at the versions
    installed here. Otherwise it is a list of requirements such as ``["numpy==2.4.6"]``, in which paths of wheels and of
    projects may be, too; or a `Path` to a requirements.txt or a pylock.toml; or ``"script"`` for the comment
    ``# /// script`` of the program. They are resolved once for each sort of PC that the grid has, by pip or uv on this
    machine, and only wheels are used. ``python`` in a command is then the Python of the environment.

    ``slots``: how many slots of one PC a task needs at once, for its threads and processes. ``gang``: how many ranks a
    task has, which run at once, each a process of its own, on PCs of one site that reach each other; its result is the
    list of its ranks' results, also for one rank. ``(2, 16)``: from 2 to 16, as the grid chooses when the task begins;
    then ``speedup`` says what more ranks are worth: ``Amdahl(s)`` with the fraction s of the task that does not become
    faster, ``Downey(A, sigma)``, or a table such as ``{1: 1, 2: 1.9, 4: 3.4}``. With a speed-up, ``runtime`` is that of
    one rank, and otherwise that of the whole. ``mpi``: the ranks are MPI processes; they go to PCs that allow it.
    ``memory``: what each rank needs, in bytes or as ``"4G"``. ``labels``: what its PCs must have, ``"gpu"`` or
    ``{"gpu", "matlab"}``. With ``gang``, ``slots`` are for each rank.
    """

    copies: bool | None
    min_piece: float | None
    env: EnvGiven
    slots: int | None
    speedup: SpeedupGiven | None
    mpi: bool | None
    memory: Size | None
    labels: Labels | None


class BagKeywords(TaskKeywords, total=False):
    """These are of a whole bag, whose tasks all have the same.

    ``name``: of the bag, for the status; the function's or the command's if you give none. ``timeout``: seconds after
    which a task is stopped and counts as failed. ``retries``: how many times a task that failed or timed out is tried
    again.

    ``priority``: of your own bags, those of higher numbers come first (-100 to 100). ``limit``: how many tasks of the
    bag may be on PCs at once. ``licences``: how many licences each task needs, by name, as in ``{"matlab": 1}``; the
    broker's licences.toml says how many there are. ``after``: your bags, or their ids, that come before this one. It
    begins when all their tasks are done, or, with ``when="ended"``, when these have ended in any way. ``explore``: the
    bag begins with up to 16 items that are spread over its parameters, so the broker soon knows how long all of them
    take. Parameters are the numbers in the items: in numbers, texts, tuples, lists, dictionaries and dataclasses. Items
    without any are drawn at random, always the same ones.
    """

    name: str
    timeout: float | None
    retries: int | None
    priority: int | None
    limit: int | None
    licences: Mapping[str, int] | None
    after: Bag[Any, Any] | Iterable[Bag[Any, Any] | str] | None
    when: str | None
    explore: bool


class CallKeywords(BagKeywords, total=False):
    """These are of a bag of calls, as `Grid.bag` describes them."""

    runtime: Runtime
    modules: Sequence[str]
    checkpoint: bool | None


class CommandKeywords(BagKeywords, total=False):
    """These are of a bag of commands, as `Grid.command` describes them."""

    runtime: Runtime
    checkpoint: Sequence[str]
    checkpoint_signal: str
    checkpoint_exit: int
    inputs: Iterable[str]
    outputs: Sequence[str]


def takes(*keywords: Any) -> Callable[[FunctionT], FunctionT]:
    """Have `help` show what the ``**options`` of a function are; type checkers know by ``Unpack``."""

    def shown(function: FunctionT) -> FunctionT:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in keywords[-1].__annotations__.items()
        ]
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *more])
        texts = [inspect.cleandoc(each.__doc__ or "") for each in (function, *keywords)]
        function.__doc__ = "\n\n".join(texts)
        return function

    return shown


def options_of(before: TaskOptions, gang: Gang | None, given: Mapping[str, Any], keywords: Any) -> TaskOptions:
    """Return ``before``, changed by ``gang`` and by those of a program's keywords that are options of tasks; checked.

    Raises TypeError for one that is not among ``keywords``, and `BagRejected`.
    """
    if unknown := [name for name in given if name not in keywords.__annotations__]:
        near = get_close_matches(unknown[0], keywords.__annotations__, 1)
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}" + (f"; is it {near[0]!r}?" if near else ""))
    changed: dict[str, Any] = {} if gang is None else {**read_gang(gang)}
    for name, value in given.items():
        if value is not None:
            changed |= _READERS[name](value) if name in _READERS else {name: value} if name in _FIELDS else {}
    return checked_options(replace(before, **changed))


def checked_env(env: EnvGiven) -> "Env | None":
    """Check an environment that a user gave. Raises `BagRejected`."""
    if env is None:
        return None
    from deskgrid.client.environments import asked

    return asked.checked_env(env)


def checked_options(options: TaskOptions) -> TaskOptions:
    """Check and convert the options that a user gave. Raises `BagRejected`."""
    retries = options.retries
    if type(retries) is not int or not 0 <= retries <= wire.RETRIES_LIMIT:
        raise BagRejected(f"retries is a number of times, 0 to {wire.RETRIES_LIMIT:,}, not {retries!r:.80}")
    if type(options.copies) is not bool:
        raise BagRejected(f"copies is True or False, not {options.copies!r:.80}")
    if type(options.checkpoint) is not bool:
        raise BagRejected(f"checkpoint is True or False, not {options.checkpoint!r:.80}")
    options = replace(options, min_piece=checked_seconds(options.min_piece, "min_piece"))
    if options.min_piece != TaskOptions().min_piece and not options.checkpoint:
        raise BagRejected("min_piece is for tasks that save checkpoints: give checkpoint, too, or leave it out")
    if options.checkpoint and options.copies:
        raise BagRejected(
            "checkpoint and copies exclude each other: two attempts of a task would each save a state of its own, and "
            "the task can go on from one only; leave out checkpoint or copies"
        )
    _check_gates(options)
    check_needs(options)
    if options.timeout is None:
        return options
    seconds = checked_seconds(options.timeout, "the timeout")
    if not seconds:
        raise BagRejected("the timeout is 0 s, in which no task can run")
    return replace(options, timeout=seconds)


def _check_gates(options: TaskOptions) -> None:
    """Check when and where tasks of a bag may run. Raises `BagRejected`."""
    most = wire.PRIORITY_LIMIT
    # What a program gives may be of any type.
    given: tuple[Any, Any, Sequence[Any]] = options.priority, options.limit, options.after
    priority, limit, after = given
    if type(priority) is not int or not -most <= priority <= most:
        raise BagRejected(f"a priority is a whole number from {-most} to {most}, not {priority!r:.80}")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= wire.BAG_LIMIT):
        raise BagRejected(f"the limit is a number of tasks from 1 up, not {limit!r:.80}")
    if len(after) > wire.AFTER_LIMIT:
        raise BagRejected(f"a bag can come after {wire.AFTER_LIMIT} bags at most, not {len(after)}")
    for before in after:
        if not isinstance(before, str) or not re.fullmatch(r"[!-~]{1,64}", before):
            raise BagRejected(f"after has bags or their ids, not {before!r:.80}")
    if options.when not in ("ok", "ended"):
        raise BagRejected(f'when is "ok" or "ended", not {options.when!r:.80}')


def checked_licences(licences: object) -> tuple[str, ...]:
    """Check the licences that a user gave, and convert them to those of `TaskOptions`. Raises `BagRejected`."""
    if not isinstance(licences, Mapping) or len(licences) > wire.LICENCES_LIMIT:
        raise BagRejected(f"licences are at most {wire.LICENCES_LIMIT} names with numbers, not {licences!r:.80}")
    for name, many in licences.items():
        if not isinstance(name, str) or type(many) is not int or not re.fullmatch(wire.LICENCE, f"{name}={many}"):
            raise BagRejected(
                f'licences are names with numbers, such as {{"matlab": 1}}, not {name!r:.80}: {many!r:.40}'
            )
    return tuple([f"{name}={many}" for name, many in sorted(licences.items())])


def checked_modules(modules: Iterable[object]) -> tuple[str, ...]:
    """Check the names of modules that a user gave. Raises `BagRejected`."""
    given = [modules] if isinstance(modules, str) else list(modules)
    names = tuple([name for name in given if isinstance(name, str) and name])
    if isinstance(modules, str) or len(names) < len(given):
        raise BagRejected(f'modules is a list of names, such as ["lab.models"], not {modules!r:.80}')
    return names


def _ids(bags: str | Bag[Any, Any] | Iterable[Bag[Any, Any] | str]) -> tuple[Any, ...]:
    """Return the ids of the bags that a bag comes after."""
    given = [bags] if isinstance(bags, str | Bag) else list(bags)
    return tuple([bag.id if isinstance(bag, Bag) else bag for bag in given])


_FIELDS = frozenset([field.name for field in fields(TaskOptions)])
# How options are read that a program gives in another form.
_READERS: Mapping[str, Callable[[Any], Mapping[str, object]]] = {
    **READERS,
    "licences": lambda licences: {"licences": checked_licences(licences)},
    "after": lambda bags: {"after": _ids(bags)},
}
