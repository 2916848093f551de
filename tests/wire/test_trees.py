"""Trees can be unpacked on any system and never outside their folder; what names trees is read with care."""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid import wire
from deskgrid.wire.limits import FILE_BYTES, PLACE_BYTES, TREES_LIMIT
from deskgrid.wire.source import Wrong, source_of
from deskgrid.wire.trees import count_of_parts, read_digests

DIGEST = bytes(range(32))


def entry(path: str, size: int = 5, parts: bytes = DIGEST) -> wire.TreeFile:
    return wire.TreeFile(path, size, False, parts)


def test_a_tree_is_read_as_it_was_made() -> None:
    large = wire.TreeFile("a b/ü.bin", 2 * wire.PART_BYTES, True, DIGEST + DIGEST)
    tree = wire.Tree((entry("data.csv"), large, entry("empty", 0, b"")), ("out", "a b"))
    assert wire.read_tree(tree.packed()) == tree
    assert tree.size == 5 + 2 * wire.PART_BYTES
    assert wire.read_tree(wire.Tree(()).packed()) == wire.Tree(())


def test_equal_content_has_one_id_and_another_if_it_can_be_run() -> None:
    assert entry("a").id == entry("b").id
    assert entry("a").id != entry("a")._replace(executable=True).id != entry("a", parts=bytes(32)).id


def test_parts_are_counted() -> None:
    sizes = [0, 1, wire.PART_BYTES, wire.PART_BYTES + 1]
    assert [count_of_parts(size) for size in sizes] == [0, 1, 1, 2]
    assert wire.split_digests(DIGEST + bytes(32)) == [DIGEST, bytes(32)]


@pytest.mark.parametrize(
    "table",
    [
        1,
        [],
        [[], [], [], []],
        [["a"], [5], [False], [DIGEST], [], []],
        [["a"], [5], [False], [DIGEST], [[]]],
        [["a"], [5], [0], [DIGEST], []],
        [["a"], [True], [False], [DIGEST], []],
        [[b"a"], [5], [False], [DIGEST], []],
        [["a"], [5, 5], [False], [DIGEST], []],
        [["a"], [5], [False], [DIGEST + DIGEST], []],
        [["a"], [0], [False], [DIGEST], []],
        [["a"], [-1], [False], [b""], []],
        [["a"], [FILE_BYTES + 1], [False], [DIGEST * count_of_parts(FILE_BYTES + 1)], []],
        [["../a"], [5], [False], [DIGEST], []],
        [["a", "a"], [5, 5], [False, False], [DIGEST, DIGEST], []],
    ],
)
def test_what_is_no_tree_is_refused(table: Any) -> None:
    with pytest.raises(wire.TreeRefused):
        wire.read_tree(msgpack.packb(table))


@given(st.binary(max_size=60))
def test_garbage_is_refused_as_a_tree_and_as_a_payload(data: bytes) -> None:
    for read in (wire.read_tree, lambda data: wire.unwrap(wire.MARK + data)):
        try:
            read(data)
        except wire.TreeRefused:
            continue


def test_a_list_that_is_too_long_for_a_part_is_refused() -> None:
    names = [f"{'x' * 200}/{'y' * 200}/{number}" for number in range(wire.TREE_FILES)]
    with pytest.raises(wire.TreeRefused, match="the list of 10,000 files has"):
        wire.Tree(tuple(map(entry, names))).packed()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "not a path below the folder"),
        ("/etc/passwd", "not a path below the folder"),
        ("../up", "not a path below the folder"),
        ("a/./b", "not a path below the folder"),
        ("a/../../b", "not a path below the folder"),
        ("a//b", "not a path below the folder"),
        ("a/", "not a path below the folder"),
        ("C:/a", "Windows cannot have it"),
        ("a\\b", "Windows cannot have it"),
        ("what?", "Windows cannot have it"),
        ("tab\there", "Windows cannot have it"),
        ("nul", "Windows cannot have it"),
        ("a/Com1.txt", "Windows cannot have it"),
        ("aux .c", "Windows cannot have it"),
        ("dot.", "Windows cannot have it"),
        ("space ", "Windows cannot have it"),
        ("\udc80", "not UTF-8"),
        ("x" * 256, "more than 255 bytes"),
        ("/".join(["x" * 200] * 6), f"more than {PLACE_BYTES:,} bytes"),
    ],
)
def test_names_that_no_folder_or_not_every_system_can_have_are_refused(path: str, why: str) -> None:
    assert why in wire.wrong_with_place(path)
    with pytest.raises(wire.TreeRefused, match="cannot be the name of a file in a task's folder"):
        wire.check_places([path])


@pytest.mark.parametrize("path", ["data.csv", "a b/c d.txt", "ü/日本.npz", ".hidden", "console", "com10", "x" * 255])
def test_other_names_are_fine(path: str) -> None:
    assert wire.wrong_with_place(path) == ""
    wire.check_places([path], [f"in/{path}"])


@pytest.mark.parametrize(
    ("files", "folders", "why"),
    [
        (["a", "a"], [], "two of the files are named 'a'"),
        (["a.txt", "A.txt"], [], "'a.txt' and 'A.txt' are the same name where case does not count"),
        (["B/x", "b/y"], [], "'B' and 'b' are the same name"),
        (["a", "a/b"], [], "are named 'a'"),
        (["a/b", "a"], [], "are named 'a'"),
        (["a"], ["a"], "are named 'a'"),
        (["\u00e9"], ["e\u0301"], "the same name where case does not count"),
        (["STRASSE"], ["stra\u00dfe"], "the same name where case does not count"),
    ],
)
def test_names_that_collide_on_some_system_are_refused(files: list[str], folders: list[str], why: str) -> None:
    with pytest.raises(wire.TreeRefused, match=why):
        wire.check_places(files, folders)


def test_the_number_of_files_is_bounded() -> None:
    with pytest.raises(wire.TreeRefused, match="10,001 files; at most 10,000"):
        wire.check_places([str(number) for number in range(wire.TREE_FILES + 1)])


def test_the_number_of_folders_is_bounded_even_if_few_files_name_very_many() -> None:
    deep = [f"{number}/" + "a/" * 500 + "x" for number in range(100)]
    for files, folders in ((deep, []), ([], deep)):
        with pytest.raises(wire.TreeRefused, match="more than 20,000 files and folders"):
            wire.check_places(files, folders)
    wire.check_places([f"{number}/x" for number in range(wire.TREE_FILES)])


def test_folders_around_a_folder_collide_too() -> None:
    with pytest.raises(wire.TreeRefused, match="'A' and 'a' are the same name"):
        wire.check_places(["A/b/c"], ["a/x/y"])


# --- payloads that need trees ----------------------------------------------------------------------------------------

LARGE = bytes(wire.LARGE_BYTES)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("data", [b"", b"\x80\x05.", LARGE, LARGE[:-20]], ids=len)
def test_a_payload_is_unwrapped_as_it_was_wrapped(data: bytes, whole: bool) -> None:
    payload = wire.payload_of(data)
    wrapped = wire.wrap([DIGEST, bytes(32)], payload, whole=whole)
    assert isinstance(wrapped, bytes) == (len(wrapped) < wire.LARGE_BYTES)
    found = wire.unwrap(wrapped)
    assert (found.trees, found.whole, bytes(found.payload)) == ((DIGEST, bytes(32)), whole, data)
    assert isinstance(found.payload, bytes) == (len(data) < wire.LARGE_BYTES)


def test_a_payload_that_needs_nothing_stays_as_it_is() -> None:
    assert wire.wrap([], b"data") == b"data"
    assert wire.unwrap(b"data") == wire.Wrapped((), False, b"data")
    assert wire.unwrap(b"") == wire.Wrapped((), False, b"")


@pytest.mark.parametrize("head", [b"\x00\x00\x00", b"\x02\x00\x01" + DIGEST, b"\x00\x00\x02" + DIGEST, b"\x00\xff\xff"])
def test_a_payload_whose_list_of_trees_makes_no_sense_is_refused(head: bytes) -> None:
    with pytest.raises(wire.TreeRefused):
        wire.unwrap(wire.MARK + head)


def test_the_trees_of_one_payload_are_bounded() -> None:
    with pytest.raises(wire.TreeRefused, match="1,001 files and shared objects in one value"):
        wire.wrap([DIGEST] * (TREES_LIMIT + 1), b"")


def test_a_list_of_trees_may_be_cut_by_frames() -> None:
    wrapped = bytes(wire.wrap([DIGEST], wire.payload_of(LARGE)))
    pieces = [memoryview(wrapped)[:1], memoryview(wrapped)[1:20], memoryview(wrapped)[20:]]
    found = wire.unwrap(wire.Chunks(pieces))
    assert found.trees == (DIGEST,)
    assert bytes(found.payload) == LARGE
    assert wire.trees_in(wire.Chunks(pieces)) == DIGEST


def test_the_broker_finds_the_trees_that_a_payload_names() -> None:
    trees = [bytes([number]) * 32 for number in range(3)]
    assert wire.trees_in(wire.wrap(trees, b"data")) == b"".join(trees)
    assert wire.trees_in(b"data") == b""
    assert wire.trees_in(b"") == b""
    assert wire.trees_in(wire.MARK) == b""


@pytest.mark.parametrize("value", ["text", bytes(31), bytes(32 * (TREES_LIMIT + 1))])
def test_a_template_names_its_trees_by_digests(value: object) -> None:
    with pytest.raises(Wrong):
        read_digests(source_of(msgpack.packb(value)))
    assert read_digests(source_of(msgpack.packb(DIGEST))) == DIGEST
