"""Read the pickles of public datasets without unpickling: no name in a file is ever imported or called.

`pickletools.genops` lists the opcodes, and this module interprets them for plain values only (dict, list, tuple, bytes,
str, int, None, bool) and for NumPy arrays of numbers. Anything else is refused.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unskew.base.errors import UserError

# Names are compared as text and select code in this file; they are never imported.
_RECONSTRUCT = frozenset({"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"})
_ARRAY, _DTYPE, _ENCODE = "numpy ndarray", "numpy dtype", "_codecs encode"
_KNOWN_NAMES = _RECONSTRUCT | {_ARRAY, _DTYPE, _ENCODE}
_NUMBERS = frozenset({"b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"})


class _RefusedError(Exception):
    """The pickle contains an opcode or a value that is not allowed."""


@dataclass(frozen=True)
class _Name:
    text: str


@dataclass(eq=False)
class _Blank:
    """An array or dtype created by REDUCE, to be filled by BUILD; code is empty for an array."""

    code: str
    memo_keys: list[int] = field(default_factory=list)


def load(data: bytes, source: str | Path) -> Any:
    """The value in a pickle of plain data; `source` is its name in error messages."""
    machine = _Machine()
    op, position = "the first opcode", 0
    try:
        for opcode, arg, at in pickletools.genops(data):
            op, position = opcode.name, at or 0
            machine.step(op, arg)
        return machine.result()
    except _RefusedError as error:
        reason = str(error)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError) as error:
        reason = f"truncated or corrupt: {error}"
    raise UserError(
        f"{source}: expected a pickle of plain values and number arrays, found {op} at byte {position}: {reason}; "
        "nothing in it was run; download the official file again"
    )


class _Machine:
    """The pickle stack, its marks and its memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def step(self, op: str, arg: Any) -> None:
        if op in _IGNORED:
            return
        if op in _LITERALS:
            self.stack.append(_LITERALS[op](arg))
        elif op in _ACTIONS:
            _ACTIONS[op](self, arg)
        else:
            raise _RefusedError("this opcode is not allowed")

    def result(self) -> Any:
        if len(self.stack) != 1:
            raise _RefusedError(f"one value should remain at the end, but {len(self.stack)} do")
        return self.stack[0]

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def pop(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise _RefusedError("the stack is too short")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def mark(self, _: Any) -> None:
        self.marks.append(len(self.stack))

    def put(self, arg: Any) -> None:
        key, value = len(self.memo) if arg is None else arg, self.stack[-1]
        self.memo[key] = value
        if isinstance(value, _Blank):
            value.memo_keys.append(key)

    def get(self, arg: Any) -> None:
        self.stack.append(self.memo[arg])

    def append(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise _RefusedError("only a list can be appended to")
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict or len(items) % 2:
            raise _RefusedError("only a dict can be given keys, in pairs")
        for key, value in zip(items[::2], items[1::2]):
            if type(key) not in (bytes, str, int):
                raise _RefusedError(f"a dict key is of type {type(key).__name__}")
            self.stack[-1][key] = value

    def name(self, arg: Any) -> None:
        if arg not in _KNOWN_NAMES:
            raise _RefusedError(f"it would import {'.'.join(str(arg).split(' '))}")
        self.stack.append(_Name(arg))

    def reduce(self, _: Any) -> None:
        function, args = self.pop(2)
        if not isinstance(function, _Name) or type(args) is not tuple:
            raise _RefusedError("only a known name can be called, with a tuple")
        self.stack.append(_apply(function.text, args))

    def build(self, _: Any) -> None:
        blank, state = self.pop(2)
        if not isinstance(blank, _Blank) or type(state) is not tuple:
            raise _RefusedError("only an array or its dtype can be filled in")
        value = _fill_dtype(blank.code, state) if blank.code else _fill_array(state)
        # The memo refers to the blank, which was stored before its content was known.
        for key in blank.memo_keys:
            if self.memo[key] is blank:
                self.memo[key] = value
        self.stack.append(value)


def _apply(name: str, args: tuple[Any, ...]) -> Any:
    """The result of calling a known name: a blank array, a blank dtype, or bytes that Python 3 wrote as text."""
    if name in _RECONSTRUCT and args[0] == _Name(_ARRAY):
        return _Blank("")
    if name == _DTYPE and _text(args[0]) in _NUMBERS:
        return _Blank(_text(args[0]))
    if name == _ENCODE and len(args) == 2 and type(args[0]) is str and _text(args[1]) == "latin1":
        return args[0].encode("latin-1")
    raise _RefusedError(f"{name.replace(' ', '.')} has arguments that do not belong to an array of numbers")


def _fill_dtype(code: str, state: tuple[Any, ...]) -> np.dtype:
    order = _text(state[1])
    if order not in ("|", "<", ">", "="):
        raise _RefusedError(f"unknown byte order {order!r}")
    return np.dtype(order + code)


def _fill_array(state: tuple[Any, ...]) -> np.ndarray:
    _, shape, dtype, fortran, raw = state
    has_shape = type(shape) is tuple and all(type(n) is int and n >= 0 for n in shape)
    if not has_shape or not isinstance(dtype, np.dtype) or type(raw) is not bytes:
        raise _RefusedError("the array has no plain shape, number type or bytes")
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")


def _text(value: Any) -> str:
    return value.decode("latin-1") if type(value) is bytes else str(value)


def _identity(arg: Any) -> Any:
    return arg


_IGNORED = frozenset({"PROTO", "FRAME", "STOP"})
_LITERALS: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_DICT": lambda _: {},
    "EMPTY_LIST": lambda _: [],
    "EMPTY_TUPLE": lambda _: (),
    # A Python 2 string contains bytes, which genops decodes to one character per byte.
    "BINSTRING": lambda arg: arg.encode("latin-1"),
    "SHORT_BINSTRING": lambda arg: arg.encode("latin-1"),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1"), _identity),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"), _identity),
}
_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark,
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Machine.get),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.stack.append(tuple(machine.pop(1))),
    "TUPLE2": lambda machine, _: machine.stack.append(tuple(machine.pop(2))),
    "TUPLE3": lambda machine, _: machine.stack.append(tuple(machine.pop(3))),
    "APPEND": lambda machine, _: machine.append(machine.pop(1)),
    "APPENDS": lambda machine, _: machine.append(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.set_items(machine.pop(2)),
    "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
    "GLOBAL": _Machine.name,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}
