"""Where processes run, if not on the Python of the worker: in an environment, or on another Python of the PC."""

import os
from collections.abc import Mapping
from typing import NamedTuple

# Variables that would bring the worker's own modules into an environment.
_OTHERS = {"PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__"}

# Names the folder of libraries to a program of tasks: see `deskgrid.worker.run.start`.
LIBRARIES_OPTION = "deskgrid_libraries"


class EnvironmentSite(NamedTuple):
    """``identity``: equal environments have the same, whoever submitted them; empty: it is only another Python.

    ``python``: the program. Of an environment: ``folder``: with everything in it; ``programs``: the folder of programs.
    Of another Python: ``libraries``: the folder of what it may lack.
    """

    identity: str
    python: str
    folder: str = ""
    programs: str = ""
    libraries: str = ""

    @property
    def command(self) -> list[str]:
        """How its Python starts. In an environment, nothing of the worker's is on the import path."""
        return [self.python, "-u", *(["-I"] if self.identity else ["-P", "-X", f"{LIBRARIES_OPTION}={self.libraries}"])]

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a process: the commands that it starts find this environment's programs first."""
        kept = {name: value for name, value in given.items() if name not in _OTHERS}
        if not self.identity:
            return kept
        path = os.pathsep.join(filter(None, (self.programs, kept.get("PATH", os.defpath))))
        return kept | {"VIRTUAL_ENV": self.folder, "PATH": path}
