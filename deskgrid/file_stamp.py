"""Whether a file has changed since it was read last."""

from pathlib import Path

# The time of the last change, in ns, and the size in bytes.
Stamp = tuple[int, int]


def stamp_of(path: Path) -> Stamp | None:
    """Return what changes whenever the file at ``path`` does; None if there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.errno or 0, -1  # unlike any real stamp, so the file is read once and the error reported
    return found.st_mtime_ns, found.st_size
