"""An environment that is ready: where a process finds it."""

import os
from collections.abc import Mapping
from typing import NamedTuple

# Variables that would bring the worker's own modules into an environment.
_OTHERS = {"PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__"}


class EnvironmentSite(NamedTuple):
    """``identity``: equal environments have the same, whoever submitted them.

    ``folder``: with everything in it; ``python``: the program; ``programs``: the folder of programs.
    """

    identity: str
    folder: str
    python: str
    programs: str

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a process: the commands that it starts find this environment's programs first."""
        kept = {name: value for name, value in given.items() if name not in _OTHERS}
        path = os.pathsep.join(filter(None, (self.programs, kept.get("PATH", os.defpath))))
        return kept | {"VIRTUAL_ENV": self.folder, "PATH": path}
