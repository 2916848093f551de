"""How pictures are written: nothing global changes, and the same figures give the same bytes."""

from pathlib import Path

import matplotlib as mpl
import pytest

from deskgrid.sleepbench.pictures.bars import figure2
from deskgrid.sleepbench.pictures.files import KINDS
from deskgrid.sleepbench.pictures.style import LOOKS, SPARE, drawing, looks, save
from tests.architecture.reading import files, imports, tree
from tests.sleepbench.pictures.rows import ROWS

BEGINNINGS = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_rows_give_the_same_bytes_without_a_date(kind: str, tmp_path: Path) -> None:
    first, second = (tmp_path / f"{name}{kind}" for name in "ab")
    for file in (first, second):
        save(figure2(ROWS), file)
    assert first.read_bytes().startswith(BEGINNINGS[kind])
    assert first.read_bytes() == second.read_bytes()
    assert b"Date" not in first.read_bytes()
    assert b"atplotlib v" not in first.read_bytes()


def test_a_name_in_capitals_is_the_same_kind(tmp_path: Path) -> None:
    save(figure2(ROWS), tmp_path / "A.PNG")
    assert (tmp_path / "A.PNG").read_bytes().startswith(b"\x89PNG")


def test_drawing_and_saving_leave_the_settings_as_they_were(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    save(figure2(ROWS), tmp_path / "a.svg")
    assert dict(mpl.rcParams) == before


def test_what_a_user_has_set_does_not_show(tmp_path: Path) -> None:
    save(figure2(ROWS), tmp_path / "ours.svg")
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "black", "svg.fonttype": "none"}):
        save(figure2(ROWS), tmp_path / "theirs.svg")
    assert (tmp_path / "ours.svg").read_bytes() == (tmp_path / "theirs.svg").read_bytes()


def test_settings_hold_only_inside() -> None:
    with drawing():
        assert mpl.rcParams["svg.hashsalt"] == "deskgrid"
    assert mpl.rcParams["svg.hashsalt"] != "deskgrid"


def test_no_picture_uses_pyplot() -> None:
    names = [found.name for file in files("sleepbench/") for found in imports(tree(file), file)]
    assert any(name.startswith("matplotlib.figure") for name in names)
    assert not any("pyplot" in name or "pylab" in name for name in names)


def test_a_policy_keeps_its_look_whatever_stands_beside_it() -> None:
    assert looks(["packing", "other", "pgs"]) == {
        "other": SPARE[0],
        "packing": LOOKS["packing"],
        "pgs": LOOKS["pgs"],
    }


def test_no_two_looks_are_alike() -> None:
    known = looks([*LOOKS, *(f"policy {number}" for number in range(len(SPARE)))])
    assert len({colour for colour, _ in known.values()}) == len({marker for _, marker in known.values()}) == len(known)


def test_more_policies_than_looks_start_again() -> None:
    assert looks([f"policy {number}" for number in range(len(SPARE) + 1)])[f"policy {len(SPARE)}"] == SPARE[0]
