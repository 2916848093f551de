"""The demo's long task: what it counts, and that it goes on from its checkpoint."""

import tarfile
from pathlib import Path

import pytest

from deskgrid import File, checkpoint
from deskgrid.sleepbench.census import Census, archive_for, names_in, take_census


def archive(folder: Path, files: dict[str, str]) -> File:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    place = folder / "library.tar"
    archive_for(folder, list(files), 1e9, place)
    return File(place)


def test_names_are_counted_in_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    library = archive(tmp_path, {"a.py": "x = y\n", "b.py": "y = 'z'  # w\n"})
    assert Path(take_census(library)).read_text() == "y 2\nx 1\n"


def test_what_is_no_python_counts_up_to_the_error() -> None:
    assert names_in(b"a = b\nc = (") == ["a", "b", "c"]
    assert names_in(b"\xff") == []


def test_a_later_piece_goes_on_where_the_one_before_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    library = archive(tmp_path, {"a.py": "x\n", "b.py": "y\n"})
    half = Census(files=1, size=2)
    half.names["x"] = 5
    saved = []
    monkeypatch.setattr(checkpoint, "load", lambda default: half)
    monkeypatch.setattr(checkpoint, "save", lambda state, progress: saved.append((state.files, progress)))
    assert Path(take_census(library)).read_text() == "x 5\ny 1\n"
    assert saved == [(2, 1.0)]


def test_links_are_archived_as_the_files_that_they_lead_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "lib"
    root.mkdir()
    (tmp_path / "outside.py").write_text("x = y\n", encoding="utf-8")
    (root / "a.py").symlink_to(tmp_path / "outside.py")  # a link to a file that is not in the archive
    (root / "b.py").hardlink_to(tmp_path / "outside.py")
    (root / "c.py").hardlink_to(root / "b.py")
    archive_for(root, ["a.py", "b.py", "c.py"], 1e9, tmp_path / "library.tar")
    with tarfile.open(tmp_path / "library.tar") as tar:
        assert [(member.isreg(), member.size) for member in tar] == [(True, 6)] * 3
    assert Path(take_census(File(tmp_path / "library.tar"))).read_text() == "x 3\ny 3\n"


def test_an_archive_has_as_many_files_as_there_is_time_for(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.py").write_text("x = 1\n" * 1000)
    paths = [f"{number}.py" for number in range(10)]
    assert archive_for(tmp_path, paths, 0.0, tmp_path / "one.tar")[0] == 1
    count, seconds = archive_for(tmp_path, paths, 1e9, tmp_path / "all.tar")
    assert count == 10
    with tarfile.open(tmp_path / "all.tar") as tar:
        assert tar.getnames() == paths
    assert seconds > 0.0
