"""What an option refuses to draw into, before anything is run."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from deskgrid.sleepbench.pictures import files
from deskgrid.sleepbench.pictures.files import picture_file, refused


@click.command()
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), callback=picture_file)
def command(plot: Path | None) -> None:
    """Stands for one that draws."""
    click.echo(f"runs {plot and plot.name}")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.mark.parametrize("name", ["a.svg", "a.png", "a.pdf", "b.c.SVG"])
def test_vectors_and_dots_are_taken(name: str, tmp_path: Path) -> None:
    assert invoke("--plot", tmp_path / name).output == f"runs {name}\n"
    assert list(tmp_path.iterdir()) == []


def test_without_the_option_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_spec", lambda _: None)
    assert invoke().output == "runs None\n"


@pytest.mark.parametrize("name", ["a.jpg", "a", "svg", "a.svg.txt"])
def test_another_kind_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    result = invoke("--plot", tmp_path / name)
    assert result.exit_code == 2
    assert f"has to end in .svg, .png or .pdf: {name} does not" in " ".join(result.output.split())


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "none" / "a.svg") == f"there is no folder {tmp_path / 'none'}"
    assert refused(Path("a.svg")) is None


def test_a_folder_is_not_drawn_into(tmp_path: Path) -> None:
    (tmp_path / "a.svg").mkdir()
    assert invoke("--plot", tmp_path / "a.svg").exit_code == 2


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(files, "find_spec", asked.append)
    result = invoke("--plot", "a.svg")
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == (
        "Error: Invalid value for '--plot': pictures need matplotlib: pip install matplotlib"
    )
    assert asked == ["matplotlib"]
    assert importlib.util.find_spec("matplotlib") is not None


def test_looking_for_matplotlib_does_not_load_it() -> None:
    code = "import sys; from pathlib import Path; from deskgrid.sleepbench.pictures.files import refused; "
    code += "assert refused(Path('a.svg')) is None; assert 'matplotlib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
