"""Which faults of the table a change brings up."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mutations.choosing import TABLE, changed_files, chosen, last_landing
from tests.mutations.mutating import Mutation

SLOT, BAG = "scheduler/state/slots.py", "scheduler/handlers/bags.py"
MUTATIONS = (
    Mutation("of slots", "deskgrid.scheduler.state.slots:Slots.x", "a", "b", "probes"),
    Mutation("of bags", "deskgrid.scheduler.handlers.bags:Bags.x", "a", "b", "crowd"),
    Mutation("of bags in a storm", "deskgrid.scheduler.handlers.bags:Bags.y", "a", "b"),
)
ROWS = """
from tests.mutations.mutating import Mutation
MUTATIONS = (
    Mutation("of slots", "deskgrid.scheduler.state.slots:Slots.x", "a", "b", "probes"),
    Mutation("of bags", "deskgrid.scheduler.handlers.bags:Bags.x", "a", "another", "crowd"),
    Mutation("of bags in a storm", "deskgrid.scheduler.handlers.bags:Bags.y", "a", "b"),
)
"""


pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Checkout:
    """A repository with two files and a table, in which .ci/run has passed."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.email", "somebody@example.com")
        self.git("config", "user.name", "somebody")
        for name in (SLOT, BAG, "tests/grid/chaos.py", "tests/mutations/crowd.py"):
            self.write(name, "before")
        self.write(TABLE, ROWS)
        self.commit()
        self.git("update-ref", "refs/ci/passed", "HEAD")

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.place, check=True, capture_output=True)

    def write(self, name: str, text: str) -> None:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=a change")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    for name in ("PROOFS", *[name for name in os.environ if name.startswith("GIT_")]):
        monkeypatch.delenv(name, raising=False)
    return Checkout(tmp_path)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        (SLOT, [0]),
        (BAG, [1, 2]),
        ("tests/grid/chaos.py", [2]),
        ("tests/mutations/crowd.py", [1]),
        ("tests/mutations/mutating.py", [0, 1, 2]),
        ("README.md", []),
    ],
)
@pytest.mark.parametrize("committed", [True, False])
def test_faults_are_tried_if_their_module_or_what_hunts_them_has_changed(
    checkout: Checkout, name: str, numbers: list[int], committed: bool
) -> None:
    checkout.write(name, "changed")
    if committed:
        checkout.commit()
    assert chosen(MUTATIONS, checkout.place) == numbers


def test_a_row_that_is_new_or_was_changed_is_tried(checkout: Checkout) -> None:
    checkout.write(TABLE, ROWS + "\n")
    checkout.commit()
    assert chosen(MUTATIONS, checkout.place) == [1]


def test_all_are_tried_if_the_table_of_then_cannot_be_read_today(checkout: Checkout) -> None:
    checkout.write(TABLE, "MUTATIONS = (Fault('another form'),)")
    checkout.commit()
    checkout.git("update-ref", "refs/ci/passed", "HEAD")
    checkout.write(TABLE, ROWS)
    checkout.commit()
    assert chosen(MUTATIONS, checkout.place) == [0, 1, 2]


def test_all_are_tried_on_request_and_some_where_no_landing_is_known(
    checkout: Checkout, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen(MUTATIONS, checkout.place) == [], "nothing has happened since then"
    checkout.write("README.md", "changed")
    checkout.commit()
    assert chosen(MUTATIONS, checkout.place) == []
    with monkeypatch.context() as patch:
        patch.setenv("PROOFS", "all")
        assert chosen(MUTATIONS, checkout.place) == [0, 1, 2]
    many, some = MUTATIONS * 3, [0, 4, 8]
    fresh = tmp_path_factory.mktemp("fresh")
    for how in (("--depth=1",), ()):
        clone = fresh / f"clone{len(how)}"
        checkout.git("clone", "--quiet", *how, checkout.place.as_uri(), str(clone))
        assert chosen(many, clone) == some
    assert chosen(many, tmp_path_factory.mktemp("no-repository")) == some
    checkout.git("update-ref", "-d", "refs/ci/passed")
    assert chosen(many, checkout.place) == some, "no remote"


def test_a_branch_has_changed_what_differs_from_where_it_left_the_one_that_it_follows(
    checkout: Checkout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clone = Checkout.__new__(Checkout)
    clone.place = tmp_path_factory.mktemp("clones") / "clone"
    checkout.git("clone", "--quiet", str(checkout.place), str(clone.place))
    clone.git("config", "user.email", "somebody@example.com")
    clone.git("config", "user.name", "somebody")
    clone.git("switch", "--quiet", "--create", "mine")  # follows no branch; where it came from is known
    for name in (SLOT, "one", "another"):
        clone.write(name, "mine")
        clone.commit()
    clone.write("not-committed", "mine")
    assert changed_files(clone.place, last_landing(clone.place)) == {SLOT, "one", "another", "not-committed"}
