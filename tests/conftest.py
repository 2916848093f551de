"""Settings for all tests: Hypothesis tries the same examples on every machine, every time.

A change of the source does not change them either: the seed is in pyproject.toml (``derandomize`` would make one of the
source of each test), nothing is remembered, and numbers and texts in the source are not drawn. Its time limits are off,
because they would fail tests only on busy machines; pytest-timeout ends tests that hang. To search beyond the fixed
examples, use ``pytest --hypothesis-profile=explore --hypothesis-seed=$RANDOM``. The seed, and a line that is printed,
reproduce a failure.

In a checkout our folders could also be imported by their own names. Tests refuse that, as an installation does.
"""

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.architecture.reading import ROOMS
from tests.counting import COUNTS

if TYPE_CHECKING:
    from deskgrid import Grid
    from tests.live import LiveGrid


class OneName(MetaPathFinder):
    """Refuses what is called as a folder of ours, and not below deskgrid."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        """Find nothing. Raises ImportError."""
        if fullname in ROOMS:
            raise ImportError(f"{fullname} is imported as deskgrid.{fullname}")


sys.meta_path.insert(0, OneName())

# The folders whose tests reach every branch of scheduler/, deskgrid/wire/ and the papers' policies. Generated tests are
# not among them: what they reach may change with every line of the source.
FOLDERS = ("scheduler", "wire", "broker", "client", "cli", "screen", "worker", "papers/policies")
COVERING = tuple(f"tests/{folder}/" for folder in FOLDERS)

# Tests in which nobody's program runs: of what only computes, of the broker, of plans and screens. The Python that runs
# them makes no difference that tests of a whole grid do not find.
PLACES = ("scheduler", "papers", "sleepbench", "architecture", "mutations", "grid", "broker", "uptime", "screen")
PURE = tuple(f"tests/{place}/" for place in (*PLACES, "hostile", "fuzz", "soak", "benchmarks", "docs"))

settings.register_profile(
    "fixed",
    derandomize=False,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", settings.get_profile("fixed"), max_examples=2000)
settings.load_profile("fixed")
# Hypothesis draws constants of all modules that are loaded, and has no setting for that.
NO_CONSTANTS = Constants()
providers._get_local_constants = lambda: NO_CONSTANTS


@pytest.fixture
def grid(live: "LiveGrid") -> Iterator["Grid"]:
    """A program's Grid on the broker that a test file starts with its fixture ``live``."""
    from deskgrid import Grid

    with Grid(live.broker.ready.client_line) as opened:
        yield opened


@pytest.fixture(autouse=True, scope="session")
def orphans() -> Iterator[None]:
    """Tests call the command of a worker in this process, which others share: their guards are no orphans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deskgrid.worker.run.nursery.adopt_orphans", lambda: None)
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Let a process of pytest-xdist count lines once.

    pytest-cov counts there as in the main process, too: nobody reads that, and ``no_cover`` does not pause it.
    """
    plugin = config.pluginmanager.getplugin("_cov")
    if hasattr(config, "workerinput") and plugin is not None and plugin.cov_controller is not None:
        plugin.cov_controller.pause()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests in which nobody's program runs."""
    if item.nodeid.startswith(PURE):
        item.add_marker("pure")


@pytest.hookimpl(trylast=True)  # when Hypothesis has marked its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count lines where that is needed: it makes whatever runs the scheduler take three times as long."""
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if marks & {"slow", "alone", "hypothesis"} or not item.nodeid.startswith(COVERING):
            item.add_marker("no_cover")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a process that ran some of the tests has counted (pytest-xdist)."""
    COUNTS.extend(getattr(node, "workeroutput", {}).get("counts", ()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Such a process says it when it ends."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["counts"] = COUNTS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was tried."""
    if COUNTS:
        terminalreporter.section("proofs")
    for line in COUNTS:
        terminalreporter.write_line(line)
