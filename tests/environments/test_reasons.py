"""What pip says, in one line; what its versions say in different words is here, whichever of them is installed."""

import pytest

from deskgrid.client.environments.asked import AskedEnvironment
from deskgrid.client.environments.reasons import reason
from tests.environments.test_made import WINDOWS

_TRACEBACK = "ERROR: Exception:\nTraceback (most recent call last):\n    raise error\n"


@pytest.mark.parametrize(
    ("line", "said", "why"),
    [
        (
            "alpha @ nowhere",
            f"{_TRACEBACK}MissingSchema: Invalid URL 'nowhere': No scheme supplied.\n",
            "'alpha @ nowhere' is not a requirement: give a name such as numpy, also with versions, as in numpy==2.4.6",
        ),
        (
            "alpha; python",
            f"{_TRACEBACK}markers.InvalidMarker: Expected a marker variable or quoted string\n    python\n    ^\n",
            "'python' after the semicolon is not a condition, such as sys_platform == 'win32'",
        ),
        (
            "alpha; python",  # pip 26
            "ERROR: Invalid requirement: 'alpha': Expected a marker variable or quoted string\n    python\n    ^\n",
            "'python' after the semicolon is not a condition, such as sys_platform == 'win32'",
        ),
        (
            "alpha; python",
            f"{_TRACEBACK}markers.InvalidMarker: Invalid marker: 'python', parse error at 'python'\n",
            "'python' after the semicolon is not a condition, such as sys_platform == 'win32'",
        ),
        ("alpha", f"{_TRACEBACK}MemoryError: no room\n", "MemoryError: no room"),
    ],
)
def test_exceptions_of_pip_are_said_in_one_line(line: str, said: str, why: str) -> None:
    asked = AskedEnvironment(line, lines=(line,))
    assert reason(said, asked, WINDOWS, lambda name: "") == f"the environment {line!r} for {WINDOWS}: {why}"
