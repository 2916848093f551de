"""What the worker does with the file system, and why a task that can write somewhere cannot turn it against the worker.

The worker may be root, and a task may put a link, a pipe or a second name for a file of somebody else wherever it can
write, at any moment. So below such a place nothing is opened, made, changed, moved or removed by its path.

Every function of `worker/` that does such a thing is listed here with the reason why it is safe. A new one, or another
call in one of these, fails this test until somebody has asked that question and written the answer down.
"""

import ast
from collections.abc import Iterator

from tests.architecture.reading import files, tree

# The names of functions and methods that open, make, change, move, remove or list files. Those that only look at one
# are left out.
TOUCHING = frozenset(
    (
        "open chown fchown lchown chmod fchmod mkdir makedirs rename renames replace unlink rmdir rmtree link symlink "
        "symlink_to hardlink_to copy copy2 copyfile copytree move write_bytes write_text read_bytes read_text touch "
        "truncate utime walk scandir listdir iterdir glob rglob TemporaryDirectory NamedTemporaryFile mkdtemp mkstemp "
        "mkfifo mknod open_shared set_times remove_tree"
    ).split()
)
# What is called by its name alone is a function of ours, if it is called so.
OURS_TOO = frozenset(("link", "copy", "move", "replace"))

BENEATH = "through descriptors, name by name, without following links"
OURS = "in a folder that only the worker's user can write to, and by a name directly in it"
NEW = "in a folder that tasks cannot even enter; what is made there is moved into its place last"
CACHE = "in the cache, which only the worker's user can enter"
TO_TASK = "from the cache to a folder that tasks cannot enter yet"
FOLDERS = "in a folder that belongs to the worker's user, is nobody else's to write to, and cannot be replaced: Rule 2"
TASKS = "in the process of a task, as its user: it can do no more than the task itself"
BECOMING = "a folder for temporary files in one that only root can write to, and pipes of ours"
CLEARING = "as the user of the tasks: it can do no more than they"
ALONE = "on Windows only, where tasks run as the worker's own user"
SHM = "by a name directly in /dev/shm, which is not followed; at worst another piece of that user goes"
GROUPS = "in the control groups of the kernel, which only the worker's user can change"
PROC = "files of the system that nobody can replace"
NO_PATH = "not of a path, but of a time or a plan"
OWNER = "files that the owner of the PC names, or has installed"
HOME = "in the worker's home, which only the worker's user can enter"
ENVIRONMENTS = "in folders that only the worker's user can write to; wheels are unpacked by a program of its own"
INSTALLER = "what wheels contain is checked before; see deskgrid.worker.environments.install"

# By function: what it calls, and why that is safe.
KNOWN = {
    "worker/agent.py:_Agent._watch_windows": ("replace", NO_PATH),
    "worker/agent.py:_made": ("mkdir", OURS),
    "worker/agent.py:_places": ("mkdir", OURS),
    "worker/agent.py:_prepare.prepare_sites": ("chmod", OURS),
    "worker/environments/environments.py:Environments._lookup": ("mkdir", ENVIRONMENTS),
    "worker/environments/environments.py:Environments._make.make": ("chmod", ENVIRONMENTS),
    "worker/environments/environments.py:Environments._new": ("mkdir", ENVIRONMENTS),
    "worker/environments/environments.py:Environments._unpack.unpack": ("mkdir unlink write_text", ENVIRONMENTS),
    "worker/environments/environments.py:_remove": ("remove_tree", ENVIRONMENTS),
    "worker/environments/install.py:_compile": ("mkdir open rename write_bytes", INSTALLER),
    "worker/environments/install.py:_compile_all": ("rmdir walk", INSTALLER),
    "worker/environments/install.py:_extract": ("open", INSTALLER),
    "worker/environments/install.py:_finish": ("chmod utime", INSTALLER),
    "worker/environments/install.py:_link": ("chmod link open", INSTALLER),
    "worker/environments/install.py:_pairs": ("makedirs scandir", INSTALLER),
    "worker/environments/install.py:_put_script": ("open", INSTALLER),
    "worker/environments/install.py:_text": ("open", INSTALLER),
    "worker/environments/install.py:_unpack": ("mkdir", INSTALLER),
    "worker/environments/install.py:_write_script": ("chmod open", INSTALLER),
    "worker/environments/install.py:check": ("glob", INSTALLER),
    "worker/environments/install.py:make": ("walk", INSTALLER),
    "worker/environments/install.py:read_about": ("open", INSTALLER),
    "worker/environments/install.py:unpack": ("mkdir", INSTALLER),
    "worker/environments/installer.py:Installer.let_pass": ("chmod chown", ENVIRONMENTS),
    "worker/environments/installer.py:Installer.own": ("chown", ENVIRONMENTS),
    "worker/environments/interpreters.py:_installed": ("glob listdir", OWNER),
    "worker/environments/interpreters.py:copy_libraries": ("copytree", OURS),
    "worker/environments/store.py:WheelStore._make_room": ("mkdir", ENVIRONMENTS),
    "worker/environments/store.py:WheelStore.__init__": ("mkdir", ENVIRONMENTS),
    "worker/environments/store.py:WheelStore._rows": ("iterdir remove_tree", ENVIRONMENTS),
    "worker/environments/store.py:WheelStore.drop": ("remove_tree rename", ENVIRONMENTS),
    "worker/environments/store.py:WheelStore.use": ("link utime", ENVIRONMENTS),
    "worker/environments/store.py:WheelStore.keep": ("rename", ENVIRONMENTS),
    "worker/files/cache.py:FileCache.__init__": ("chmod mkdir", CACHE),
    "worker/files/cache.py:FileCache._remove": ("open_shared unlink", CACHE),
    "worker/files/cache.py:FileCache._rows": ("scandir", CACHE),
    "worker/files/cache.py:FileCache.begin": ("mkdir open_shared", CACHE),
    "worker/files/cache.py:FileCache.check_room": ("mkdir", CACHE),
    "worker/files/cache.py:FileCache.find": ("unlink utime", CACHE),
    "worker/files/cache.py:FileCache.put_tree": ("mkdir replace unlink write_bytes", CACHE),
    "worker/files/cache.py:FileCache.tree": ("read_bytes utime", CACHE),
    "worker/files/cache.py:Partial.__init__": ("truncate", CACHE),
    "worker/files/cache.py:Partial.finish": ("fchmod replace set_times", CACHE),
    "worker/files/cache.py:link": ("chmod copyfile link", TO_TASK),
    "worker/files/task_folder.py:_fill": ("mkdir", NEW),
    "worker/files/task_folder.py:_measured": ("open", BENEATH),
    "worker/files/task_folder.py:_read.again": ("open", BENEATH),
    "worker/files/task_folder.py:lay_out": ("TemporaryDirectory mkdir rename", OURS),
    "worker/files/task_folder.py:prepare": ("mkdir", OURS),
    "worker/files/task_folder.py:unpack": ("mkdir rename walk", NEW),
    "worker/identities.py:Identities._made_on": ("read_text", HOME),
    "worker/identities.py:Identities.choose": ("glob", HOME),
    "worker/identities.py:Identities.drop": ("unlink", HOME),
    "worker/identities.py:Identities.keep": ("mkdir rename", HOME),
    "worker/identities.py:Identities.why_none": ("glob", HOME),
    "worker/pc/address.py:mac_of": ("read_text", PROC),
    "worker/pc/checks.py:groups": ("read_text", PROC),
    "worker/pc/checks.py:nested": ("read_text", PROC),
    "worker/pc/checks.py:program": ("read_text", "the doctor reads the unit of a service, as whoever calls it"),
    "worker/pc/hardware.py:_amd": ("glob read_text", PROC),
    "worker/owner/helper.py:PresenceHelpers._users": ("listdir", PROC),
    "worker/owner/helper.py:Speaker._workers": ("read_text", PROC),
    "worker/owner/probes.py:Terminals._times": ("listdir", "devices, of which only the times are read"),
    "worker/owner/probes.py:terminals_below": ("listdir read_text", PROC),
    "worker/owner/probes.py:on_battery": ("iterdir read_text", PROC),
    "worker/owner/x11.py:_cookie": ("read_bytes", "the file of whoever runs the worker, who names it"),
    "worker/pc/this_pc.py:ProcessorTimes._times": ("iterdir read_text", PROC),
    "worker/pc/this_pc.py:ProcessorTimes.read": ("read_text", PROC),
    "worker/pc/hardware.py:memory_of_this_pc": ("read_text", PROC),
    "worker/pc/shared_memory.py:Leftovers._used": ("glob", PROC),
    "worker/pc/shared_memory.py:Leftovers.present": ("scandir", SHM),
    "worker/run/accounts.py:UserAccount.let_enter": ("chmod chown", OURS),
    "worker/run/accounts.py:UserAccount.let_pass": ("chmod chown", OURS),
    "worker/run/accounts.py:UserAccount.let_read": ("chmod chown", OURS),
    "worker/run/accounts.py:UserAccount.own": ("chown", OURS),
    "worker/run/accounts.py:reserved": ("mkdir open", OURS),
    "worker/run/beneath.py:_emptied": ("scandir unlink", BENEATH),
    "worker/run/beneath.py:_open": ("open", BENEATH),
    "worker/run/beneath.py:_remove": ("open rmdir unlink", BENEATH),
    "worker/run/beneath.py:_rename": ("rename", BENEATH),
    "worker/run/beneath.py:_step": ("open", BENEATH),
    "worker/run/beneath.py:_unlock": ("chmod", BENEATH),
    "worker/run/beneath.py:hand_over": ("fchown", BENEATH),
    "worker/run/beneath.py:move_away": ("open rename", BENEATH),
    "worker/run/beneath.py:names_in": ("scandir", BENEATH),
    "worker/run/beneath.py:removal": ("chmod open remove_tree unlink", BENEATH),
    "worker/run/cgroup.py:ControlGroup.overran": ("read_text", GROUPS),
    "worker/run/cgroup.py:ControlGroup.remove": ("rmdir", GROUPS),
    "worker/run/cgroup.py:Groups.__init__": ("glob rmdir", GROUPS),
    "worker/run/cgroup.py:Groups.new": ("mkdir rmdir", GROUPS),
    "worker/run/cgroup.py:_divided": ("mkdir rmdir", GROUPS),
    "worker/run/cgroup.py:own_group": ("read_text", GROUPS),
    "worker/run/cgroup.py:_write": ("write_text", GROUPS),
    "worker/run/cgroup.py:find_groups": ("read_text", GROUPS),
    "worker/run/checkpoint_files.py:CheckpointFiles._complete": ("replace", OURS),
    "worker/run/checkpoint_files.py:CheckpointFiles._copy": ("open unlink", OURS),
    "worker/run/checkpoint_files.py:CheckpointFiles._drop": ("unlink", OURS),
    "worker/run/checkpoint_files.py:CheckpointFiles._read": ("open", OURS),
    "worker/run/checkpoint_files.py:CheckpointFiles.drop": ("unlink", OURS),
    "worker/run/checkpoint_files.py:CheckpointFiles.take": ("mkdir", OURS),
    "worker/run/checkpoint_files.py:CheckpointFiles.write": ("mkdir open unlink", OURS),
    "worker/run/child.py:Output.__init__": ("open", TASKS),
    "worker/run/child.py:Child._piece": ("open", TASKS),
    "worker/run/child.py:Child._tidy": ("open", TASKS),
    "worker/run/child.py:Child._write_large": ("open unlink", TASKS),
    "worker/run/child.py:Child.serve": ("open", TASKS),
    "worker/run/child.py:Command._go_on": ("rglob", TASKS),
    "worker/run/child.py:Function._call": ("open", TASKS),
    "worker/run/child.py:TaskFiles._room": ("makedirs", TASKS),
    "worker/run/child.py:TaskFiles.end": ("rmdir rmtree", TASKS),
    "worker/run/child.py:TaskFiles.folder": ("makedirs", TASKS),
    "worker/run/child.py:_is_empty": ("listdir", TASKS),
    "worker/run/child.py:_link_all": ("makedirs scandir", TASKS),
    "worker/run/child.py:TaskFiles.marked": ("open", TASKS),
    "worker/run/child.py:_fresh_folder": ("mkdir rmtree", TASKS),
    "worker/run/child.py:_link": ("copy2 link", TASKS),
    "worker/run/child.py:_replace": ("chmod mkdir open unlink utime", TASKS),
    "worker/run/child.py:die_first": ("open", TASKS),
    "worker/run/child.py:pack_files": ("glob open rglob", TASKS),
    "worker/run/child.py:unpack_files": ("open", TASKS),
    "worker/run/clearing.py:_left": ("scandir", CLEARING),
    "worker/run/clearing.py:_remove_ipc": ("read_bytes", PROC),
    "worker/run/clearing.py:_runs": ("glob read_bytes", PROC),
    "worker/run/executor.py:Executor._look_after_folder": ("touch", FOLDERS),
    "worker/run/executor.py:Executor._make_tasks_folder": ("mkdir", OURS),
    "worker/run/folders.py:WorkerFolder.renew": ("mkdir open", FOLDERS),
    "worker/run/folders.py:WorkerFolder.touch": ("utime walk", FOLDERS),
    "worker/run/folders.py:_kept_from_cleaning": ("open", FOLDERS),
    "worker/run/folders.py:_new_folder": ("mkdtemp open rmdir unlink", FOLDERS),
    "worker/run/folders.py:_remove": ("iterdir rmdir unlink", FOLDERS),
    "worker/run/folders.py:has_locks": ("NamedTemporaryFile", FOLDERS),
    "worker/run/folders.py:remove_abandoned": ("glob open", FOLDERS),
    "worker/run/nursery.py:Nursery.__init__": ("open", OURS),
    "worker/run/nursery.py:Nursery._trouble": ("open", OURS),
    "worker/run/nursery.py:Nursery.close": ("unlink", OURS),
    "worker/run/pool.py:Accounts.__init__": ("chmod", OURS),
    "worker/run/pool.py:Accounts._clear_one": ("iterdir", OURS),
    "worker/run/pool.py:Accounts.give": ("TemporaryDirectory copytree rename", OURS),
    "worker/run/pool.py:Accounts.renew": ("chmod", OURS),
    "worker/run/pool.py:_link": ("copyfile link", OURS),
    "worker/run/pool.py:_made": ("mkdir", OURS),
    "worker/run/pool.py:close_folder": ("chmod chown", OURS),
    "worker/run/output.py:_opened_again": ("open", PROC),
    "worker/run/process.py:Process.close": ("unlink", OURS),
    "worker/run/process.py:Process.tell_times": ("chmod open write_bytes", OURS),
    "worker/run/scope.py:Surroundings.note": ("open", TASKS),
    "worker/run/scope.py:Temporary.__init__": ("open", TASKS),
    "worker/run/scope.py:Temporary.clean": ("scandir utime", TASKS),
    "worker/run/scope.py:_children_of": ("listdir", TASKS),
    "worker/run/scope.py:_remove": ("unlink", TASKS),
    "worker/run/scope.py:_remove_folder": ("chmod rmtree walk", TASKS),
    "worker/run/scope.py:_is_stopped": ("open", TASKS),
    "worker/run/scope.py:_is_tracker": ("open", TASKS),
    "worker/run/scope.py:_read_kernel_state": ("open", TASKS),
    "worker/run/scope.py:become": ("chown fchown", BECOMING),
    "worker/run/scope.py:children": ("listdir open", TASKS),
    "worker/run/scope.py:mounts": ("open", PROC),
    "worker/run/scope.py:parent_of": ("open", TASKS),
    "worker/run/scope.py:with_descendants": ("listdir open", TASKS),
    "worker/run/script.py:Script.__spec__": ("makedirs open", TASKS),
    "worker/run/script.py:is_compiled": ("listdir", TASKS),
    "worker/run/shared.py:noted": ("open", SHM),
    "worker/run/shared.py:remove": ("rmtree unlink", SHM),
    "worker/run/shared.py:remove_unused": ("listdir", SHM),
    "worker/run/shared.py:used": ("listdir open", SHM),
    "worker/run/shared.py:watch.note": ("open", SHM),
    "worker/run/spawning.py:Spawner._process": ("touch", OURS),
    "worker/run/spawning.py:Spawner.spawn": ("mkdir unlink", OURS),
    "worker/run/templates.py:_fill": ("mkdir write_bytes", OURS),
    "worker/run/templates.py:_rename": ("rename", OURS),
    "worker/run/templates.py:_unpacked": ("TemporaryDirectory mkdir", OURS),
    "worker/windows/alarm.py:Alarm.replace": ("replace", NO_PATH),
    "worker/windows/alarm.py:_WatchedBoundary.__init__": ("replace", NO_PATH),
    "worker/windows/uptime.py:read_cycle": ("read_text", OWNER),
    "worker/windows/uptime.py:read_windows": ("read_text", OWNER),
}


def _name_of(call: ast.Call) -> str:
    """The name of what is called, if that touches files; else ""."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id if function.id in TOUCHING - OURS_TOO else ""
    # A text's `replace` has two arguments, a path's has one.
    if not isinstance(function, ast.Attribute) or (function.attr == "replace" and len(call.args) != 1):
        return ""
    return function.attr if function.attr in TOUCHING else ""


def _calls(node: ast.AST, inside: str = "") -> Iterator[tuple[str, str]]:
    """Yield the functions in which files are touched, each with the name of what it calls."""
    for each in ast.iter_child_nodes(node):
        name = inside
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            name = f"{inside}.{each.name}".lstrip(".")
        if isinstance(each, ast.Call) and (called := _name_of(each)):
            yield name, called
        yield from _calls(each, name)


def touching() -> dict[str, str]:
    """The functions of `worker/` that touch files, each with what it calls."""
    found: dict[str, set[str]] = {}
    for file in files("worker/"):
        for function, called in _calls(tree(file)):
            found.setdefault(f"{file}:{function}", set()).add(called)
    return {place: " ".join(sorted(calls)) for place, calls in found.items()}


def test_every_function_of_the_worker_that_touches_files_is_known_to_be_safe() -> None:
    known = {place: calls for place, (calls, _) in KNOWN.items()}
    assert touching() == known, "ask whether a task can write there, and list it with the reason why it is safe"


def test_what_is_called_by_any_name_is_found() -> None:
    lines = "class A:", " def f(self):", "  def g(): open(x)", "  self.path.replace(y), text.replace(a, b), os.chown(z)"
    source = "\n".join(lines)
    assert set(_calls(ast.parse(source))) == {("A.f.g", "open"), ("A.f", "replace"), ("A.f", "chown")}
