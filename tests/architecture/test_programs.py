"""Whoever waits for the program of another says for how long: one that hangs must not hold us up for ever."""

import ast

from tests.architecture.reading import files, tree

# What waits for a program without a limit, or hides that it does.
ENDLESS = frozenset(("check_call", "check_output", "getoutput", "getstatusoutput", "popen", "system"))


def test_every_program_that_is_run_has_a_limit_of_time() -> None:
    wrong, runs = [], 0
    for file in files("broker/", "deskgrid/", "scheduler/", "sleepbench/", "worker/"):
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = ast.unparse(node.func)
                runs += called == "subprocess.run"
                limited = called != "subprocess.run" or any(each.arg == "timeout" for each in node.keywords)
                if not limited or (called.startswith(("subprocess.", "os.")) and node.func.attr in ENDLESS):
                    wrong.append(f"{file}:{node.lineno}: {called}")
    assert wrong == []
    assert runs >= 5
