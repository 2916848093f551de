"""An index of tiny wheels in a folder, and a cache that begins empty."""

from pathlib import Path

import pytest

from tests.wheels import make_wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip finds wheels: a folder with those of the process that runs tasks."""
    folder = tmp_path / "index"
    for name in ("cloudpickle", "msgpack"):
        make_wheel(folder, name, "99.0")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda name: None)  # uv is tried where it is tested
    return folder
