"""Modules that are loaded here and that no PC can import: what they define travels by value, as the script does.

`runpy`, `multiprocessing` and others alike run a file under another name, a program may make a module itself, and some
modules come from files that are no source of Python, such as notebooks. They are known to cloudpickle by their names.
"""

import re
import sys
from pathlib import Path
from types import ModuleType

from deskgrid.client.bundle import PYTHONS_OWN, in_pickles, is_foreign, is_module

# The modules when they were last looked at, by their number and the last one; and what finds the names in a pickle.
_looked_at: tuple[int, str] = (0, "")
_pattern: re.Pattern[bytes] | None = None


def only_here() -> re.Pattern[bytes] | None:
    """Return what finds the name of such a module in a pickle; None if there is none."""
    global _looked_at, _pattern
    now = len(sys.modules), next(reversed(sys.modules))
    if now != _looked_at:
        found = [name for name, module in list(sys.modules.items()) if _is_only_here(name, module)]
        if found:
            import cloudpickle  # here, because a program that only reads results may not need it

            for name in found:
                cloudpickle.register_pickle_by_value(ModuleType(name))  # it notes the name
        _pattern, _looked_at = in_pickles(found), now  # last: other threads rely on it
    return _pattern


def _is_only_here(name: str, module: object) -> bool:
    first, _, _ = name.partition(".")
    if first in PYTHONS_OWN or first == "deskgrid" or not isinstance(module, ModuleType):
        return False
    spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
    if isinstance(file, str):
        is_imported = getattr(spec, "name", "") == name and is_module(file)
        return not is_imported and not is_foreign(Path(file))
    # Python code has run in it; and no package has made it, which would do so again.
    outer, _, _ = name.rpartition(".")
    return "__builtins__" in vars(module) and outer not in sys.modules
