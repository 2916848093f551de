"""Scripts of a user: they make templates and payloads as a client does, and read what their tasks return."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.architecture.reading import ROOT
from tests.executor.rig import Rig, value

SCRIPT = """
import abc, collections, dataclasses, enum, functools, multiprocessing, pickle, sys
from concurrent.futures import ProcessPoolExecutor

FACTOR = 3

class Status(enum.Enum):
    OK = 1

@dataclasses.dataclass
class Row:
    a: int
    def more(self):
        return self.a * FACTOR

Point = collections.namedtuple("Point", "x y")

class OddError(Exception):
    pass

def helper(x):
    return x * FACTOR

def square(x):
    return helper(x) * x

def row(x):
    return Row(x)
"""
SEND = """
from deskgrid.client.bag_files import KnownFiles, Noted
from deskgrid.client.script_classes import unnamed_classes
from deskgrid.client.script_lines import lines_of
from deskgrid.client.template import pickle_function, python_template
noted = Noted(KnownFiles())
pickled = noted.pickled(lambda: pickle_function(f))
payloads = [bytes(noted.pack_call((item,), {}, "it")) for item in ITEMS]
classes = noted.pickled(noted.classes.pickled)
classes += unnamed_classes(noted.functions.values(), classes)
lines = lines_of(noted.functions.values())
sys.stdout.buffer.write(pickle.dumps((python_template(pickled, "f", classes=classes, lines=lines).data, payloads)))
"""


class Scripts:
    """Runs scripts in a folder."""

    def __init__(self, folder: Path, rig: Rig) -> None:
        self.rig = rig
        self.path = folder / "script.py"
        # A program that runs the script, which is its argument; empty: Python itself does.
        self.launcher = ""

    def sent(self, more: str, items: str = "[1]") -> tuple[bytes, list[bytes]]:
        """The template and the payloads of a script that defines ``f``."""
        template, payloads = pickle.loads(self.printed(f"{SCRIPT}\n{more}\nITEMS = {items}\n{SEND}"))
        return template, payloads

    def printed(self, text: str, given: bytes = b"") -> bytes:
        """What a script prints. ``given``: its stdin."""
        self.path.write_text(text, encoding="utf-8")
        command = [sys.executable, *(["-c", self.launcher] if self.launcher else []), str(self.path)]
        variables = os.environ | {"PYTHONPATH": str(ROOT)}
        ran = subprocess.run(command, env=variables, input=given, capture_output=True, timeout=30, check=False)
        assert ran.returncode == 0, ran.stderr.decode()
        return ran.stdout

    def ended(self, more: str, items: str = "[1]") -> list[Any]:
        """How its tasks end."""
        template, payloads = self.sent(more, items)
        return self.rig.run(self.rig.know(template), *payloads)

    def values(self, more: str, items: str = "[1]") -> list[Any]:
        """What its tasks return."""
        return [value(one) for one in self.ended(more, items)]
