"""Which of a program's own source files travel with its functions."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path, PurePosixPath

import pytest

from deskgrid.client import bundle
from deskgrid.client.bundle import is_local, reached_from
from deskgrid.errors import BagRejected
from tests.architecture.reading import ROOT

# The end of each program: what would travel with its function `f`, called with `ARGUMENT`.
TELL = """
from tests.client.carrying import files_of
import json
print(json.dumps(files_of(globals().get("f"), globals().get("ARGUMENT"), {})))
"""


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def travelling(
    folder: Path,
    program: str,
    files: Mapping[str, str],
    *,
    path: str = "",
    how: str = "script",
    modules: Sequence[str] = (),
) -> list[str]:
    """The files that travel with ``program``, run in ``folder`` beside ``files``."""
    program += TELL.format(list(modules))
    write(folder, {**files, "app/program.py" if how == "app" else "program.py": program})
    commands = {"script": ["program.py"], "module": ["-m", "program"], "app": ["-m", "app.program"]}
    arguments = commands.get(how, ["-c", program])
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *([path] if path else [])])},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    names: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return names


def using(*names: str) -> str:
    """A program whose function uses modules that the program has imported."""
    return f"import {', '.join(names)}\ndef f(item):\n    return {', '.join(names)}\n"


def test_a_module_beside_the_script_travels_and_the_script_does_not(tmp_path: Path) -> None:
    assert travelling(tmp_path, using("helper"), {"helper.py": "", "unused.py": ""}) == ["helper.py"]


def test_what_the_program_imports_and_the_function_does_not_use_stays(tmp_path: Path) -> None:
    files = {"helper.py": "", "plotting.py": "import screens", "screens.py": ""}
    assert travelling(tmp_path, f"import plotting\n{using('helper')}", files) == ["helper.py"]
    assert travelling(tmp_path, "import plotting, helper\nf = pow", {}) == []


def test_a_program_beside_a_package_of_many_megabytes_submits_what_does_not_need_it(tmp_path: Path) -> None:
    files = {f"large/part{number}.py": f"TEXT = '{'x' * 2**20}'" for number in range(17)}
    files["large/__init__.py"] = "\n".join(f"from large import part{number}" for number in range(17))
    assert travelling(tmp_path, "import large.part3\nf = pow", {**files, "large/small.py": ""}) == []
    assert len(travelling(tmp_path, using("large.small"), {})) == 19


def test_what_an_argument_is_made_of_travels(tmp_path: Path) -> None:
    files = {"shapes.py": "import units\nclass Circle: pass", "units.py": "", "unused.py": ""}
    program = "import unused\nfrom shapes import Circle\ndef f(item):\n    return item.area\nARGUMENT = [{1: Circle()}]"
    assert travelling(tmp_path, program, files) == ["shapes.py", "units.py"]


def test_what_a_function_in_an_argument_would_import_travels(tmp_path: Path) -> None:
    program = "def late():\n    import helper\nf, ARGUMENT = list, {'call': late}"
    assert travelling(tmp_path, program, {"helper.py": ""}) == ["helper.py"]


def test_a_function_of_a_module_of_ones_own_brings_that_module(tmp_path: Path) -> None:
    assert travelling(tmp_path, "from helper import f", {"helper.py": "def f(item): pass", "x.py": ""}) == ["helper.py"]


def test_python_what_is_installed_and_what_is_ours_stay(tmp_path: Path) -> None:
    assert (
        travelling(tmp_path, using("json", "msgpack", "deskgrid.windows.weekly", "deskgrid.scheduler.core"), {}) == []
    )


def test_ours_stay_also_from_a_checkout_in_a_folder_with_our_name(tmp_path: Path) -> None:
    try:
        (tmp_path / "deskgrid").symlink_to(ROOT, target_is_directory=True)
    except OSError:
        pytest.skip("this system has no symbolic links for everyone")
    program = f"import sys\nsys.path.insert(0, {str(tmp_path / 'deskgrid')!r})\n"
    program += using("deskgrid.windows.weekly")
    assert travelling(tmp_path / "app", program, {}) == []


def test_users_modules_with_the_names_of_our_folders_travel(tmp_path: Path) -> None:
    names = ["broker", "client", "scheduler", "wire", "worker"]
    found = travelling(tmp_path, using(*names), {f"{name}.py": "" for name in names})
    assert found == [f"{name}.py" for name in names]


@pytest.mark.parametrize(
    "program",
    [
        "def f(item):\n    import late",
        "def f(item):\n    from late import x",
        "def f(item):\n    def inner():\n        import late.x",
        "class Work:\n    def run(self):\n        def inner():\n            import late.x\nf, ARGUMENT = len, Work()",
    ],
)
@pytest.mark.parametrize("how", ["script", "shell"])
def test_what_a_function_would_import_later_travels(tmp_path: Path, program: str, how: str) -> None:
    assert travelling(tmp_path, program, {"late.py": "x = 1"}, how=how) == ["late.py"]


def test_what_a_travelling_module_would_import_later_travels(tmp_path: Path) -> None:
    files = {"first.py": "def f():\n    import second", "second.py": "import third", "third.py": "", "fourth.py": ""}
    assert travelling(tmp_path, using("first"), files) == ["first.py", "second.py", "third.py"]


def test_modules_that_import_each_other_travel_once(tmp_path: Path) -> None:
    assert travelling(tmp_path, using("a"), {"a.py": "import b", "b.py": "import a"}) == ["a.py", "b.py"]


PACKAGE = {
    "lab/__init__.py": "",
    "lab/models/__init__.py": "",
    "lab/models/gas.py": "from .. import tools",
    "lab/models/ice.py": "",
    "lab/tools.py": "",
    "lab/scripts/plot.py": "",
    "lab/data.csv": "1,2",
    "lab/.cache/old.py": "",
    "lab/node_modules/x.py": "",
}
FOREIGN = {"lab/.cache/old.py", "lab/node_modules/x.py"}
REACHED = ["lab/__init__.py", "lab/data.csv", "lab/models/__init__.py", "lab/models/gas.py", "lab/tools.py"]


def test_of_a_package_only_what_is_reached_travels_with_the_packages_around_it(tmp_path: Path) -> None:
    assert travelling(tmp_path, "from lab.models import gas\nf = lambda item: gas", PACKAGE) == REACHED
    assert travelling(tmp_path, "def f(item):\n    import lab.models.gas", {}) == REACHED
    assert travelling(tmp_path, "import lab.models.gas\ndef f(item):\n    return lab.models.gas.x", {}) == REACHED


def test_a_package_that_is_named_travels_whole_and_nothing_hidden_in_it(tmp_path: Path) -> None:
    found = travelling(tmp_path, "", PACKAGE, modules=["lab.models"])
    assert found == [*REACHED[:4], "lab/models/ice.py", "lab/tools.py"]
    assert travelling(tmp_path, "", {}, modules=["lab"]) == sorted(name for name in PACKAGE if name not in FOREIGN)
    assert travelling(tmp_path, "", {}, modules=["lab.scripts"]) == [*REACHED[:2], "lab/scripts/plot.py"]
    assert travelling(tmp_path, "", {}, modules=["lab.tools"]) == [*REACHED[:2], "lab/tools.py"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere", "there is no module 'nowhere'"),
        ("json.nowhere", "there is no module 'json.nowhere'"),
        ("json", "'json' is not a module of your own"),
        ("msgpack", "'msgpack' is not a module of your own"),
        ("deskgrid", "'deskgrid' is not a module of your own"),
    ],
)
def test_a_module_that_cannot_travel_is_refused(name: str, reason: str) -> None:
    with pytest.raises(BagRejected, match=f"^modules: {reason}"):
        reached_from([], modules=[name])


def test_a_program_in_a_package_finds_its_neighbours_by_relative_imports(tmp_path: Path) -> None:
    write(tmp_path, {"app/__init__.py": "", "app/helper.py": "", "app/unused.py": ""})
    program = "def f(item):\n    from . import helper"
    assert travelling(tmp_path, program, {}, how="app") == ["app/__init__.py", "app/helper.py"]


def test_of_a_folder_that_is_no_package_only_what_is_used_travels(tmp_path: Path) -> None:
    files = {"tools/used.py": "from . import near", "tools/near.py": "", "tools/unused.py": "", "tools/deep/x.py": ""}
    found = travelling(tmp_path, "import tools.used\ndef f(item):\n    from tools.deep import x\n    tools.used", files)
    assert found == ["tools/deep/x.py", "tools/near.py", "tools/used.py"]


def test_a_module_elsewhere_on_the_path_travels_below_its_own_root(tmp_path: Path) -> None:
    write(tmp_path / "lib", {"common/__init__.py": "", "common/units.py": ""})
    found = travelling(tmp_path / "app", using("common.units"), {}, path=str(tmp_path / "lib"))
    assert found == ["common/__init__.py", "common/units.py"]


def test_modules_in_a_zip_archive_travel_with_what_they_import(tmp_path: Path) -> None:
    archive = tmp_path / "app.pyz"
    with zipfile.ZipFile(archive, "w") as made:
        for name, text in {
            "common/__init__.py": "",
            "common/units.py": "from . import deep",
            "common/deep/__init__.py": "",
            "common/other.py": "",
            "__main__.py": using("common.units") + TELL,
        }.items():
            made.writestr(name, text)
    expected = ["common/__init__.py", "common/deep/__init__.py", "common/units.py"]
    assert travelling(tmp_path, using("common.units"), {}, path=str(archive)) == expected
    ran = subprocess.run(
        [sys.executable, str(archive)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert json.loads(ran.stdout) == expected


def test_a_package_in_a_zip_archive_travels_with_its_data_and_whole_if_it_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as made:
        for name in ("__init__.py", "table.csv", "deep/table.csv", "sub/__init__.py", "sub/unused.py", "sub/other.csv"):
            made.writestr(f"lab/{name}", "")
        made.writestr("beside.csv", "")
    files = ["lab/__init__.py", "lab/deep/table.csv", "lab/table.csv"]
    assert travelling(tmp_path, using("lab"), {}, path=str(tmp_path / "lib.zip")) == files
    whole = sorted([*files, "lab/sub/__init__.py", "lab/sub/other.csv", "lab/sub/unused.py"])
    assert travelling(tmp_path, "f = len", {}, path=str(tmp_path / "lib.zip"), modules=["lab"]) == whole


def test_an_archive_that_is_broken_since_it_was_imported_stops_nothing(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as made:
        made.writestr("lab/__init__.py", "")
    program = f"{using('lab')}open({str(tmp_path / 'lib.zip')!r}, 'w').close()\n"
    assert travelling(tmp_path, program, {}, path=str(tmp_path / "lib.zip")) == []


LOAD = """
import importlib.util, sys
def loaded(name, file, **places):
    spec = importlib.util.spec_from_file_location(name, file, **places)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""


def test_a_file_that_is_loaded_under_another_name_travels_under_that(tmp_path: Path) -> None:
    files = {"plugins/v2.py": "import helper\ndef f(item): pass", "helper.py": ""}
    assert travelling(tmp_path, f"{LOAD}f = loaded('plugin', 'plugins/v2.py').f", files) == ["helper.py", "plugin.py"]
    files = {"v3/__init__.py": "from .inner import f", "v3/inner.py": "def f(item): pass", "v3/table.csv": ""}
    program = f"{LOAD}f = loaded('plug', 'v3/__init__.py', submodule_search_locations=['v3']).f"
    assert travelling(tmp_path, program, files) == ["plug/__init__.py", "plug/inner.py", "plug/table.csv"]


def test_a_program_run_as_a_module_finds_its_neighbours(tmp_path: Path) -> None:
    assert travelling(tmp_path, "def f(item):\n    import helper", {"helper.py": ""}, how="module") == ["helper.py"]


def test_a_file_that_is_not_python_stops_nothing(tmp_path: Path) -> None:
    files = {"helper.py": "def f():\n    import broken", "broken.py": "print 'Python 2'"}
    assert travelling(tmp_path, using("helper"), files) == ["broken.py", "helper.py"]


def test_a_module_whose_file_is_gone_stops_nothing(tmp_path: Path) -> None:
    program = using("helper", "gone", "os") + "os.remove(gone.__file__)"
    assert travelling(tmp_path, program, {"helper.py": "", "gone.py": ""}) == ["helper.py"]


def test_a_module_that_is_a_link_travels_under_the_name_it_is_imported_by(tmp_path: Path) -> None:
    write(tmp_path, {"shared/helper_v2.py": ""})
    (tmp_path / "app").mkdir()
    try:
        (tmp_path / "app" / "helper.py").symlink_to(tmp_path / "shared" / "helper_v2.py")
    except OSError:
        pytest.skip("this system has no symbolic links for everyone")
    assert travelling(tmp_path / "app", using("helper"), {}) == ["helper.py"]


def test_nothing_is_executed_to_find_out(tmp_path: Path) -> None:
    files = {"late.py": "raise SystemExit('executed')"}
    assert travelling(tmp_path, "def f(item):\n    import late", files) == ["late.py"]


def test_what_travels_is_in_the_same_order_every_time() -> None:
    first, second = (reached_from(["tests.client.test_bundle"]) for _ in range(2))
    assert list(first.files) == sorted(first.files)
    assert first == second
    assert "tests/client/test_bundle.py" in first.files
    assert not any(name.startswith(("deskgrid/", "broker/", "worker/", "scheduler/")) for name in first.files)
    assert "pytest" in first.libraries
    assert not any(name.partition(".")[0] in ("json", "sys", "deskgrid", "tests") for name in first.libraries)


def test_installed_files_are_told_by_where_they_are(tmp_path: Path) -> None:
    assert is_local(tmp_path / "helper.py")
    assert not is_local(tmp_path / "site-packages" / "helper.py")
    assert not is_local(Path(json.__file__))
    assert is_local(tmp_path / f"helper{EXTENSION_SUFFIXES[0]}")
    assert not is_local(tmp_path / "helper.txt")


def test_a_link_to_an_installed_file_is_installed_too(tmp_path: Path) -> None:
    write(tmp_path, {"site-packages/helper.py": ""})
    try:
        (tmp_path / "helper.py").symlink_to(tmp_path / "site-packages" / "helper.py")
    except OSError:
        pytest.skip("this system has no symbolic links for everyone")
    assert not is_local(tmp_path / "helper.py")


def test_a_link_in_pythons_own_library_is_pythons_also_where_it_leads_out_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"etc/sitecustomize.py": "", "python/lib/os.py": ""})
    try:
        (tmp_path / "python" / "lib" / "sitecustomize.py").symlink_to(tmp_path / "etc" / "sitecustomize.py")
        (tmp_path / "called").symlink_to(tmp_path / "python", target_is_directory=True)
    except OSError:
        pytest.skip("this system has no symbolic links for everyone")
    bundle._library_folders.cache_clear()
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    with monkeypatch.context() as patch:
        patch.setattr("sysconfig.get_paths", lambda: dict.fromkeys(kinds, str(tmp_path / "called" / "lib")))
        try:
            assert not is_local(tmp_path / "called" / "lib" / "sitecustomize.py")
            assert not is_local(tmp_path / "python" / "lib" / "os.py")
            assert is_local(tmp_path / "etc" / "sitecustomize.py")
        finally:
            bundle._library_folders.cache_clear()


def test_the_data_of_a_package_travels_with_it(tmp_path: Path) -> None:
    files = {
        "lab/__init__.py": "",
        "lab/table.json": "{}",
        "lab/data/deep/table.csv": "1",
        "lab/.hidden": "",
        "lab/__pycache__/x.pyc": "",
        "lab/inner/__init__.py": "",
        "lab/inner/unused.json": "",
        "beside.csv": "",
    }
    expected = ["lab/__init__.py", "lab/data/deep/table.csv", "lab/table.json"]
    assert travelling(tmp_path, using("lab"), files) == expected


def test_data_that_is_too_much_stays_and_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    package = tmp_path / "lab"
    package.mkdir()
    (package / "table.bin").write_bytes(b"1")
    assert [each.path for each in bundle._data_of(PurePosixPath("lab"), package)] == [package / "table.bin"]
    with open(package / "table.bin", "wb") as file:
        file.truncate(bundle._DATA_BYTES + 1)
    assert bundle._data_of(PurePosixPath("lab"), package) == []
    assert bundle._data_of(PurePosixPath("lab"), package) == []
    (said,) = [record.getMessage() for record in caplog.records]
    assert str(package) in said
    assert "File(path)" in said


def test_a_compiled_module_beside_the_script_travels(tmp_path: Path) -> None:
    name = f"fast{EXTENSION_SUFFIXES[0]}"
    assert travelling(tmp_path, "def f(item):\n    import fast", {name: ""}) == [name]
    assert travelling(tmp_path, "f = len", {}, modules=["fast"]) == [name]
