"""Files as all systems have them, though Windows differs.

There, a file that is open or mapped cannot be renamed or removed, nor a read-only one removed; text mode translates
line ends; and the list of a folder does not tell how many names a file has.

Rule: whoever opens a file that is renamed or removed while it may be open uses `open_shared`, also as the ``opener`` of
`open`. A mapped file cannot be helped: whoever maps one lets it go before it is removed, or removes it later.
"""

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

# What NTFS gives a file at a time, on nearly every disk.
_CLUSTER = 4096

if sys.platform == "win32":
    import _winapi
    import ctypes
    import msvcrt

    # What others may do with a file meanwhile: read, write, and rename or remove it.
    _SHARE_ALL = 0x1 | 0x2 | 0x4
    _CREATE_NEW, _CREATE_ALWAYS, _OPEN_EXISTING, _OPEN_ALWAYS, _TRUNCATE_EXISTING = range(1, 6)
    _ATTRIBUTE_NORMAL = 0x80
    # A time of Windows counts 100 ns since 1601, one of ours 1 ns since 1970.
    _EPOCH = 116_444_736_000_000_000


def open_shared(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file as `os.open` does, never in text mode; everybody may rename and remove it meanwhile. Raises OSError.

    A link in the place of the file is an error, where the system can tell.
    """
    if sys.platform == "win32":
        kinds = {os.O_RDONLY: _winapi.GENERIC_READ, os.O_WRONLY: _winapi.GENERIC_WRITE}
        access = kinds.get(flags & (os.O_WRONLY | os.O_RDWR), _winapi.GENERIC_READ | _winapi.GENERIC_WRITE)
        empties = flags & os.O_TRUNC
        if flags & os.O_CREAT:
            how = _CREATE_NEW if flags & os.O_EXCL else _CREATE_ALWAYS if empties else _OPEN_ALWAYS
        else:
            how = _TRUNCATE_EXISTING if empties else _OPEN_EXISTING
        handle = _winapi.CreateFile(os.fspath(path), access, _SHARE_ALL, 0, how, _ATTRIBUTE_NORMAL, 0)
        try:
            return msvcrt.open_osfhandle(handle, flags & (os.O_APPEND | os.O_WRONLY | os.O_RDWR) | os.O_BINARY)
        except OSError:
            _winapi.CloseHandle(handle)
            raise
    else:
        return os.open(path, flags | os.O_NOFOLLOW, mode)


def set_times(descriptor: int, used_ns: int, changed_ns: int) -> None:
    """Set when an open file was used and changed, in ns since 1970; closing it does not change that. Raises OSError."""
    if sys.platform == "win32":
        used, changed = (ctypes.c_uint64(ns // 100 + _EPOCH) for ns in (used_ns, changed_ns))
        handle = ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))
        if not ctypes.windll.kernel32.SetFileTime(handle, None, ctypes.byref(used), ctypes.byref(changed)):
            raise ctypes.WinError()
    else:
        os.utime(descriptor, ns=(used_ns, changed_ns))


def stat_of(entry: "os.DirEntry[str]") -> os.stat_result:
    """What the system tells about a file of a folder's list, the number of its names included. Raises OSError."""
    return os.lstat(entry.path) if sys.platform == "win32" else entry.stat(follow_symlinks=False)


def size_on_disk(found: os.stat_result) -> int:
    """How many bytes of the disk a file takes; where the system does not tell, its size in whole clusters."""
    if sys.platform == "win32":
        return -(-found.st_size // _CLUSTER) * _CLUSTER
    else:
        return found.st_blocks * 512


def remove_tree(folder: Path) -> None:
    """Remove a folder with everything in it, as far as that can be removed."""
    if sys.platform == "win32":
        for root, folders, files in os.walk(folder):
            for name in (*folders, *files):
                with suppress(OSError):
                    os.chmod(os.path.join(root, name), 0o700)
    shutil.rmtree(folder, ignore_errors=True)
