"""An office for a test, which a test may restart as often as it needs."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.broker.office import Office, OpenOffice


@pytest.fixture
def open_office(tmp_path: Path) -> Iterator[OpenOffice]:
    """Start a broker on the test's home; the one before it is killed first, and the last one at the end."""
    with ExitStack() as running:

        def start(**options: Any) -> Office:
            running.close()
            office = Office(tmp_path, **options)
            running.callback(office.kill)
            return office

        yield start


@pytest.fixture
def office(open_office: OpenOffice) -> Iterator[Office]:
    """A broker without sockets that places by PGS."""
    opened = open_office()
    yield opened
    opened.close()
