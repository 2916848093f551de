"""What a script defines is the same in a task, in its result, and in processes that a task starts.

Each script has ``f``, which a task calls, and ``look``, which says in plain values what it sees of that. It has to see
the same at home, in the task, in a program that reads the result, and in another one that has nothing of the script.
"""

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import pytest

from deskgrid.client.by_value import pickle_by_value
from deskgrid.rebuilt import dumps
from deskgrid.worker.run.child import _pickled_state
from deskgrid.worker.run.script import Script
from tests.executor.rig import value
from tests.executor.scripts import SCRIPT, Scripts

TASK = """
def seen_in_task(x, seen=f):
    made = seen(x)
    return look(made), made, look
f = seen_in_task
"""
# The program that reads the results has the script's own ``look``; another one has that which comes with them.
READ = """
results = [pickle.loads(each) for each in pickle.load(sys.stdin.buffer)]
seen = [(look if OWN else each[2])(each[1]) for each in results]
sys.stdout.buffer.write(pickle.dumps((seen, [look(f(x)) for x in ITEMS] if OWN else None)))
"""


class Case(NamedTuple):
    """``items``: of the script."""

    code: str
    items: str = "[1]"
    python: tuple[int, int] = (3, 11)


CASES = {
    "flags have their members, and combinations of these": Case(
        """
class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    BOTH = READ | WRITE
    ALL = 7
def f(x):
    return x
def look(x):
    whole = Access.READ | Access.WRITE
    return x is Access.READ, whole is Access.BOTH, list(Access), repr(x | Access.ALL), x in Access.BOTH, repr(~x)
def look(x, look=look):
    return [str(each) for each in look(x)]
""",
        "[Access.READ, Access.BOTH]",
    ),
    "combinations of flags without a name are the same": Case(
        """
class Access(enum.IntFlag):
    READ = 1
    WRITE = 2
    RUN = 16
def f(x):
    return x
def look(x):
    return x is (Access.READ | Access.RUN), int(x), repr(x), repr(x & Access.READ), x | 32 == 49, len(Access)
""",
        "[Access.READ | Access.RUN]",
    ),
    "an enum may have a __new__ of its own": Case(
        """
class Planet(enum.Enum):
    EARTH = 5.9, "blue"
    MARS = 0.6, "red"
    def __new__(cls, mass, colour):
        member = object.__new__(cls)
        member._value_ = len(cls.__members__) + 1
        member.mass, member.colour = mass, colour
        return member
def f(x):
    return x
def look(x):
    return x is Planet.MARS, x.value, x.mass, x.colour, Planet(1).name, [each.name for each in Planet]
""",
        "[Planet.MARS]",
    ),
    "an enum has its methods: _missing_, auto(), aliases": Case(
        """
class Level(enum.Enum):
    def _generate_next_value_(name, start, count, last):
        return name.lower()
    LOW = enum.auto()
    HIGH = enum.auto()
    LITTLE = LOW
    @classmethod
    def _missing_(cls, value):
        return cls.HIGH
    def __str__(self):
        return "level " + self.value
def f(x):
    return x
def look(x):
    return x is Level.LOW, Level.LITTLE is x, Level("what?") is Level.HIGH, str(x), list(Level.__members__), x.name
""",
        "[Level.LITTLE]",
    ),
    "an enum may be text, a number or a date": Case(
        """
import datetime
class Colour(str, enum.Enum):
    RED = "r"
    BLUE = "b"
class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2
class Word(enum.StrEnum):
    YES = enum.auto()
class Day(datetime.date, enum.Enum):
    FIRST = 2026, 1, 1
class Pair(tuple, enum.Enum):
    ONE = 1, 2
class Mixed:
    def twice(self):
        return self.value * 2
class Number(Mixed, float, enum.Enum):
    HALF = 0.5
def f(x):
    return x, Colour.RED, Size.LARGE, Word.YES, Day.FIRST, Pair.ONE, Number.HALF
def look(x):
    item, colour, size, word, day, pair, number = x
    same = [item is Colour.BLUE, colour is Colour("r"), size is Size(2), word is Word.YES, day is Day.FIRST]
    return same, colour == "r", size + 1, word.upper(), day.year, pair[1], pair is Pair.ONE, number.twice(), number + 1
""",
        "[Colour.BLUE]",
    ),
    "a data class may be mixed into an enum": Case(
        """
@dataclasses.dataclass(frozen=True)
class Shape:
    sides: int
class Known(Shape, enum.Enum):
    TRIANGLE = 3
    SQUARE = 4
def f(x):
    return x
def look(x):
    return x is Known.SQUARE, x.sides, [each.sides for each in Known]
""",
        "[Known.SQUARE]",
    ),
    "members of an enum are keys, and refer to one another": Case(
        """
class Turn(enum.Enum):
    LEFT = 1
    RIGHT = 2
    @property
    def other(self):
        return OTHER[self]
    def again(self, default=None):
        return DEFAULT if default is None else default
OTHER = {Turn.LEFT: Turn.RIGHT, Turn.RIGHT: Turn.LEFT}
DEFAULT = Turn.LEFT
Turn.BEST = {Turn.RIGHT}
class Way(enum.Enum):
    THERE = Turn.LEFT
def f(x):
    return x
def look(x):
    return x.other is Turn.RIGHT, x.again() is x, Turn.RIGHT in Turn.BEST, Way(Turn.LEFT) is Way.THERE
""",
        "[Turn.LEFT]",
    ),
    "a class in a class is found": Case(
        """
class Outer:
    factor = 2
    class Inner:
        def __init__(self, x):
            self.x = x
        def more(self):
            return Outer.factor * self.x
        class Deep(enum.Enum):
            ONE = 1
    class Row(collections.namedtuple("Row", "a")):
        pass
def f(x):
    return pickle.loads(pickle.dumps(x))
def look(x):
    inner, deep, row = x
    same = type(inner) is Outer.Inner, deep is Outer.Inner.Deep.ONE, type(row) is Outer.Row
    return same, inner.more(), row.a, type(inner).__qualname__
""",
        "[(Outer.Inner(5), Outer.Inner.Deep.ONE, Outer.Row(3))]",
    ),
    "classes with slots have them": Case(
        """
class Base:
    __slots__ = "a",
class Point(Base):
    __slots__ = ("b", "__hidden", "__weakref__")
    def __init__(self, a, b):
        self.a, self.b, self.__hidden = a, b, 3
    def hidden(self):
        return self.__hidden
class One:
    __slots__ = "only"
class Told:
    __slots__ = {"a": "what it is"}
class Loose(Base):
    pass
@dataclasses.dataclass(slots=True, frozen=True, order=True)
class Row:
    a: int
    b: list = dataclasses.field(default_factory=list)
def f(x):
    return x
def look(x):
    point, row = x
    try:
        point.c = 1
        free = True
    except AttributeError:
        free = False
    one, loose = One(), Loose()
    one.only = loose.other = 1
    slots = Point.__slots__, One.__slots__, list(Told.__slots__)
    return point.a, point.b, point.hidden(), free, row == Row(1), hash, slots, vars(loose), Row.__slots__, repr(row)
def look(x, look=look):
    return [each for each in look(x) if each is not hash]
""",
        "[(Point(1, 2), Row(1))]",
    ),
    "named tuples, typed dicts and protocols are what they were": Case(
        """
import typing
class Row(typing.NamedTuple):
    a: int
    b: str = "b"
    def both(self):
        return f"{self.a}{self.b}"
class Options(typing.TypedDict, total=False):
    a: typing.Required[int]
    b: str
@typing.runtime_checkable
class Sized(typing.Protocol):
    def size(self) -> int: ...
class Box:
    def size(self):
        return 5
def f(x):
    return x, Options(a=1), Box()
def look(x):
    row, options, box = x
    keys = sorted(Options.__required_keys__), sorted(Options.__optional_keys__), Options.__total__
    sized = isinstance(box, Sized), isinstance(1, Sized)
    return row == Row(3), row.both(), Row._fields, row._replace(a=4), options, keys, sized
def look(x, look=look):
    return [tuple(each) if isinstance(each, tuple) else each for each in look(x)]
""",
        "[Row(3)]",
    ),
    "an abstract class is abstract, and knows its registered classes": Case(
        """
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
    @property
    @abc.abstractmethod
    def name(self): ...
class Square(Shape):
    name = "square"
    def area(self):
        return 4
@Shape.register
class Other:
    pass
def f(x):
    return x
def look(x):
    try:
        Shape()
        abstract = False
    except TypeError:
        abstract = True
    known = isinstance(x, Shape), issubclass(Other, Shape), isinstance(1, Shape)
    return x.area(), abstract, known, sorted(Shape.__abstractmethods__)
""",
        "[Square()]",
    ),
    "an attribute that equals that of the base is there": Case(
        """
class Base:
    limit = None
    def __eq__(self, other):
        return type(self) is type(other)
    __hash__ = None
class Row(Base):
    limit = None
    __eq__ = Base.__eq__
    __hash__ = None
def f(x):
    return x
def look(x):
    old, Base.limit = Base.limit, 7
    try:
        return x.limit, "limit" in vars(Row), "__eq__" in vars(Row), x == Row(), Row.__hash__
    finally:
        Base.limit = old
""",
        "[Row()]",
    ),
    "members are in the order of the script": Case(
        """
class Form:
    zip = "z"
    name = "n"
    def check(self): ...
    city = "c"
    class Meta: ...
    age = 5
def f(x):
    return Form()
def look(x):
    return [name for name in vars(type(x)) if not name.startswith("__")]
""",
    ),
    "a base is not told of its subclass again": Case(
        """
class Plugin:
    known = []
    def __init_subclass__(cls, /, key, **more):
        super().__init_subclass__(**more)
        cls.key = key
        Plugin.known.append(key)
class One(Plugin, key="one"):
    pass
class Two(One, key="two"):
    __slots__ = ()
def f(x):
    return x
def look(x):
    return x.key, One.key, Plugin.known, type(x).__mro__[1] is One
""",
        "[Two()]",
    ),
    "a metaclass does not run again": Case(
        """
class Meta(type):
    made = []
    def __prepare__(name, bases, **more):
        return {"prepared": 1}
    def __new__(meta, name, bases, space, *, table):
        space["table"] = table
        Meta.made.append(name)
        return super().__new__(meta, name, bases, space)
    def __init__(cls, name, bases, space, *, table):
        super().__init__(name, bases, space)
    def __setattr__(cls, name, value):
        raise AttributeError("cannot be set")
    @property
    def title(cls):
        return "the " + cls.table
    def __eq__(cls, other):
        return cls is other
    __hash__ = type.__hash__
class Row(metaclass=Meta, table="rows"):
    title = "its own"
def f(x):
    return x
def look(x):
    return type(x).table, type(x).prepared, Row.title, x.title, Meta.made, type(type(x)) is Meta
""",
        "[Row()]",
    ),
    "a descriptor keeps the name that it was told": Case(
        """
class Field:
    told = 0
    def __set_name__(self, owner, name):
        self.name, self.owner = name, owner
        Field.told += 1
    def __get__(self, one, kind=None):
        return self if one is None else (self.name, self.owner is kind)
class Row:
    a = Field()
    b = Field()
    c = a
    @functools.cached_property
    def slow(self):
        return [5]
def f(x):
    return x
def look(x):
    return x.a, x.b, x.c, Row.a is Row.c, Field.told, x.slow is x.slow, Row.slow.attrname
""",
        "[Row()]",
    ),
    "type variables and the like are what they were": Case(
        """
import typing
T = typing.TypeVar("T", bound="Row")
P = typing.ParamSpec("P")
Ts = typing.TypeVarTuple("Ts")
UserId = typing.NewType("UserId", int)
class Row: ...
class Box(typing.Generic[T]):
    def get(self) -> "T": ...
class Call(typing.Generic[P, typing.Unpack[Ts]]): ...
def inner(*args: P.args, **kwargs: P.kwargs) -> UserId: ...
def f(x):
    return x, UserId(x), Box[Row]()
def look(x):
    seen = UserId.__name__, UserId.__supertype__ is int, T.__name__, T.__bound__ is not None, P.__name__, Ts.__name__
    box = type(x[2]).__parameters__ == (T,), Box[int].__args__ == (int,), Call.__parameters__ == (P, Ts)
    args = inner.__annotations__
    return seen, box, args["args"].__origin__ is P, args["return"] is UserId, x[1]
""",
    ),
    "generics of Python 3.12 are what they were": Case(
        """
import typing
type Json = dict[str, Json] | list[Json] | None
type Tree[T] = T | list[Tree[T]]
type Pair[T: (int, str)] = tuple[T, T]
class Box[T: int]:
    def __init__(self, x: T):
        self.x = x
    def put[U](self, x: U) -> Pair[U]: ...
def walk(x: Json, y: Tree[int]) -> Pair[int]: ...
def f(x):
    return x
def look(x):
    box, put = type(x), type(x).put
    seen = [each.__name__ for each in (*box.__type_params__, *put.__type_params__, *Pair.__type_params__)]
    same = box.__parameters__ == box.__type_params__, box.__type_params__[0].__bound__ is int, Pair[int].__value__
    json, tree, pair = walk.__annotations__.values()
    aliases = tree.__value__.__args__[0] is tree.__type_params__[0], json.__value__.__args__[1].__args__[0] is json
    more = pair.__origin__ is Pair, Pair.__type_params__[0].__constraints__ == (int, str), str(Json), json is Json
    return seen, x.x, same[:2], str(same[2]), aliases, more, isinstance(x, Box)
""",
        "[Box(3)]",
        (3, 12),
    ),
    "sentinels are the same objects": Case(
        """
_MISSING = object()
class _Unset:
    def __repr__(self):
        return "unset"
UNSET = _Unset()
@dataclasses.dataclass
class Row:
    a: object = _MISSING
    b: object = UNSET
    def has(self):
        return self.a is not _MISSING, self.b is not UNSET
@dataclasses.dataclass
class Wide(Row):
    c: int = 5
def given(x=_MISSING):
    return x is not _MISSING
def f(x):
    return x, Row(), _MISSING, UNSET
def look(x):
    item, row, missing, unset = x
    default = [each.default_factory is dataclasses.MISSING for each in dataclasses.fields(Wide)]
    @dataclasses.dataclass
    class More(Row):
        d: int = 0
    more = item[0].has(), row.has(), More().has()
    return missing is _MISSING, unset is UNSET, given(), given(missing), item[1] is missing, more, default, repr(unset)
""",
        "[(Row(), _MISSING)]",
    ),
    "objects of a class may be among its members": Case(
        """
class Point:
    def __init__(self, x):
        self.x = x
    def __eq__(self, other):
        return type(other) is Point and self.x == other.x
    def __hash__(self):
        return hash(self.x)
    def near(self):
        return self in Point.KNOWN
Point.ORIGIN = Point(0)
Point.KNOWN = {Point.ORIGIN: "o", Point(1): "i"}
def f(x):
    return x
def look(x):
    return x.near(), Point(0) in Point.KNOWN, Point.KNOWN[x], type(Point.ORIGIN) is Point
""",
        "[Point(1)]",
    ),
    "names that stand for what a class has are its own": Case(
        """
class Row:
    __name__ = "a row"
    __doc__ = "told"
    @property
    def __dict__(self):
        return {"seen": 1}
    def __init_subclass__(cls):
        raise TypeError
    def __class_getitem__(cls, key):
        return key
    def __new__(cls, *args):
        return super().__new__(cls)
def f(x):
    return x
def look(x):
    return type(x).__name__, x.__name__, Row.__doc__, x.__dict__, Row[5]
""",
        "[Row()]",
    ),
    "exceptions of the script are what they were": Case(
        """
class Base(Exception):
    code = None
    def __init_subclass__(cls, *, code):
        cls.code = code
class Odd(Base, KeyError, code=5):
    __slots__ = ("more",)
    def __init__(self, a, *, b):
        super().__init__(a)
        self.b = b
    def __reduce__(self):
        return functools.partial(Odd, b=self.b), self.args
def f(x):
    return x
def look(x):
    bases = [each.__name__ for each in type(x).__mro__]
    return x.code, x.b, x.args, isinstance(x, Base), isinstance(x, KeyError), bases
""",
        "[Odd(1, b=2)]",
    ),
    "structures and unions of ctypes are what they were": Case(
        """
import ctypes
class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_double)]
    def total(self):
        return self.x + self.y * FACTOR
class Bytes(ctypes.Union):
    _fields_ = [("whole", ctypes.c_uint32), ("bytes", ctypes.c_ubyte * 4)]
class Packed(ctypes.BigEndianStructure):
    _pack_, _layout_ = 1, "ms"  # Python 3.14 wants to be told
    _fields_ = [("a", ctypes.c_uint16), ("b", ctypes.c_uint32)]
class Deep(ctypes.Structure):
    _anonymous_ = "u",
    _fields_ = [("u", Bytes), ("points", Point * 3), ("bits", ctypes.c_int, 3), ("name", ctypes.c_char * 8)]
class Placed(Point):
    _fields_ = [("z", ctypes.c_int)]
    def total(self):
        return super().total() + self.z
Three = Point * 3
Numbers = ctypes.c_int * 4
def f(x):
    deep = Deep(bits=2, name=b"deep")
    deep.whole, deep.points[1].x = 0x01020304, 5
    return x, deep, Placed(1, 2.0, 3), Three(Point(1, 2), Point(3, 4)), Packed(1, 2), Numbers(1, 2, 3)
def look(x):
    item, deep, placed, three, packed, numbers = x
    same = type(item) is Point, type(three) is Point * 3 is Three, type(numbers) is ctypes.c_int * 4, type(deep) is Deep
    fields = Deep.bits.size, Point._fields_, Packed._fields_ == [("a", ctypes.c_uint16), ("b", ctypes.c_uint32)]
    deeper = sorted(deep.bytes), deep.points[1].x, deep.bits, deep.name, ctypes.sizeof(deep)
    return item.total(), same, str(fields), deeper, placed.total(), three[1].total(), bytes(packed), list(numbers)
""",
        "[Point(1, 2.5)]",
    ),
    "pointers, functions and numbers of ctypes are what they were": Case(
        """
import ctypes
class Node(ctypes.Structure):
    pass
Node._fields_ = [("value", ctypes.c_int), ("next", ctypes.POINTER(Node))]
Compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
class Metres(ctypes.c_int):
    def twice(self):
        return self.value * 2
class Row(ctypes.Array):
    _type_ = Metres
    _length_ = 2
def f(x):
    compare = Compare(lambda a, b: a[0] - b[0])
    compared = compare(ctypes.pointer(ctypes.c_int(5)), ctypes.pointer(ctypes.c_int(x)))
    return compared, Node(1, ctypes.pointer(Node(2))).next.contents.value, Metres(4), Row(Metres(1))
def look(x):
    return x[0], x[1], x[2].twice(), type(x[2]) is Metres, x[3][0].twice(), type(x[3]) is Row
""",
    ),
    "functions that share a variable share it": Case(
        """
def counter():
    count = 0
    def more():
        nonlocal count
        count += 1
    def now():
        return count
    return more, now
MORE, NOW = counter()
def growing():
    size, unset = 0, []
    class Grown:
        def grow(self):
            nonlocal size
            size += 1
            return __class__
        def size(self):
            return size
    def even(n):
        return n == 0 or odd(n - 1)
    def odd(n):
        return n != 0 and even(n - 1)
    def early():
        return late
    if unset:
        late = 1
    return Grown, even, early
Grown, even, early = growing()
def f(x):
    more, now = x
    grown = Grown()
    for each in (more, MORE, MORE, grown.grow):
        each()
    try:
        early()
    except NameError as error:
        unset = str(error)
    return now(), NOW(), grown.size(), grown.grow() is Grown, even(7), unset, counter()
def look(x):
    more, now = x[-1]
    before = now()
    more()
    return x[:-1], now() - before
""",
        "[counter()]",
    ),
    "weak dictionaries have what the script has": Case(
        """
import weakref
class Thing:
    known = weakref.WeakValueDictionary()
    names = weakref.WeakKeyDictionary()
    def __init__(self, name):
        self.name = name
        Thing.known[name], Thing.names[self] = self, name
KEPT = Thing("kept")
def f(x):
    more = Thing(x)
    return sorted(Thing.known), sorted(Thing.names.values()), Thing.known["kept"] is KEPT, Thing.names[KEPT]
def look(x):
    return x
""",
        "['more']",
    ),
    "classes that a function of the script has made are its own": Case(
        """
def made(factor):
    class Base:
        def __init__(self):
            super().__init__()
            self.factor = factor
    class Sub(Base):
        def me(self):
            return super().__init__(), __class__
    return Base, Sub
Base, Sub = made(4)
Record = dataclasses.make_dataclass("Record", [("x", int)])
def f(x):
    return Sub(), Record(x)
def look(x):
    sub, record = x
    return sub.factor, sub.me()[1] is Sub, type(sub) is Sub, isinstance(sub, Base), record == Record(1)
""",
    ),
    "members of an enum may be functions": Case(
        """
class Rule(enum.Enum):
    LEAST = enum.member(functools.partial(min))
    MOST = enum.member(functools.partial(lambda *each: max(each)))
    def __call__(self, *each):
        return self.value(*each)
def f(x):
    return x
def look(x):
    return x is Rule.MOST, x(1, 2), Rule.LEAST(1, 2)
""",
        "[Rule.MOST]",
    ),
    "descriptors that are derived from those of Python are what they were": Case(
        """
class Told(property):
    def __init__(self, told, *, by):
        super().__init__(told, self.put)
        self.by = by
    def put(self, one, value):
        one.value = value
    def __get__(self, one, kind=None):
        return self if one is None else f"{self.by}: {self.fget(one)}"
class Once(functools.cached_property):
    def again(self):
        return self.attrname
class Counted(classmethod):
    __slots__ = "calls",
class Marked(staticmethod):
    mark = "m"
class Row:
    value = 1
    told = Told(lambda self: self.value, by="row")
    @Once
    def once(self):
        return [self.value]
    @Counted
    def named(cls):
        return cls.__name__
    @Marked
    def plain(x):
        return x * FACTOR
vars(Row)["named"].calls = 3
def f(x):
    x.told = 5
    return x
def look(x):
    members = vars(type(x))
    same = x.once is x.once, type(members["told"]) is Told, type(members["plain"]) is Marked
    return x.told, Row.told.by, same, Row.once.again(), x.named(), members["named"].calls, Row.plain(2)
""",
        "[Row()]",
    ),
    "an object that is pickled by its name is that of the script": Case(
        """
import copy
class Unset:
    def __init__(self, text):
        self.text = text
    def __reduce__(self):
        return "UNSET"
UNSET = Unset("unset")
class Unit(str):
    __slots__ = "power",
    def __reduce__(self):
        return str(self)
METRE = Unit("METRE")
METRE.power = 1
def f(x):
    return x, sys.modules["__main__"].UNSET is UNSET, copy.copy(UNSET) is UNSET, copy.deepcopy([METRE])[0] is METRE
def look(x):
    return x[0][0] is UNSET, UNSET.text, x[0][1] is METRE, METRE, METRE.power, x[1:]
def look(x, look=look):
    return [str(each) for each in look(x)]
""",
        "[(UNSET, METRE)]",
    ),
    "annotations that are text may name anything": Case(
        """
import threading, typing
if typing.TYPE_CHECKING:
    from nowhere import Something
LOCK = threading.Lock()
class Holder:
    lock: LOCK
    def more(self, x: "Something" = 3) -> "LOCK":
        return x
@dataclasses.dataclass
class Row:
    a: "LOCK" = 1
    b: "typing.ClassVar[Something]" = 2
def f(x: "LOCK", *more: "Something") -> "list[Something]":
    return x
def look(x):
    return x.more(), [each.name for each in dataclasses.fields(Row)], Row().a
""".replace("lock: LOCK", 'lock: "LOCK"'),
        "[Holder()]",
    ),
    "annotations that Python has not looked at may name anything": Case(
        """
import typing
if typing.TYPE_CHECKING:
    from nowhere import Something
class Holder:
    a: Something
    b: int
    def more(self, x: Something = 3) -> Holder:
        return x
def f(x: Something) -> list[Something]:
    return x
def look(x):
    return x.more(), list(Holder.__annotations__)
""".replace("list(Holder.__annotations__)", "type(x).__name__"),
        "[Holder()]",
        (3, 14),
    ),
}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.python <= sys.version_info])
def test_a_task_and_who_reads_its_result_see_what_the_script_sees(scripts: Scripts, name: str) -> None:
    case = CASES[name]
    results = scripts.ended(f"{case.code}\n{TASK}", case.items)
    seen = [value(ended)[0] for ended in results]
    given = pickle.dumps([bytes(ended.payload) for ended in results])
    program = f"{SCRIPT}\n{case.code}\nITEMS = {case.items}\nOWN = True\n{READ}"
    in_the_program, at_home = pickle.loads(scripts.printed(program, given))
    in_another, _ = pickle.loads(scripts.printed(f"import pickle, sys\nOWN = False\n{READ}", given))
    assert (seen, in_the_program, in_another) == (at_home, at_home, at_home)


def test_processes_that_a_task_starts_see_the_same(scripts: Scripts) -> None:
    more = """
import os, tempfile
class Access(enum.Flag):
    READ = 1
    WRITE = 2
MISSING = object()
class Plugin:
    def __init_subclass__(cls, *, key):
        cls.key = key
class One(Plugin, key="one"):
    def has(self, x=MISSING):
        return x is not MISSING
def look(x):
    return x is Access.READ | Access.WRITE, One.key, One().has(), One().has(MISSING), One().has(1)
def f(x):
    os.chdir(tempfile.gettempdir())
    multiprocessing.current_process()._config["tempdir"] = "."
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(look, x).result()
"""
    assert scripts.values(more, "[Access.READ | Access.WRITE]") == [(True, "one", False, False, True)]


def test_processes_in_an_environment_need_no_deskgrid(tmp_path: Path) -> None:
    kind = type("Row", (), {"__module__": "__main__", "limit": 5})
    script = Script(str(tmp_path))
    vars(script).update(Row=kind)
    exec("script.__spec__", {"__name__": "multiprocessing.spawn", "script": script})
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "cloudpickle").symlink_to(Path(cloudpickle.__file__).parent)
    program = f"import runpy, sys; sys.path.append({str(tmp_path / 'lib')!r}); "
    program += f"print(runpy.run_path({script.__file__!r})['Row'].limit)"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, timeout=30, check=False)
    assert ran.stdout == b"5\n", ran.stderr.decode()


def local(limit: int) -> Any:
    class Local:
        pass

    Local.limit = limit  # type: ignore[attr-defined]
    return Local


def test_a_result_does_not_change_the_class_that_is_here() -> None:
    kind = local(1)
    packed = dumps(kind())
    kind.limit = 2
    assert type(pickle.loads(packed)) is kind
    assert kind.limit == 2


def test_a_class_that_changed_between_items_has_changed_in_the_task() -> None:
    kind = local(1)
    packed = pickle_by_value(kind)
    kind.limit = 2
    assert pickle.loads(packed).limit == 1


@pytest.mark.parametrize("pickled", [pickle_by_value, dumps], ids=["to a task", "from a task"])
def test_code_keeps_the_name_of_its_file_and_its_lines(pickled: Callable[[object], bytes]) -> None:
    def outer() -> Callable[[], None]:
        return lambda: None

    again = pickle.loads(pickled(outer))
    codes = [(each.__code__, also.__code__) for each, also in ((outer, again), (outer(), again()))]
    assert [code.co_filename for _, code in codes] == [__file__, __file__]
    assert [list(code.co_lines()) for _, code in codes] == [list(code.co_lines()) for code, _ in codes]


class Unset:
    """Has no state."""


class Named:
    """Has state, and is pickled by its name."""

    def __init__(self) -> None:
        self.text = "named"

    def __reduce__(self) -> str:
        return "SENTINEL"


@pytest.mark.parametrize("kind", [object, Unset, Named])
def test_a_sentinel_in_a_checkpoint_is_the_same_object_afterwards(
    monkeypatch: pytest.MonkeyPatch, kind: type[object]
) -> None:
    sentinel = kind()
    if kind is not object:
        monkeypatch.setattr(kind, "__module__", "__main__")
        monkeypatch.setitem(vars(sys.modules["__main__"]), kind.__name__, kind)
    monkeypatch.setitem(vars(sys.modules["__main__"]), "SENTINEL", sentinel)
    saved = _pickled_state({"best": sentinel, "more": [Unset(), "object"]})
    assert pickle.loads(saved)["best"] is sentinel
