"""Tests of `tests.architecture.reading`, on which the other tests here depend."""

import ast

import pytest

from tests.architecture.reading import imports, impurities, old_names, our_file


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import json, zmq.utils", ["json", "zmq.utils"]),
        ("from deskgrid import client, wire", ["deskgrid.client", "deskgrid.wire"]),
        ("from deskgrid.wire import Hello as H", ["deskgrid.wire.Hello"]),
        ("from . import queries", ["deskgrid.broker.queries"]),
        ("from .auth.keys import KeyRing", ["deskgrid.broker.auth.keys.KeyRing"]),
        ("from ..worker import agent", ["deskgrid.worker.agent"]),
        ("def late():\n    import zmq", ["zmq"]),
        ("if TYPE_CHECKING:\n    import zmq", ["zmq"]),
    ],
)
def test_an_import_is_found_in_every_form(source: str, names: list[str]) -> None:
    assert [name for _, name in imports(ast.parse(source), "broker/server.py")] == names


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("deskgrid", "deskgrid/__init__.py"),
        ("deskgrid.Grid", "deskgrid/__init__.py"),
        ("deskgrid.broker", "broker/__init__.py"),
        ("deskgrid.broker.auth.keys.KeyRing", "broker/auth/keys.py"),
        ("deskgrid.wire", "deskgrid/wire/__init__.py"),
        ("deskgrid.wire.Hello.of", "deskgrid/wire/__init__.py"),
        ("deskgrid.scheduler.policies", "scheduler/policies/__init__.py"),
        ("zmq.utils", None),
        ("broker", None),
    ],
)
def test_an_imported_name_leads_to_its_file(name: str, file: str | None) -> None:
    assert our_file(name) == file


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import broker", True),
        ("def late():\n    from worker import agent", True),
        ("from scheduler.model import State", True),
        ("patch('broker.auth.keys.KeyRing')", True),
        ("run(['-m', 'sleepbench.demo'])", True),
        ("where = 'scheduler.core:Scheduler.handle'", True),
        ("from deskgrid.broker import queries", False),
        ("patch('deskgrid.broker.auth.keys.KeyRing')", False),
        ("name = 'worker.join'", False),
        ("from . import queries", False),
    ],
)
def test_an_old_name_is_found_in_every_form(source: str, found: bool) -> None:
    assert bool(list(old_names(ast.parse(source), "broker/server.py"))) == found


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import time as t",
        "from time import monotonic",
        "def f():\n    from time import sleep",
        "from datetime import datetime\ndatetime.now(UTC)",
        "import datetime as d\nd.datetime.now()",
        "import datetime\nf(clock=datetime.datetime.now)",
        "from datetime import date\ndate.today()",
        "import random\nrandom.random()",
        "import random\nrandom.shuffle(x)",
        "from random import choice as pick\npick(x)",
        "import random\nrandom.Random()",
        "from random import Random\nRandom()",
        "import random\nrandom.SystemRandom()",
        "import os\nos.urandom(8)",
        "import socket",
        "import concurrent.futures",
        "from threading import Thread",
    ],
)
def test_a_clock_chance_socket_or_thread_is_not_pure(source: str) -> None:
    assert list(impurities(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "import random\ndef f(r: random.Random) -> None: r.random()",
        "import random\nrandom.Random(seed).shuffle(x)",
        "from random import Random\nRandom(1)",
        "from datetime import datetime, time, timedelta\ndatetime(2026, 1, 1).replace(hour=time(3).hour)",
        "from datetime import datetime\ndatetime.fromtimestamp(now, zone)",
        "def f(now, time): return time.monotonic(now)",
    ],
)
def test_seeded_chance_and_given_times_are_pure(source: str) -> None:
    assert not list(impurities(ast.parse(source)))
