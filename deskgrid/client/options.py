"""What a program may say of tasks and bags besides their function and items: each option once, and its check.

`task`, `Grid.bag` and `Grid.command` take these options as keywords. To add one, see `deskgrid.wire.task_options`.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from deskgrid import wire
from deskgrid.client.bag import Bag
from deskgrid.client.given import check, check_iterable, texts
from deskgrid.client.needs import READERS, Gang, Labels, Size, SpeedupGiven, check_needs, read_gang
from deskgrid.client.submission import Runtime, Seconds, checked_seconds
from deskgrid.errors import BagRejected
from deskgrid.wire import TaskOptions

if TYPE_CHECKING:
    from deskgrid.client.environments.asked import Env

# What a program gives as an environment.
EnvGiven = str | Path | Iterable[str | Path] | None

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class _Keywords(TypedDict, total=False):
    """What tasks, bags, and the defaults of a Grid have."""

    copies: bool | None
    min_piece: Seconds | None
    env: EnvGiven
    speedup: SpeedupGiven | None
    memory: Size | None
    resources: Mapping[str, float | str] | None
    labels: Labels | None


class TaskKeywords(_Keywords, total=False):
    """Options for tasks. An option that is None counts as not given. Seconds may be texts such as "1h30min".

    ``copies``: whether an idle PC may run a second attempt of a task that takes too long; the first success counts. Not
    for tasks that save checkpoints, or need several slots, and not for bags with a limit or licences. ``min_piece``:
    for tasks that save checkpoints, the least time in seconds that a PC must have left (60 by default).

    ``env``: the libraries that the bag brings, so that the PCs need not have them. ``"mine"`` means those that the
    function and your own modules import, or that the first Python file of a command imports, in the versions installed
    here. You can also give a list of requirements such as ``["numpy==2.4.6"]``, with paths of wheels and projects; a
    `Path` to a requirements.txt or a pylock.toml; or ``"script"`` for the ``# /// script`` comment of the program. pip
    or uv resolves them on this machine, once for each kind of PC in the grid, and uses only wheels. In a command,
    ``python`` is then the Python of the environment.

    ``slots``: how many slots of one PC a task needs at once, for its threads and processes; with ``gang``, each rank
    needs so many. ``gang``: how many ranks a task has. They run at the same time, each in its own process, on PCs of
    one site that can reach each other. The result is the list of the ranks' results, even for one rank. With
    ``(2, 16)``, the grid chooses between 2 and 16 ranks when the task starts. ``speedup`` then says how much faster the
    task is with more ranks: ``Amdahl(s)`` with the serial fraction s, ``Downey(A, sigma)``, or a table such as
    ``{1: 1, 2: 1.9, 4: 3.4}``. With a speed-up, ``runtime`` is the time on one rank; without, it is the time of the
    whole gang. ``mpi``: the ranks are MPI processes, and run only on PCs that allow MPI. ``memory``: what each rank
    may use with all that it starts, in bytes or as ``"4G"``. ``resources``: what each rank needs of
    what is counted of PCs, as in ``{"gpu": 1, "scratch": "20G"}``; half a graphics card is ``{"gpu": 0.5}``.
    ``labels``: what the PCs must have: ``"matlab"`` or ``{"matlab", "os=windows"}``.
    """

    slots: int | None
    mpi: bool | None


class BagKeywords(TaskKeywords, total=False):
    """Options for bags. They are the same for all tasks of the bag.

    ``name``: the name of the bag; by default that of the function or the command. ``timeout``: the seconds after which
    a task is stopped; this counts as a failure. ``retries``: how many times a task that failed or timed out is tried
    again.

    ``priority``: your bags with higher numbers come before your other bags (-100 to 100). ``limit``: how many tasks of
    the bag may be on PCs at once. ``licences``: how many licences each task needs, by name, as in ``{"matlab": 1}``;
    the broker's licences.toml says how many the grid has. ``after``: your bags, or their ids, that come before this
    one. The bag starts when all their tasks have succeeded, or, with ``when="ended"``, when they have ended in any way.

    ``explore``: the bag starts with up to 16 items that are spread over its parameters, so that the broker learns early
    how long all of them take. Parameters are the numbers in the items: in numbers, strings, tuples, lists, dictionaries
    and dataclasses. If there are none, the items are chosen at random, but always the same ones.
    """

    name: str
    timeout: Seconds | None
    retries: int | None
    priority: int | None
    limit: int | None
    licences: Mapping[str, int] | None
    after: Bag[Any, Any] | Iterable[Bag[Any, Any] | str] | None
    when: str | None
    explore: bool


class CallKeywords(BagKeywords, total=False):
    """Options for bags of calls; `Grid.bag` describes them."""

    runtime: Runtime
    modules: Sequence[str]
    checkpoint: bool | None


class CommandKeywords(BagKeywords, total=False):
    """These are of a bag of commands, as `Grid.command` describes them."""

    runtime: Runtime
    checkpoint: Sequence[str]
    checkpoint_signal: str
    checkpoint_exit: int
    inputs: Iterable[str | PathLike[str]]
    outputs: Sequence[str]


class GridKeywords(_Keywords, total=False):
    """Defaults for calls, bags and commands, as `Grid` takes them. `DefaultKeywords` describes them."""

    name: str
    retries: int | None
    priority: int | None
    limit: int | None
    licences: Mapping[str, int] | None
    runtime: Seconds | None
    modules: Sequence[str]
    checkpoint: bool | None
    gang: Gang | None
    keep: bool


class DefaultKeywords(GridKeywords, total=False):
    """Defaults for calls, bags and commands, which `task` and their own options override.

    ``name``, ``timeout``, ``retries``, ``priority``, ``limit``, ``licences``, ``runtime``, ``modules``, ``checkpoint``:
    see `Grid.bag`. ``keep``: whether the broker keeps the calls of `Grid.submit` and `Grid.map` as it keeps bags. By
    default, it forgets them when all have their results.
    """

    timeout: Seconds | None
    slots: int | None
    mpi: bool | None


def knows(keywords: Any) -> Callable[[FunctionT], FunctionT]:
    """Refuse other ``**options`` than ``keywords`` with a TypeError, which names the nearest one.

    Type checkers know by ``Unpack``.
    """

    def checked(given: FunctionT) -> FunctionT:
        known = {*inspect.signature(given).parameters, *keywords.__annotations__}

        @wraps(given)
        def function(*args: Any, **options: Any) -> Any:
            if unknown := [name for name in options if name not in known]:
                near = get_close_matches(unknown[0], known, 1)
                hint = f"; do you mean {near[0]!r}?" if near else ""
                name = given.__qualname__.removesuffix(".__init__")
                raise TypeError(f"{name}() has no option {unknown[0]!r}{hint}")
            return given(*args, **options)

        return cast(FunctionT, function)

    return checked


def takes(*keywords: Any) -> Callable[[FunctionT], FunctionT]:
    """Have `help` show what the ``**options`` of a function are, as `knows` checks them."""

    def shown(given: FunctionT) -> FunctionT:
        signature = inspect.signature(given)
        function = knows(keywords[-1])(given)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in keywords[-1].__annotations__.items()
        ]
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *more])
        texts = [inspect.cleandoc(each.__doc__ or "") for each in (given, *keywords)]
        function.__doc__ = "\n\n".join(texts)
        return function

    return shown


def options_of(before: TaskOptions, gang: Gang | None, given: Mapping[str, Any]) -> TaskOptions:
    """Return ``before``, changed as `changes_of` says; checked.

    Raises `BagRejected`.
    """
    return checked_options(replace(before, **changes_of(gang, given)))


def changes_of(gang: Gang | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of tasks that ``gang`` and a program's keywords say, by field of `TaskOptions`.

    Raises `BagRejected`.
    """
    changed: dict[str, Any] = {} if gang is None else {**read_gang(gang)}
    for name, value in given.items():
        if value is not None:
            changed |= _READERS[name](value) if name in _READERS else {name: value} if name in _FIELDS else {}
    return changed


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
    if type(options.keep) is not bool:
        raise BagRejected(f"keep is True or False, not {options.keep!r:.80}")
    if type(options.checkpoint) is not bool:
        raise BagRejected(f"checkpoint is True or False, not {options.checkpoint!r:.80}")
    options = replace(options, min_piece=checked_seconds(options.min_piece, "min_piece"))
    if options.min_piece != TaskOptions().min_piece and not options.checkpoint:
        raise BagRejected("min_piece is for tasks that save checkpoints: give checkpoint, too, or leave it out")
    if options.checkpoint and options.copies:
        raise BagRejected(
            "a bag cannot have both checkpoint and copies: two attempts would each save their own state, but the task "
            "can continue from only one of them; leave out checkpoint or copies"
        )
    _check_gates(options)
    _check_no_copies(options)
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


def _check_no_copies(options: TaskOptions) -> None:
    """Refuse copies of tasks that never get any. Raises `BagRejected`."""
    if options.copies and options.limit is not None:
        raise BagRejected(
            "a bag with a limit gets no copies, because each would count as one more: leave out one of them"
        )
    if options.copies and options.licences:
        raise BagRejected(
            "a bag with licences gets no copies, because each would need licences of its own: leave out one of them"
        )


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


def checked_modules(modules: Iterable[Any]) -> tuple[str, ...]:
    """Check the names of modules that a user gave. Raises `BagRejected`."""
    takes = 'a list of names, such as ["lab.models"]'
    names = texts("modules", modules, takes)
    if not all(names):
        raise BagRejected(f"modules is {takes}, not {modules!r:.80}")
    return names


def _ids(bags: str | Bag[Any, Any] | Iterable[Bag[Any, Any] | str]) -> tuple[Any, ...]:
    """Return the ids of the bags that a bag comes after. The broker does not know empty ones, which have ended."""
    given = [bags] if isinstance(bags, str | Bag) else bags
    check_iterable("after", given, "a bag, the id of one, or a list of these")
    return tuple([bag.id if isinstance(bag, Bag) else bag for bag in given if not isinstance(bag, Bag) or len(bag)])


def _only_checked(option: str, kind: type, takes: str) -> Callable[[Any], Mapping[str, object]]:
    """Return how an option is read that `TaskOptions` does not have."""

    def read(value: Any) -> Mapping[str, object]:
        check(option, value, kind, takes)
        return {}

    return read


_FIELDS = frozenset([field.name for field in fields(TaskOptions)])
# How options are read that a program gives in another form.
_READERS: Mapping[str, Callable[[Any], Mapping[str, object]]] = {
    **READERS,
    "licences": lambda licences: {"licences": checked_licences(licences)},
    "after": lambda bags: {"after": _ids(bags)},
    "name": _only_checked("name", str, "a text"),
    "explore": _only_checked("explore", bool, "True or False"),
}
