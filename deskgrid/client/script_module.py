"""The module `__main__` of a script that `python -m cProfile`, or the like, runs.

Such a program runs the script in globals of its own, and remains `__main__` itself. So nobody finds the functions and
classes of the script by their names: no pickle, no process pool, and none of ours. So this puts a module for
the script in its place.
"""

import sys
from types import ModuleType
from typing import Any

MAIN = "__main__"


class _Script(ModuleType):
    """A module with the globals of a script that runs."""

    def __init__(self, space: dict[str, Any], runner: ModuleType) -> None:
        super().__init__(MAIN)
        super().__setattr__("_space", space)
        super().__setattr__("_runner", runner)  # it goes on when the script has ended

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        space: dict[str, Any] = self._space
        return space

    def __getattr__(self, name: str) -> Any:
        try:
            return self._space[name]
        except KeyError:
            raise AttributeError(f"module '__main__' has no attribute {name!r}") from None

    def __setattr__(self, name: str, value: object) -> None:
        self._space[name] = value


def find_script() -> None:
    """Make the script that runs on this thread the module `__main__`, if another program runs it with ``python -m``."""
    main = sys.modules[MAIN]
    frame = sys._getframe() if getattr(main, "__spec__", None) is not None else None
    while frame is not None:
        space = frame.f_globals
        if frame.f_code.co_name == "<module>" and space.get("__name__") == MAIN and space is not vars(main):
            sys.modules[MAIN] = _Script(space, main)
            return
        frame = frame.f_back
