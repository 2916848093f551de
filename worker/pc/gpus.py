"""The graphics cards of this PC that programs can compute on."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deskgrid.resources import GPU
from deskgrid.wire import RESOURCE_UNIT, RESOURCES_LIMIT, counted

# A driver that does not answer is as good as none. Seconds.
PATIENCE_S = 20.0
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")


def graphics_cards(resources: tuple[str, ...], *, find: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the resources of this PC with its graphics cards, and what the driver calls these.

    ``find``: they count if there are any. Otherwise they do if ``resources`` say how many there are.
    """
    given = dict(counted(resources)).get(GPU, 0)
    if not (find or given):
        return resources, ()
    names = gpus()
    if given:
        many = -(-given // RESOURCE_UNIT)
        return resources, names[:many] if len(names) >= many else _numbered(many)
    if names and len(resources) < RESOURCES_LIMIT:
        resources = tuple(sorted([*resources, f"{GPU}={len(names)}"]))
    return resources, names


def gpus(variables: Mapping[str, str] = os.environ, kfd: Path = _KFD) -> tuple[str, ...]:
    """Return what the driver calls them: NVIDIA's by ``nvidia-smi``, else AMD's by what the kernel says.

    If somebody has said in the worker's ``variables`` which to use, it is these.
    """
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        if name in variables:
            return tuple([each.strip() for each in variables[name].split(",") if each.strip() not in ("", "-1")])
    return _numbered(_nvidia() or _amd(kfd))


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def _nvidia() -> int:
    try:
        found = subprocess.run(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in found.stdout.splitlines())


def _amd(kfd: Path) -> int:
    """A node of the kernel that has SIMD units is a graphics card; the others are processors."""
    count = 0
    for node in kfd.glob("*/properties"):
        try:
            rows = node.read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            continue
        count += any(row.split()[:1] == ["simd_count"] and row.split()[-1] != "0" for row in rows)
    return count
