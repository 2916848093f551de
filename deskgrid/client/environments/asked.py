"""What users ask for: requirements, files with requirements, locks, and the comment of a script.

Everything becomes lines for pip, so all that pip knows about requirements is true here.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deskgrid.errors import BagRejected

# The parts of an environment: "mine", "script", requirements, and paths.
Env = tuple[str | Path, ...]
# The comment with a script's requirements, as PEP 723 defines it.
_SCRIPT = re.compile(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_EDITABLE = re.compile(r"(?:-e|--editable)[= ]\s*(?P<path>.+)")
_NESTED = re.compile(r"(?P<option>-r|--requirement|-c|--constraint)[= ]?\s*(?P<path>.+)")
# The name that a requirement begins with.
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
# The versions of locks that are understood.
_LOCK = "1."


@dataclass(frozen=True, slots=True)
class AskedEnvironment:
    """``label`` names it to people. ``lines``: requirements, and pip's options among them, as in requirements.txt.

    ``constraints``: versions of what these bring. ``local``: projects to build, and wheels. ``python``: the versions of
    Python that it is for, as in "requires-python".
    """

    label: str
    lines: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    python: str = ""

    def and_also(self, more: "AskedEnvironment") -> "AskedEnvironment":
        """Return this and ``more`` together."""
        return replace(
            self,
            label=f"{self.label} +{len(more.lines) + len(more.local)}",
            lines=(*self.lines, *more.lines),
            constraints=(*self.constraints, *more.constraints),
            local=(*self.local, *more.local),
            python=",".join(filter(None, (self.python, more.python))),
        )

    @property
    def pinned(self) -> tuple[str, ...]:
        """The requirements with hashes. These name everything that they need, as pip wants it."""
        return tuple([line for line in self.lines if "--hash" in line])

    @property
    def names(self) -> set[str]:
        """The names of the requirements, as package indexes compare them."""
        return {normal(found[1]) for line in self.lines if (found := _NAME.match(line))}


def normal(name: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_in(requirement: str) -> str:
    """Return the normal name in a requirement."""
    found = _NAME.match(requirement)
    return normal(found[1]) if found else ""


def checked_env(env: object) -> Env:
    """Return ``env`` as its parts: "mine", "script", requirements and paths. Raises `BagRejected`."""
    if env in ("mine", "script"):
        return (str(env),)
    if isinstance(env, Path):
        return (env,)
    if isinstance(env, str) or not isinstance(env, Iterable):
        raise BagRejected(f'env is "mine", "script", a list of requirements or a Path, not {env!r:.80}')
    parts = tuple(env)
    if not parts or not all(isinstance(part, str | Path) and str(part).strip() for part in parts):
        raise BagRejected(f'env is a list of requirements, such as ["numpy==2.4.6"], not {env!r:.80}')
    return parts


def asked_by(requirements: Sequence[str]) -> AskedEnvironment:
    """Return what a list of requirements asks for. Raises `BagRejected`."""
    lines = [line.strip() for line in requirements]
    return replace(_read(lines, Path()), label=lines[0] + (f" +{len(lines) - 1}" if len(lines) > 1 else ""))


def asked_in(path: Path) -> AskedEnvironment:
    """Return what a file asks for, or a project or a wheel at ``path`` itself. Raises `BagRejected`."""
    if path.suffix == ".whl" or path.is_dir():
        if not path.exists():
            raise BagRejected(f"there is no project or wheel at {path}")
        return AskedEnvironment(path.name, local=(str(path.resolve()),))
    text = _text(path)
    if path.suffix == ".toml" and path.name.startswith("pylock"):
        return _lock(path, text)
    if path.suffix == ".py":
        return _script(path, text)
    return replace(_read(_joined(text), path.parent, (path.resolve(),)), label=path.name)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BagRejected(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from error


# --- requirements ----------------------------------------------------------------------------------------------------


def _joined(text: str) -> list[str]:
    """Return the lines of a file of requirements without comments and without line breaks inside."""
    lines = re.sub(r"\\\r?\n", " ", text).splitlines()
    return [line for each in lines if (line := re.sub(r"(^|\s)#.*$", "", each).strip())]


def _read(lines: Iterable[str], folder: Path, within: tuple[Path, ...] = ()) -> AskedEnvironment:
    """Return what lines ask for. ``within``: the file that they are from, and those that include it."""
    kept, local, constraints = list[str](), list[str](), list[str]()
    for line in lines:
        if nested := _NESTED.fullmatch(line):
            path = folder / nested["path"].strip()
            if (real := path.resolve()) in within:
                raise BagRejected(f"{path} includes itself: remove the line {line!r}")
            inner = _read(_joined(_text(path)), path.parent, (*within, real))
            constraints += inner.constraints
            if nested["option"] in ("-c", "--constraint"):
                constraints += inner.lines
            else:
                kept, local = [*kept, *inner.lines], [*local, *inner.local]
        elif path_of := _local(line, folder):
            local.append(path_of)
        else:
            kept.append(line)
    return AskedEnvironment("", tuple(kept), tuple(constraints), tuple(local))


def _local(line: str, folder: Path) -> str:
    """Return the path of a project or a wheel that a line names; "" if it names none."""
    editable = _EDITABLE.fullmatch(line)
    text = editable["path"].strip() if editable else line
    path = folder / text.removeprefix("file://").partition("[")[0]
    here = editable or text.startswith((".", "/", "~", "file:")) or text.endswith(".whl") or "\\" in text
    if not here or "://" in text.removeprefix("file://"):
        return ""
    with suppress(RuntimeError):  # ~ of somebody who has no home folder
        path = path.expanduser()
    if not path.exists():
        raise BagRejected(f"there is no project or wheel at {path}")
    return str(path.resolve())


# --- scripts and locks -----------------------------------------------------------------------------------------------


def _script(path: Path, text: str) -> AskedEnvironment:
    found = _SCRIPT.search(text)
    if found is None:
        raise BagRejected(f'{path} has no comment "# /// script" with its dependencies (PEP 723)')
    lines = found["content"].splitlines()
    table = _toml(path, "\n".join(line[2:] if line.startswith("# ") else line[1:] for line in lines))
    wanted = table.get("dependencies", [])
    if not isinstance(wanted, list) or not all(isinstance(line, str) for line in wanted):
        raise BagRejected(f"{path}: its dependencies are not a list of strings")
    return replace(_read(wanted, path.parent), label=path.name, python=str(table.get("requires-python", "")))


def _toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BagRejected(f"{path} is not valid TOML: {error}") from error


def _lock(path: Path, text: str) -> AskedEnvironment:
    """Read a lock (PEP 751)."""
    table = _toml(path, text)
    version = str(table.get("lock-version", ""))
    if not version.startswith(_LOCK):
        raise BagRejected(f"{path} is a lock of version {version or '(none)'}; deskgrid reads version {_LOCK}0")
    lines, local = list[str](), list[str]()
    try:
        for package in table.get("packages", []):
            line, place = _package(path, package)
            lines += [line] if line else []
            local += [place] if place else []
    except (AttributeError, KeyError, TypeError) as error:
        raise BagRejected(
            f"{path}: its packages are not as in a lock (PEP 751); let your tool write it again"
        ) from error
    return AskedEnvironment(path.name, tuple(lines), (), tuple(local), str(table.get("requires-python", "")))


def _package(path: Path, package: Mapping[str, Any]) -> tuple[str, str]:
    """Return one package of a lock as a line for pip, and the path of a local one; one of them is empty."""
    name, version = package.get("name"), package.get("version")
    if "directory" in package:
        return "", str((path.parent / package["directory"]["path"]).resolve())
    wheels = package.get("wheels", [])
    hashes = [wheel["hashes"]["sha256"] for wheel in wheels if "sha256" in wheel.get("hashes", {})]
    if not name or not version or not hashes:
        raise BagRejected(
            f"{path}: {name or 'a package'} {version or ''} has no wheel with a SHA-256; PCs build no source: leave it "
            "out, or build a wheel of it and give its path as a requirement"
        )
    marker = f" ; {package['marker']}" if package.get("marker") else ""
    return f"{name}=={version}{marker} {' '.join(f'--hash=sha256:{each}' for each in hashes)}", ""
