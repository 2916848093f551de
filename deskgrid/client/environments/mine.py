"""``env="mine"``: the libraries that a program uses, at the versions that are installed here.

What the program imports is required; the versions of everything else that is installed are constraints. So a library
that only other platforms need is not missing there, and one that only this platform has is not required there.
"""

import json
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deskgrid.client.environments.asked import AskedEnvironment, name_in, normal


def asked_of(libraries: Iterable[str]) -> AskedEnvironment:
    """Return what the modules with these full names ask for, as it is installed here."""
    named = {normal(name): name for module in libraries for name in _owners(module)}
    needed = _with_needs(named)
    local = {name: place for name in needed if name != "deskgrid" and (place := project_of(name))}
    lines = [name for name in sorted(named) if name not in local and name != "deskgrid"]
    # A local version, such as that of a build for one kind of graphics card, stays: it is what is installed.
    constraints = [f"{name}=={version}" for name, version in sorted(needed.items()) if name not in local]
    return AskedEnvironment("mine", tuple(lines), tuple(constraints), tuple(sorted(local.values())))


@cache
def _by_module() -> dict[str, list[str]]:
    return {module: list(names) for module, names in metadata.packages_distributions().items()}


def _owners(module: str) -> set[str]:
    """Return the distributions that a module belongs to; none if none says so."""
    owners = set(_by_module().get(module.partition(".")[0], ()))
    if len(owners) > 1 and "." in module:  # a namespace that several share
        inside = "/".join(module.split(".")[:2])
        shared = {
            owner for owner in owners if any(str(file).startswith(inside) for file in metadata.files(owner) or ())
        }
        owners = shared or owners
    return owners


@cache
def project_of(name: str) -> str:
    """Return the folder that a distribution was installed from, in editable mode or not; "" if from no folder."""
    text = metadata.distribution(name).read_text("direct_url.json")
    found = json.loads(text) if text else {}
    if "dir_info" not in found:
        return ""
    place = Path(unquote(urlsplit(found.get("url", "")).path))
    return str(place) if place.is_dir() else ""


def _with_needs(named: Iterable[str]) -> dict[str, str]:
    """Return the versions of distributions and of all that they may need, as far as it is installed, by name."""
    found: dict[str, str] = {}
    left = list(named)
    while left:
        name = left.pop()
        if name not in found:
            try:
                distribution = metadata.distribution(name)
            except metadata.PackageNotFoundError:
                continue
            found[name] = distribution.version
            left += [name_in(each) for each in distribution.requires or ()]
    return found
