"""The published answers of people, read from their file without running anything in it.

    data.npy ──> header ──> opcodes of its pickle ──> inert values ──> Preferences

The file is a pickle, which is a program: whoever unpickles it runs what its author wrote. So nobody does. A small
interpreter reads the few opcodes that this file consists of and makes inert values of them: strings, numbers, lists
and notes that something would have been called. These are then compared with the one form that the file has. Anything
else, be it an opcode, a name or a shape, is refused.

Answers: Kant et al., Housekeep, 2022 (arXiv 2205.10712), `cos_eor/scripts/orm/amt_data/data.npy` of yashkant/housekeep.
"""

from __future__ import annotations

import pickletools
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.housekeep.people.preferences import Preferences, ordered

SOURCE = "answers of 372 people (Kant et al. 2022)"
MOST_BYTES = 16 << 20
"""Of a file that is looked at: the published one has 2.8 MB."""

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = "{'descr': '|O', 'fortran_order': False, 'shape': (), }"
_RECONSTRUCT, _NDARRAY = "numpy.core.multiarray _reconstruct", "numpy ndarray"
_DTYPE, _SCALAR = "numpy dtype", "numpy.core.multiarray scalar"
_NAMES = (_RECONSTRUCT, _NDARRAY, _DTYPE, _SCALAR)


class Refused(ValueError):
    """The file is not the published one; the message says what, in words that follow its path."""


@dataclass(frozen=True)
class Name:
    """Something outside the file that it names. It is never looked up."""

    text: str


@dataclass(eq=False)
class Call:
    """A note that `what` would have been called, and its result given a state. Nobody calls it."""

    what: str
    arguments: tuple[Any, ...]
    state: Any = None


def read(path: str | Path) -> Preferences:
    """The preferences of a published `data.npy`.

    Raises:
        ValueError: one sentence: it cannot be read or is another file, and what to do. Nothing of it has run.
    """
    try:
        if Path(path).stat().st_size > MOST_BYTES:
            raise Refused(f"it has more than {MOST_BYTES >> 20} MiB")
        return Preferences(_ranks(values(_pickle(Path(path).read_bytes()))), SOURCE)
    except (OSError, ValueError) as reason:
        raise ValueError(
            f"{path} is not the published data.npy and nothing in it was run ({reason}): take the file from "
            "cos_eor/scripts/orm/amt_data of github.com/yashkant/housekeep"
        ) from None


def _pickle(content: bytes) -> bytes:
    """What follows the header of an npy file of one object."""
    if not content.startswith(_MAGIC) or len(content) < 10:
        raise Refused("it does not begin as an npy file of version 1.0")
    (length,) = struct.unpack("<H", content[8:10])
    header = content[10 : 10 + length].decode("latin1").strip()
    if header != _HEADER:
        raise Refused(f"its header is {header[:80]!r}, not that of one object")
    return content[10 + length :]


def values(stream: bytes) -> Any:
    """What a pickle holds, as inert values.

    Returns:
        None, bool, int, str, bytes, tuple, list, dict, `Name` or `Call`.

    Raises:
        Refused: an opcode or name that the published file does not have, or a stream that makes no sense.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memory: dict[int, Any] = {}
    position = 0
    try:
        for opcode, argument, place in pickletools.genops(stream):
            position = int(place or 0)
            if opcode.name == "STOP":
                break
            _execute(opcode.name, argument, stack, marks, memory)
    except Refused as reason:
        raise Refused(f"{reason} at byte {position} of its pickle") from None
    except (ValueError, IndexError, KeyError, TypeError):  # the first two of bytes that end early, too
        raise Refused(f"its pickle is cut off or garbled near byte {position}") from None
    if len(stack) != 1 or position != len(stream) - 1:
        raise Refused("its pickle is not one whole value")
    return stack[0]


def _execute(name: str, argument: Any, stack: list[Any], marks: list[int], memory: dict[int, Any]) -> None:
    """One opcode of the stack machine."""
    match name:
        case "PROTO":
            pass
        case "BININT" | "BININT1" | "BININT2" | "BINUNICODE" | "BINBYTES" | "SHORT_BINBYTES":
            stack.append(argument)
        case "NONE" | "NEWTRUE" | "NEWFALSE":
            stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
        case "BINPUT" | "LONG_BINPUT":
            memory[argument] = stack[-1]
        case "BINGET":
            stack.append(memory[argument])
        case "MARK":
            marks.append(len(stack))
        case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
            count = 0 if name == "EMPTY_TUPLE" else int(name[-1])
            stack.append(tuple(_pop(stack, marks, count)))
        case "TUPLE":
            stack.append(tuple(_pop_marked(stack, marks)))
        case "EMPTY_LIST":
            stack.append([])
        case "APPEND" | "APPENDS":
            added = _pop(stack, marks, 1) if name == "APPEND" else _pop_marked(stack, marks)
            _last(stack, list).extend(added)
        case "EMPTY_DICT":
            stack.append({})
        case "SETITEMS":
            pairs = _pop_marked(stack, marks)
            if not all(isinstance(key, str) for key in pairs[::2]):  # to hash a tuple of a million levels is a crash
                raise TypeError
            _last(stack, dict).update(zip(pairs[::2], pairs[1::2], strict=True))
        case "GLOBAL" if argument in _NAMES:
            stack.append(Name(argument))
        case "GLOBAL":
            raise Refused(f"it names {argument[:60]!r}, which the published file does not,")
        case "REDUCE":
            what, arguments = _pop(stack, marks, 2)
            if not isinstance(what, Name) or not isinstance(arguments, tuple):
                raise TypeError
            stack.append(Call(what.text, arguments))
        case "BUILD":
            (state,) = _pop(stack, marks, 1)
            _last(stack, Call).state = state
        case _:
            raise Refused(f"it has the opcode {name}, which the published file does not have,")


def _pop(stack: list[Any], marks: list[int], count: int) -> list[Any]:
    """The last `count` values, of those since the last mark."""
    start = len(stack) - count
    if start < (marks[-1] if marks else 0):
        raise IndexError
    taken = stack[start:]
    del stack[start:]
    return taken


def _pop_marked(stack: list[Any], marks: list[int]) -> list[Any]:
    """All values since the last mark."""
    start = marks.pop()
    taken = stack[start:]
    del stack[start:]
    return taken


def _last(stack: list[Any], kind: type) -> Any:
    if not isinstance(stack[-1], kind):
        raise TypeError
    return stack[-1]


def _ranks(value: Any) -> NDArray[np.int8]:
    """int8 [269, 128, 10] of the values of the file."""
    match value:
        case Call(
            what=w, state=(1, (), _, False, [{"ranks": ranks, "objects": [*objects], "room_receptacles": places}])
        ):
            if w == _RECONSTRUCT:
                names = [_text(name) for name in objects]
                return ordered(np.moveaxis(_whole_numbers(ranks), 0, 1), names, places)
    raise Refused("it holds no dictionary of ranks, objects and room_receptacles")


def _whole_numbers(value: Any) -> NDArray[np.int64]:
    """An array of three axes of int64."""
    match value:
        case Call(what=w, state=(1, (int(), int(), int()) as shape, Call() as kind, False, bytes(content))):
            if w == _RECONSTRUCT and _is_kind(kind, "i8"):
                if min(shape) < 0 or len(content) != 8 * shape[0] * shape[1] * shape[2]:
                    raise Refused(f"its ranks are {len(content)} bytes, which are not {list(shape)} whole numbers")
                return np.frombuffer(content, "<i8").reshape(shape)
    raise Refused("its ranks are no array of int64 with three axes")


def _text(value: Any) -> str:
    """A string, or one as a scalar of numpy."""
    match value:
        case str():
            return value
        case Call(what=w, arguments=(Call() as dtype, bytes(content))):
            if w == _SCALAR and _is_kind(dtype, f"U{len(content) // 4}"):
                return content.decode("utf-32-le")
    raise Refused("one of its objects is no name")


def _is_kind(value: Call, kind: str) -> bool:
    """Whether a value is the little-endian dtype `kind`."""
    match value:
        case Call(what=w, arguments=(name, False, True), state=(3, "<", *_)):
            return bool(w == _DTYPE and name == kind)
    return False
