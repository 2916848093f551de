"""Gathers the wheels of deskgrid and of all that it needs, for several sorts of PCs, and packs them with the scripts.

pip chooses and fetches the wheels, as for environments (`deskgrid.client.environments.resolve`). pip itself is in the
kit, too: on some systems, a new virtual environment has none.
"""

import os
import re
import zipfile
from collections.abc import Callable, Sequence
from importlib import metadata, resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from deskgrid.client.environments.asked import asked_by
from deskgrid.client.environments.reasons import reason_of_build
from deskgrid.client.environments.resolve import run_pip, wheels_for
from deskgrid.client.environments.store import WheelFolder
from deskgrid.errors import BagRejected
from deskgrid.kit.wheel import installed_wheel
from deskgrid.wire import System

Platform = Literal["linux", "windows"]
# The wheels of each platform, for processors of Intel and AMD: the oldest glibc that is served is that of Debian 10.
SORTS: dict[Platform, tuple[str, int, int]] = {"linux": ("linux_x86_64", 2, 28), "windows": ("win_amd64", 0, 0)}
# Whose scripts are in the kit.
SCRIPTS: dict[Platform, tuple[str, ...]] = {"linux": ("install.sh", "deskgrid.yml"), "windows": ("install.ps1",)}
# All of the kit is below one folder, so that unpacking it makes no mess.
TOP = "deskgrid-kit"


class KitError(Exception):
    """There can be no such kit; one line that says why."""


def make_kit(platforms: Sequence[Platform], pythons: Sequence[str], out: Path, say: Callable[[str], None]) -> None:
    """Write a kit to ``out``; ``say`` gets a line for each sort of PC. Raises `KitError`."""
    place = Path(os.path.realpath(out))
    if not place.parent.is_dir():
        raise KitError(f"there is no folder {place.parent}")
    if os.path.exists(place) and not os.path.isfile(place):
        raise KitError(f"{out} is not a file: it is not replaced")
    draft = place.with_name(f".{place.name}.new")
    try:
        draft.touch()  # that it cannot be written is said before anything is fetched
        try:
            with TemporaryDirectory(prefix="deskgrid-kit-") as folder:
                own = own_wheel(Path(folder))
                wheels = _wheels(["pip", *_needs(own)], platforms, pythons, say)
                _pack(draft, [own, *wheels], own.name.split("-")[1], platforms, pythons)
            os.replace(draft, place)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        what = out if error.filename in (None, str(draft)) else error.filename
        raise KitError(f"{what} cannot be written: {error.strerror}") from error
    except BagRejected as error:
        raise KitError(str(error)) from error


def own_wheel(folder: Path) -> Path:
    """The wheel of this deskgrid: of the checkout that it is, or of what is installed."""
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        done = run_pip(["wheel", "--no-deps", "--wheel-dir", str(folder), "--progress-bar=off", str(checkout)])
        if done.returncode:
            raise KitError(f"{checkout} cannot be built into a wheel: {reason_of_build(done.stderr)}")
        return next(folder.glob("*.whl"))
    try:
        return installed_wheel(folder, "deskgrid")
    except metadata.PackageNotFoundError as error:
        raise KitError("deskgrid is neither installed by pip here, nor is this a checkout") from error


def _needs(wheel: Path) -> list[str]:
    """The requirements of a wheel, without those of its extras."""
    with zipfile.ZipFile(wheel) as archive:
        (place,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(place).decode().partition("\n\n")[0].splitlines()
    found = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [line for line in found if not re.search(r"\bextra\s*==", line)]


def _wheels(
    needs: Sequence[str], platforms: Sequence[Platform], pythons: Sequence[str], say: Callable[[str], None]
) -> list[Path]:
    """The wheels that meet these requirements on all these sorts of PCs."""
    asked = asked_by(needs)
    found: dict[str, Path] = {}
    for platform in platforms:
        for python in pythons:
            system = System(python, *SORTS[platform])
            wheels = wheels_for(asked, system, WheelFolder())
            say(f"{system}: {len(wheels)} wheels")
            found |= {wheel.name: Path(wheel.path) for wheel in wheels}
    return [found[name] for name in sorted(found)]


def _pack(
    out: Path, wheels: Sequence[Path], version: str, platforms: Sequence[Platform], pythons: Sequence[str]
) -> None:
    scripts = [name for platform in platforms for name in SCRIPTS[platform]]
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("README.txt", *scripts):
            text = resources.files("deskgrid.kit").joinpath(name).read_text(encoding="utf-8")
            _add(archive, name, text.replace("\n", "\r\n") if name.endswith((".ps1", ".txt")) else text)
        _add(archive, "VERSION", f"{version}\n")
        _add(archive, "PYTHONS", "".join([f"{python}\n" for python in pythons]))
        for wheel in wheels:  # they are compressed already
            archive.write(wheel, f"{TOP}/wheels/{wheel.name}", zipfile.ZIP_STORED)


def _add(archive: zipfile.ZipFile, name: str, text: str) -> None:
    about = zipfile.ZipInfo(f"{TOP}/{name}", (1980, 1, 1, 0, 0, 0))
    about.compress_type, about.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
    archive.writestr(about, text)
