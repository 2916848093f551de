"""What is written for systemd, launchd and the Task Scheduler of Windows. Pure.

Rule 1: a join line is never in one of these files: everybody can read them. It is in a file that only its user can
read.
Rule 2: a worker's unit has no option that tasks would notice. These were left out: NoNewPrivileges, RestrictSUIDSGID
and CapabilityBoundingSet (tasks may use sudo, and --run-as needs rights), ProtectHome (homes), PrivateTmp (files of
others), PrivateDevices, ProtectClock and DevicePolicy (GPUs, /dev/kvm), RestrictNamespaces (containers),
ProtectControlGroups (the worker divides its own), MemoryDenyWriteExecute (compilers at run time),
SystemCallArchitectures and SystemCallFilter (any program may run). A worker of a user has even fewer: there, each of
the others implies NoNewPrivileges.
"""

import plistlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape

What = Literal["worker", "broker"]
Kind = Literal["systemd", "launchd", "windows"]

# How long a service may stay silent before systemd restarts it. A full disk may stop a loop for a while. Seconds.
WATCHDOG_S = 120
# How long a worker that stops has: its tasks save for at most 9 s, and its last results take at most 3 s. Seconds.
STOP_S = 30
RESTART_S = 15
# The account of the broker of a whole machine.
BROKER_USER = "deskgrid-broker"

_COMMON = f"""\
Type=notify
NotifyAccess=main
WatchdogSec={WATCHDOG_S}
Restart=on-failure
RestartSec={RESTART_S}
TimeoutStopSec={STOP_S}
"""
_WORKER = """\
# Only the worker is asked to stop: it ends its tasks, and hands them back.
KillMode=mixed
# The worker divides its own control group, so that tasks use no more memory than they have asked for.
Delegate=yes
"""
_SYSTEM_WORKER = """\
# Options that tasks would notice are left out.
ProtectSystem=full
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectKernelTunables=yes
ProtectHostname=yes
RestrictRealtime=yes
"""
_BROKER = """\
# A connection is an open file, and a grid may have thousands.
LimitNOFILE=16384
"""
_SYSTEM_BROKER = f"""\
User={BROKER_USER}
StateDirectory={BROKER_USER}
StateDirectoryMode=0700
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
"""


@dataclass(frozen=True, slots=True)
class Service:
    """``command``: the program and its arguments. ``system``: for the whole machine, otherwise for one user."""

    what: What
    command: Sequence[str]
    system: bool

    @property
    def name(self) -> str:
        return f"deskgrid-{self.what}"

    def text(self, kind: Kind) -> str:
        """Return the file for ``kind``."""
        return {"systemd": self._unit, "launchd": self._plist, "windows": self._task}[kind]()

    def _unit(self) -> str:
        own = (_WORKER, _SYSTEM_WORKER) if self.what == "worker" else (_BROKER, _SYSTEM_BROKER)
        network = "Wants=network-online.target\nAfter=network-online.target\n" if self.system else ""
        return (
            f"[Unit]\nDescription=deskgrid {self.what}\n{network}\n"
            f"[Service]\nExecStart={' '.join(map(_quoted, self.command))}\n"
            f"{_COMMON}{own[0]}{own[1] if self.system else ''}\n"
            f"[Install]\nWantedBy={'multi-user.target' if self.system else 'default.target'}\n"
        )

    def _plist(self) -> str:
        facts = {
            "Label": self.name,
            "ProgramArguments": list(self.command),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": RESTART_S,
            "ExitTimeOut": STOP_S,
            "ProcessType": "Background" if self.what == "worker" else "Standard",
        }
        return plistlib.dumps(facts, sort_keys=False).decode()

    def _task(self) -> str:
        program, *arguments = self.command
        return f"""\
<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo><Description>{self.name}</Description></RegistrationInfo>
  <Triggers><LogonTrigger><Enabled>true</Enabled></LogonTrigger></Triggers>
  <Principals>
    <Principal id="Author">
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure><Interval>PT1M</Interval><Count>255</Count></RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec>
      <Command>{escape(program)}</Command>
      <Arguments>{escape(" ".join(map(_windows_quoted, arguments)))}</Arguments>
    </Exec>
  </Actions>
</Task>
"""


def _quoted(word: str) -> str:
    """A word of a command line in a unit, where %, $ and quotes mean something."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return plain if word and not set(word) & set(" \t'\"\\;") else f'"{plain}"'


def _windows_quoted(word: str) -> str:
    return word if word and " " not in word else f'"{word}"'
