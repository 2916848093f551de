"""The program that a worker starts for tasks: the parent of their processes or, on Windows, one of them.

Rule: it stands alone, with the other files of the process of a task. They are loaded by their folder, which is not on
the import path: nothing that a task imports is found there.
"""

import gc
import importlib
import os
import sys
import types
from typing import Any

PACKAGE = "_deskgrid_run"
_OF_A_PARENT = 3


def _load(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}")


def main() -> None:
    """``start.py NICE LIFELINE SOCKET``: how far this gives way; the numbers of descriptors.

    LIFELINE: ends this process until it is up; empty: it has none.

    Or ``start.py DESCRIPTORS ARGUMENTS``, to be what `child.main` makes of them: DESCRIPTORS are joined by commas.
    """
    package: Any = types.ModuleType(PACKAGE)
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules[PACKAGE] = package
    # In tasks, `__main__` is the user's script: see script.py.
    sys.modules[f"{PACKAGE}.start"] = sys.modules["__main__"]
    if libraries := sys._xoptions.get("deskgrid_libraries"):  # of a Python that may not have what the child needs
        sys.path.append(str(libraries))
    arguments, child = sys.argv[1:], _load("child")
    sys.argv[1:] = []
    child.prepare()
    if sys.platform == "win32" or len(arguments) > _OF_A_PARENT:
        child.main(arguments[1:], [int(each) for each in arguments[0].split(",") if each])
    else:
        scope, parent = _load("scope"), _load("parent")
        scope.give_way(int(arguments[0]))
        if arguments[1]:
            scope.adopt()
        gc.collect()
        gc.freeze()  # what copies share stays shared
        worker = int(arguments[2])
        if arguments[1]:
            os.close(int(arguments[1]))
        while (copy := parent.Parent(worker, scope.children).serve()) is not None and copy.kind == "parent":
            (worker,) = copy.descriptors
        if copy is not None:
            child.main(copy.arguments, copy.descriptors)


if __name__ == "__main__":
    main()
