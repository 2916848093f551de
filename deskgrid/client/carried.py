"""What a bag brings besides its arguments: the program's own modules, and an environment.

It is known when the first arguments are pickled, because these refer to modules, too. A later argument that refers to
another module of the program is refused with advice: the bag has begun without that module.
"""

import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from deskgrid.client.bag_files import BagFiles
from deskgrid.client.bundle import Reached, named_in, others_loaded, reached_from, reached_from_file
from deskgrid.client.script_classes import ScriptClasses, unnamed_classes
from deskgrid.client.script_lines import lines_of
from deskgrid.client.sources import stored_source
from deskgrid.client.template import PYTHON, Template, python_template
from deskgrid.errors import BagRejected
from deskgrid.rebuilt import MAIN
from deskgrid.wire import FILES_LIMIT, Environment, Payload, System, this_system

if TYPE_CHECKING:
    from deskgrid.client.environments.asked import Env
    from deskgrid.client.environments.made import Made

log = logging.getLogger(__name__)

# More source than this travels as stored files: a template is kept in memory on the way, and sent as a whole. Bytes.
BUNDLE_BYTES = 16 * 2**20
# Of the first arguments, so many are searched for modules. Others may only refer to the same ones.
ROWS_SEARCHED = 1_000


class CarriedEnvironments:
    """The environments that a program has made for a grid. ``ask``: asks the broker a question."""

    def __init__(self, ask: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        self._ask = ask
        self._made: dict[tuple[object, ...], Made] = {}

    def bring(
        self, env: "Env | None", python: str | None, reached: Reached, script: str, files: BagFiles
    ) -> Environment | None:
        """Return the environment for a template; its wheels go to ``files``. Raises `BagRejected`.

        ``python``: its minor version; None: that of each PC.
        """
        if env is None:
            return None
        from deskgrid.client.environments.made import made

        used = reached.libraries if "mine" in env else frozenset()
        systems = self._systems(python)
        key = (env, used, script if "script" in env else "", *systems)
        known = self._made.get(key)
        # A file, or what is in the store, may have changed.
        if known is None or any(isinstance(part, Path) for part in env) or not known.is_there:
            if "mine" in env:
                _warn_of(reached.missing, env)
            known = self._made[key] = made(env, used, script, systems)
        files.bring(known.trees)
        return known.environment

    def _systems(self, python: str | None) -> list[System]:
        """Return the sorts of PCs that the broker knows with this Python, or, if None, with their own.

        That of this machine if it knows none.
        """
        rows = [(System(*row[:4]), row[4]) for row in self._ask("systems", {})["systems"]]
        found = [system for system, own in rows if (own if python is None else system.python == python)]
        return found or [this_system()]


def _warn_of(missing: Iterable[str], env: "Env") -> None:
    """Name the modules that a program imports and that "mine" cannot bring. It may do without them."""
    from deskgrid.client.environments.asked import name_in, normal

    named = {name_in(part) for part in env if isinstance(part, str)}
    for name in sorted(missing):
        if normal(name) not in named:
            log.warning(
                '"mine" leaves out %s: the program imports it, and it is not installed here; if a task needs it, '
                "name its package, too",
                name,
            )


class Carried:
    """What the bag of one function brings. ``pickled``: the function; ``inputs``: the trees that it needs."""

    def __init__(
        self,
        pickled: bytes,
        name: str,
        *,
        modules: Sequence[str],
        inputs: bytes,
        env: "Env | None",
        environments: CarriedEnvironments,
        files: BagFiles,
    ) -> None:
        self._pickled = pickled
        self._name = name
        self._modules = modules
        self._inputs = inputs
        self._env = env
        self._environments = environments
        self._files = files
        self._others: re.Pattern[bytes] | None = None
        self.named: set[str] = set()
        # Of the script, those that the template brings.
        self.classes = ScriptClasses()

    def template(
        self,
        payloads: Iterable[Payload],
        functions: Collection[FunctionType],
        named: Iterable[str] = (),
        classes: bytes = b"",
        inputs: bytes = b"",
    ) -> Template:
        """Make the template, once the first arguments are known. Raises `BagRejected`.

        ``functions``: those that travel by value; ``named``: modules that arguments refer to; ``classes``: those of the
        script that arguments name, pickled, and the trees that these need, ``inputs``.
        """
        self.named = named_in(self._pickled).union(named, named_in(classes, whole=True), *map(named_in, payloads))
        reached = reached_from(self.named, functions, self._modules)
        self._others = others_loaded(reached)
        environment = self._environments.bring(self._env, PYTHON, reached, _program(), self._files)
        bundle, source = reached.files, b""
        if len(bundle) > FILES_LIMIT or sum(map(len, bundle.values())) > BUNDLE_BYTES:
            stored = stored_source(bundle)
            self._files.need([stored])
            bundle, source = {}, stored.digest
        return python_template(
            self._pickled,
            self._name,
            bundle,
            self._inputs + inputs,
            environment,
            source=source,
            classes=classes + unnamed_classes(functions, classes),
            lines=lines_of(functions),
        )

    def lacks(self, payload: Payload, classes: ScriptClasses | None = None) -> str:
        """Return the name of a module that an argument refers to and that does not travel; "" if there is none.

        ``classes``: those of the script that it names.
        """
        if classes is not None and not self.classes.has(classes):
            return MAIN
        if self._others is None:
            return ""
        data = payload if isinstance(payload, bytes) else bytes(payload.frames()[0])
        found = self._others.search(data)
        return found[0][2:].decode() if found else ""

    def check(self, payload: Payload, what: str) -> None:
        """Refuse an argument that refers to a module that does not travel. Raises `BagRejected`."""
        if name := self.lacks(payload):
            raise BagRejected(
                f"{what} refers to your module {name!r}, and neither the function nor the first items do: name it in "
                f"modules=[{name!r}]"
            )


def modules_of_types(items: Iterable[object]) -> set[str]:
    """Return the loaded modules that define the types of items."""
    found = {kind.__module__ for kind in set(map(type, items))}
    return {name for name in found if name in sys.modules and name not in ("builtins", "__main__")}


def _program() -> str:
    """Return the file of the program; "" if it has none."""
    return str(getattr(sys.modules["__main__"], "__file__", None) or "")


def reached_by_command(argv: Sequence[str]) -> tuple[str, Reached]:
    """Return the first Python file that a command names, and what it reaches; "" and nothing if it names none."""
    script = next((word for word in argv if word.endswith(".py") and Path(word).is_file()), "")
    nothing = Reached({}, frozenset(), frozenset())
    return script, reached_from_file(Path(script).resolve()) if script else nothing
