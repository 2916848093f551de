"""What the functions of a script find in a task: `__main__`, with what is looked for there by its name.

Each test runs a script, which makes the template and the payloads as a client does, and then its tasks.
"""

import pickle
import textwrap
from typing import Any

import msgpack
import pytest

from deskgrid.errors import RemoteError
from deskgrid.raised import put_together
from tests.executor.rig import Rig, call, error, python_template, value
from tests.executor.scripts import SCRIPT, SEND, Scripts


def test_what_is_pickled_by_name_in_a_task_is_found(scripts: Scripts) -> None:
    f = """
def f(x):
    kept = pickle.loads(pickle.dumps((Row(x), Status.OK, Point(1, 2), square, OddError, f)))
    return kept[0].more(), kept[1] is Status.OK, kept[2], kept[3] is square, kept[4] is OddError, kept[5] is f
"""
    assert scripts.values(f.replace("kept[2]", "tuple(kept[2])")) == [(3, True, (1, 2), True, True, True)]


def test_main_is_a_module_with_the_globals_of_the_script(scripts: Scripts) -> None:
    f = """
def f(x):
    global FACTOR
    FACTOR += 1
    main = sys.modules["__main__"]
    return repr(main), main.FACTOR, helper(1), __name__, main.f is f, vars(main) is globals()
"""
    assert scripts.values(f, "[1, 2]") == [("<module '__main__'>", n, n, "__main__", True, True) for n in (4, 5)]


def test_two_templates_have_a_main_each(scripts: Scripts) -> None:
    one, (payload,) = scripts.sent("def f(x):\n    return FACTOR, sys.modules['__main__'].FACTOR")
    two, _ = scripts.sent("FACTOR = 7\ndef f(x):\n    return FACTOR, sys.modules['__main__'].FACTOR")
    digests = [scripts.rig.know(template) for template in (one, two, one)]
    assert [value(scripts.rig.run(digest, payload)[0]) for digest in digests] == [(3, 3), (7, 7), (3, 3)]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_other_processes_find_the_functions_of_the_script(scripts: Scripts, method: str) -> None:
    f = f"""
import os, tempfile
unpicklable = sys.stdin
def f(x):
    os.chdir(tempfile.gettempdir())  # the path of a socket must not be long, as that of a test's folder is
    multiprocessing.current_process()._config["tempdir"] = "."
    context = multiprocessing.get_context({method!r})
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        rows = list(pool.map(row, range(3)))
        squares = list(pool.map(square, range(4)))
    with context.Pool(1) as pool:
        return rows == [Row(0), Row(1), Row(2)], squares, pool.map(square, [5]), type(rows[0]) is Row
"""
    assert scripts.values(f) == [(True, [0, 3, 12, 27], [75], True)]


# Programs that make a namespace: each leaves the function ``f`` in ``space``, and does not know its other names.
CODE = """
CODE = '''
import functools, multiprocessing, os, pickle, tempfile
from concurrent.futures import ProcessPoolExecutor
class Item:
    def __init__(self, n):
        self.n = n
MORE = 1
nameless = functools.cache(functools.partial(int))
def square(n):
    return Item(n * nameless(n) + MORE)
def f(method):
    os.chdir(tempfile.gettempdir())  # see above
    multiprocessing.current_process()._config["tempdir"] = "."
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        items = list(pool.map(square, [1, 2]))
    return [item.n for item in items], type(items[0]) is Item, pickle.loads(pickle.dumps(square)) is square
'''
"""
HAND_MADE = {
    "exec as the script": "space = {'__name__': '__main__'}\nexec(CODE, space)",
    "exec under another name": "space = {'__name__': 'made'}\nexec(CODE, space)",
    "a loaded module": """
import types
made = sys.modules["made"] = types.ModuleType("made")
exec(CODE, space := vars(made))
""",
    "runpy": """
import pathlib, runpy
other = pathlib.Path(__file__).with_name("other.py")
other.write_text(CODE)
space = runpy.run_path(str(other))
""",
}


@pytest.mark.parametrize("name", HAND_MADE)
def test_other_processes_find_the_functions_of_a_namespace_made_by_hand(scripts: Scripts, name: str) -> None:
    script, methods = f"{CODE}\n{HAND_MADE[name]}\nf = space['f']", ["fork", "spawn", "forkserver"]
    assert scripts.values(script, repr(methods)) == [([2, 5], True, True)] * len(methods)


def test_a_logger_travels_as_its_name(scripts: Scripts) -> None:
    f = """
import logging
log = logging.getLogger("mine")
log.setLevel(logging.INFO)
log.addHandler(logging.StreamHandler())
log.addFilter(str)
def f(given):
    here = logging.getLogger("mine")
    return given is log is here, (here.level, here.handlers, here.filters)
"""
    assert scripts.values(f, "[log]") == [(True, (0, [], []))]


def test_two_templates_have_a_module_made_by_hand_each(scripts: Scripts) -> None:
    code = "import pickle\nn = {0}\ndef g():\n    return n\ndef f(x):\n    return pickle.loads(pickle.dumps(g))()"
    sent = [scripts.sent(f"exec({code.format(n)!r}, space := {{'__name__': 'made'}})\nf = space['f']") for n in (1, 2)]
    digests = [scripts.rig.know(template) for template, _ in (*sent, sent[0])]
    assert [value(scripts.rig.run(digest, sent[0][1][0])[0]) for digest in digests] == [1, 2, 1]


def test_a_result_of_a_class_of_a_module_made_by_hand_brings_its_class(scripts: Scripts) -> None:
    code = "class Item:\n    n = 3\ndef f(x):\n    return Item()"
    (result,) = scripts.values(f"exec({code!r}, space := {{'__name__': 'made'}})\nf = space['f']")
    assert (type(result).__name__, result.n) == ("Item", 3)


def test_a_namespace_made_by_hand_whose_name_is_no_text_works_without_a_name(scripts: Scripts) -> None:
    code = "def g(x):\n    return x + 1\ndef f(x):\n    return g(x)"
    for name in (5, "..", "", None):
        assert scripts.values(f"exec({code!r}, space := {{'__name__': {name!r}}})\nf = space['f']", "[1]") == [2]


def test_a_script_may_have_a_name_that_sounds_like_one_of_ours(scripts: Scripts) -> None:
    code = "def g(x):\n    return x\ndef f(x):\n    return g(x), names()"
    script = f"""
__modules__ = ["a", "b"]
def names():
    return __modules__ if n else None
exec({code!r}, space := {{"__name__": "made", "names": names}})
f = space["f"]
"""
    sent = [scripts.sent(f"{script}\nn = {n}") for n in (1, 2)]
    digests = [scripts.rig.know(template) for template, _ in (*sent, sent[0])]
    assert [value(scripts.rig.run(digest, sent[0][1][0])[0])[1] for digest in digests] == [["a", "b"]] * 3


def test_the_processs_own_program_has_another_name(scripts: Scripts) -> None:
    f = "def f(x):\n    return '_deskgrid_run.start' in sys.modules, hasattr(sys.modules['__main__'], 'PACKAGE')"
    assert scripts.values(f) == [(True, False)]


DECORATED = {
    "cache": """
@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
def f(x):
    return fib(30)
""",
    "the function itself": """
@functools.lru_cache(maxsize=7)
def f(x):
    return f.cache_parameters()["maxsize"], helper(x)
""",
    "singledispatch": """
@functools.singledispatch
def g(x):
    return "other"
@g.register
def _(x: int):
    return helper(x)
def f(x):
    return g(x), g("")
""",
    "methods": """
class C:
    @functools.cached_property
    def p(self):
        return FACTOR
    @functools.lru_cache
    def m(self, x):
        return helper(x)
    @functools.singledispatchmethod
    def s(self, x):
        return "other"
    @s.register
    def _(self, x: int):
        return helper(x)
def f(x):
    one = C()
    return one.p, one.p, one.m(x), one.s(x), one.s("")
""",
}
FROM_DECORATED = {
    "cache": 832040,
    "the function itself": (7, 3),
    "singledispatch": (3, "other"),
    "methods": (3, 3, 3, 3, "other"),
}


@pytest.mark.parametrize("name", DECORATED)
def test_what_decorators_of_functools_make_travels(scripts: Scripts, name: str) -> None:
    assert scripts.values(DECORATED[name]) == [FROM_DECORATED[name]]


def test_the_class_of_items_travels_once(scripts: Scripts) -> None:
    template, payloads = scripts.sent("def f(x):\n    return x.more()", "[Row(n) for n in range(100)]")
    assert max(map(len, payloads)) < 100
    ended = scripts.rig.run(scripts.rig.know(template), *payloads)
    assert [value(one) for one in ended] == [3 * n for n in range(100)]


def test_a_class_that_changes_between_items_travels_with_them(scripts: Scripts) -> None:
    more = """
class Items(list):
    def __iter__(self):
        yield Row(1)
        global FACTOR
        FACTOR = 5
        yield Row(2)
def f(x):
    return x.more()
"""
    assert scripts.values(more, "Items()") == [3, 10]


def test_a_traceback_shows_the_lines_of_the_script(scripts: Scripts) -> None:
    template, payloads = scripts.sent("def f(x):\n    # a comment\n    return helper(None)  # here")
    where = str(scripts.path)
    scripts.path.unlink()
    (ended,) = scripts.rig.run(scripts.rig.know(template), *payloads)
    trace = error(ended)[2]
    assert f'File "{where}", line ' in trace
    assert "return helper(None)  # here" in trace
    assert "return x * FACTOR" in trace
    (lines,) = msgpack.unpackb(template)["lines"].values()
    assert b"def row" not in lines, "only what travels is brought"


def test_an_error_of_the_script_travels_with_what_it_is(scripts: Scripts) -> None:
    f = """
class Built(ValueError):
    def __init__(self, step):
        super().__init__(f"at {step}")
        self.step = step
def f(x):
    raise Built(7)
"""
    (ended,) = scripts.ended(f)
    again: Any = put_together(error(ended)[3], RemoteError, "")
    assert (type(again).__name__, str(again), again.step, isinstance(again, ValueError)) == ("Built", "at 7", 7, True)


def test_a_function_that_unpickles_finds_the_other_classes_of_the_script(scripts: Scripts) -> None:
    more = """
class Broken:
    there = sys.stdin
def f(x):
    return pickle.loads(x).a
"""
    assert scripts.values(more, "[pickle.dumps(Row(5))]") == [5]


def test_a_name_of_the_script_that_did_not_travel_is_explained(scripts: Scripts) -> None:
    (ended,) = scripts.ended("def f(x):\n    return sys.modules['__main__'].Row")
    assert "only what the function refers to travels" in error(ended)[2]


def test_a_result_that_cannot_be_pickled_says_what_to_return(rig: Rig) -> None:
    assert error(rig.call(lambda: (x for x in [1])))[1].endswith("return a list, as in list(...)")
    assert error(rig.call(lambda: __import__("threading").Lock()))[1].endswith(
        "such as numbers, texts, lists or arrays"
    )


def test_a_module_that_the_version_of_a_library_here_lacks_is_explained(rig: Rig) -> None:
    message = error(rig.call(lambda: __import__("msgpack.nowhere")))[1]
    assert f"msgpack {msgpack.__version__} of " in message or "msgpack 1" in message
    assert "another version of msgpack" in message


def test_a_path_of_another_system_is_explained(rig: Rig) -> None:
    def f() -> None:
        raise NotImplementedError("cannot instantiate 'WindowsPath' on your system")

    assert "pass str(path)" in error(rig.call(f))[2]


def test_a_module_that_is_compiled_for_another_system_is_named(rig: Rig) -> None:
    (ended,) = rig.run(rig.know(python_template(lambda: __import__("fast"), {"fast.cp311-win_arm64.pyd": b""})), call())
    assert error(ended)[1].startswith("module 'fast' is compiled, and not for ")


USED = """
@functools.cache
def cached(x):
    return helper(x)

def f(given):
    found = pickle.loads(pickle.dumps(Row(1))) if "main" in __name__ else Row(1)
    return cached(given.a), square(2), found == Row(1), isinstance(given, Row), given.more()
"""
ITEMS = "[Row(2)]"


@pytest.mark.parametrize("name", ["<run_path>", "chosen", "__main__"])
def test_a_script_that_another_program_runs_works_under_any_name(scripts: Scripts, name: str) -> None:
    scripts.launcher = f"import runpy, sys; runpy.run_path(sys.argv[1], run_name={name!r})"
    assert scripts.values(USED, ITEMS) == [(6, 12, True, True, 6)]


def test_a_script_works_in_a_process_that_multiprocessing_has_started_anew(scripts: Scripts) -> None:
    body = textwrap.indent(f"ITEMS = {ITEMS}\n{SEND}", "    ")
    start = 'if __name__ == "__main__":\n    multiprocessing.get_context("spawn").Process(target=send).start()\n'
    template, payloads = pickle.loads(scripts.printed(f"{SCRIPT}\n{USED}\ndef send():\n{body}\n{start}"))
    (ended,) = scripts.rig.run(scripts.rig.know(template), *payloads)
    assert value(ended) == (6, 12, True, True, 6)


def test_what_a_module_defines_that_only_the_program_has_travels(scripts: Scripts) -> None:
    made = """
import types
made = sys.modules["made"] = types.ModuleType("made")
exec("import functools\\n@functools.cache\\ndef twice(x):\\n    return 2 * x\\nclass Row: a = 4", vars(made))
from made import twice

def f(row):
    return twice(3), made.twice(row.a), type(row) is made.Row
"""
    assert scripts.values(made, "[made.Row()]") == [(6, 8, True)]
    assert scripts.values(f"{made}\nf = twice", "[1, 2]") == [2, 4]
