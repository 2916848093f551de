"""On Windows, a job object: it holds a process with everything that this starts, and the system ends it as one.

Rule 1: as `child.py`, this file imports nothing of ours.
Rule 2: a process is put into its job before it has run, so that nothing is outside. The job has the number of that
process in its name, so that the process finds it without being told.
Rule 3: only the worker keeps a job open. So all of it ends with the worker, however that ends.
"""

import os
import sys

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    # How a process is started that has not run when it gets into its job.
    SUSPENDED = 0x4
    _KILL_ON_CLOSE, _MEMORY_OF_ALL = 0x2000, 0x200
    _EXTENDED_LIMITS, _PROCESSES = 9, 3
    _QUERY = 0x4
    # What a process is opened for: to be resumed, put into a job, and ended with it.
    _FOR_A_JOB = 0x800 | 0x100 | 0x1
    _OF_PROCESSES = 0x2
    # The most processes of a job that are told.
    _MOST = 1000
    # What a console needs: it ends with the processes that use it.
    _CONSOLE = "conhost.exe"

    class _Limits(ctypes.Structure):
        _fields_ = (
            ("times", ctypes.c_int64 * 2),
            ("flags", wintypes.DWORD),
            ("sizes", ctypes.c_size_t * 2),
            ("processes", wintypes.DWORD),
            ("affinity", ctypes.c_size_t),
            ("classes", wintypes.DWORD * 2),
            ("counters", ctypes.c_uint64 * 6),
            ("memory_of_one", ctypes.c_size_t),
            ("memory_of_all", ctypes.c_size_t),
            ("peaks", ctypes.c_size_t * 2),
        )

    class _ProcessIds(ctypes.Structure):
        _fields_ = (("all", wintypes.DWORD), ("count", wintypes.DWORD), ("pids", ctypes.c_size_t * _MOST))

    class _ProcessEntry(ctypes.Structure):
        _fields_ = (
            ("size", wintypes.DWORD),
            ("usage", wintypes.DWORD),
            ("pid", wintypes.DWORD),
            ("heap", ctypes.c_size_t),
            ("numbers", wintypes.DWORD * 3),
            ("priority", wintypes.LONG),
            ("flags", wintypes.DWORD),
            ("program", wintypes.WCHAR * 260),
        )

    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    for _name in ("CreateJobObjectW", "OpenJobObjectW", "OpenProcess", "CreateToolhelp32Snapshot"):
        getattr(_kernel, _name).restype = wintypes.HANDLE

    def _name_of(pid: int) -> str:
        return f"deskgrid-{pid}"

    def _checked(done: int) -> None:
        if not done:
            raise ctypes.WinError(ctypes.get_last_error())

    class JobObject:
        """The job of a process that was started suspended, and runs from now on. Raises OSError."""

        def __init__(self, pid: int) -> None:
            self._suspended: set[int] = set()
            self._handle = wintypes.HANDLE(_kernel.CreateJobObjectW(None, _name_of(pid)))
            _checked(self._handle.value or 0)
            process = wintypes.HANDLE(_kernel.OpenProcess(_FOR_A_JOB, False, pid))
            try:
                self.limit(0)
                _checked(_kernel.AssignProcessToJobObject(self._handle, process))
                if ctypes.WinDLL("ntdll").NtResumeProcess(process):
                    raise OSError("a process that was started cannot run")
            except OSError:
                self.close()
                raise
            finally:
                _kernel.CloseHandle(process)

        def limit(self, memory: int) -> None:
            """Let all processes of the job have so many bytes of memory in all; 0: as many as there are."""
            limits = _Limits(flags=_KILL_ON_CLOSE | (_MEMORY_OF_ALL if memory else 0), memory_of_all=memory)
            size = ctypes.sizeof(limits)
            _checked(_kernel.SetInformationJobObject(self._handle, _EXTENDED_LIMITS, ctypes.byref(limits), size))

        def suspend(self) -> None:
            """Stop all its processes, until `resume`; also those that have started since the last call."""
            for pid in _in_job(self._handle):
                if pid not in self._suspended and _told_kernel("NtSuspendProcess", pid):
                    self._suspended.add(pid)

        def resume(self) -> None:
            """Let its processes go on."""
            for pid in self._suspended:
                _told_kernel("NtResumeProcess", pid)
            self._suspended.clear()

        def close(self) -> None:
            """What is left of it ends. Call this once."""
            _kernel.CloseHandle(self._handle)

    def _in_job(job: wintypes.HANDLE) -> set[int]:
        told = _ProcessIds()
        _kernel.QueryInformationJobObject(job, _PROCESSES, ctypes.byref(told), ctypes.sizeof(told), None)
        return set(told.pids[: told.count])

    def _told_kernel(function: str, pid: int) -> bool:
        """Call a function of ntdll with a process."""
        process = wintypes.HANDLE(_kernel.OpenProcess(0x800, False, pid))
        if not process.value:
            return False
        done = bool(getattr(ctypes.WinDLL("ntdll"), function)(process) == 0)
        _kernel.CloseHandle(process)
        return done

    def others() -> list[int]:
        """Return the other processes in the job of this one; none if it is in no job of ours."""
        lineage = (os.getpid(), os.getppid())  # in a virtual environment, a small program has started this one
        found: set[int] = set()
        for pid in lineage:
            job = wintypes.HANDLE(_kernel.OpenJobObjectW(_QUERY, False, _name_of(pid)))
            if job.value:
                found = _in_job(job)
                _kernel.CloseHandle(job)
                break
        found -= set(lineage)
        return list(found - _consoles()) if found else []

    def _consoles() -> set[int]:
        found, entry = set(), _ProcessEntry(size=ctypes.sizeof(_ProcessEntry))
        snapshot = wintypes.HANDLE(_kernel.CreateToolhelp32Snapshot(_OF_PROCESSES, 0))
        more = _kernel.Process32FirstW(snapshot, ctypes.byref(entry))
        while more:
            if entry.program.lower() == _CONSOLE:
                found.add(entry.pid)
            more = _kernel.Process32NextW(snapshot, ctypes.byref(entry))
        _kernel.CloseHandle(snapshot)
        return found
