"""Lines of an event file -> the events that were written, whole ones only and fast.

What a line tells is what events.py declares: a line with a field of another type is none. Fields that are not declared
stay beside the others; an event of a type that is not known here is an `Unknown`. Text is made harmless to a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..files.shapes import fits, form_of
from ..files.values import LARGEST, LARGEST_WHOLE, LATEST_T, MAX_DEPTH, depth, harmless_in, moment
from . import events
from .events import Event

Quick = Callable[[dict[str, Any]], bool]
Reader = Callable[[bytes], Any]

_WORTH_AN_IMPORT_BYTES = 1_000_000  # of JSON, which take json.loads some 20 ms
# NaN and Infinity, which are no JSON, are figures that are not known.
_DECODER: Any = json.JSONDecoder(parse_constant=lambda _name: None)
_scan = _DECODER.scan_once
quick_reader: Callable[[], Reader] | None = None  # set by quick_json.py in processes that have pydantic
_NOT_A_LINE = (ValueError, RecursionError, StopIteration)  # StopIteration: not even the beginning of a value


class Unknown(Event):
    """An event of a type that this version of gputui does not know."""


def parse_line(line: str) -> Event | None:
    """The event of a line, or None for a line that is no whole event."""
    try:
        found, end = _scan(line, 0)
    except _NOT_A_LINE:
        return None
    if type(found) is not dict or (end < len(line) and line[end:].strip()):
        return None
    if "\\" in line or not line.isascii() or "\x7f" in line:  # JSON writes what steers a terminal with a backslash
        found = harmless_in(found)
    if _may_be_deep(line.encode()) and depth(found) > MAX_DEPTH:
        return None
    kind = found.get("type")
    if type(kind) is not str or moment(found.get("t")) is None:
        return None
    known: Any = kinds().get(kind)
    return recalled(found) if known is None or form_of(known).holds(found) else None


def parse_block(block: bytes) -> Iterator[tuple[Event | None, bytes]]:
    """Each whole line of the block with its event, or None for a line that is no whole event."""
    lines = block.split(b"\n")[:-1]
    if not block.isascii() or b"\\" in block or b"\x7f" in block:
        for line in lines:
            yield parse_line(line.decode("utf-8", "replace")), line
        return
    quick, known, read = _quick(), kinds(), _json_reader(len(block))
    for line in lines:
        try:
            found = read(line)
            kind = found["type"]
            if quick[kind](found) and not _may_be_deep(line):
                event = new(known[kind])
                set_fields(event, "__dict__", found)
                yield event, line
                continue
        except (*_NOT_A_LINE, KeyError, TypeError):
            pass
        yield parse_line(line.decode("ascii")), line


def _json_reader(size_bytes: int) -> Reader:
    """What reads a line of JSON, with the quick parser where a block is worth its import."""
    if size_bytes < _WORTH_AN_IMPORT_BYTES or quick_reader is None:
        return lambda line: _DECODER.decode(line.decode("ascii"))
    return quick_reader()


def recalled(found: dict[str, Any]) -> Event:
    """The event whose fields these are, with `t`, `type` and `run`; a field that is absent is as in `Event`."""
    event = new(kinds().get(found["type"], Unknown))
    set_fields(event, "__dict__", found)
    return event


def dated(event: Event, t: float, run: str = "") -> Event:
    """An event of this process as if it had been read."""
    return recalled({"t": t, "type": event.type, "run": run} | asdict(event))


new, set_fields = object.__new__, object.__setattr__  # events are frozen; this is how dataclasses fill them, too


def _may_be_deep(line: bytes) -> bool:
    return line.count(b"{") + line.count(b"[") > MAX_DEPTH


@cache
def kinds() -> Mapping[str, type[Event]]:
    """The types of events by the name that stands in the file."""
    found: list[Any] = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]
    return {kind.type: kind for kind in found if kind is not Event}


# ---- a line as it is mostly written -----------------------------------------------------------


@cache
def _quick() -> Mapping[str, Quick]:
    return {name: _checker(kind) for name, kind in kinds().items()}


def _checker(kind: Any) -> Quick:
    """Whether a line has exactly the declared fields in their order, each as declared; False decides nothing.

    One function is made for each type of event, as looking up what each field must be takes longer than the check.
    """
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)]
    tests = [fits(hints[name]) for name in names]
    checks = [_check(f"v{at}", f"fits[{at}]", hints[name]) for at, name in enumerate(names)]
    values = "".join(f", v{at}" for at in range(len(names)))
    source = f"""def checker(found):
    if tuple(found) != names:
        return False
    t, _, _{values} = found.values()
    return type(t) is float and 0.0 <= t <= {LATEST_T!r} and {" and ".join(checks) or True}"""
    scope: dict[str, Any] = {"names": ("t", "type", "run", *names), "fits": tests}
    exec(source, scope)  # of our own declarations alone
    checker: Quick = scope["checker"]
    return checker


def _check(value: str, fit: str, hint: Any) -> str:
    """An expression that is quick for the types of most values, and otherwise asks the test of the hint."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    quick = [f"{value} is None"] if type(None) in members else []
    if str in members:
        quick.append(f"type({value}) is str")
    if float in members:
        quick.append(f"type({value}) is float and {-LARGEST!r} <= {value} <= {LARGEST!r}")
    if int in members:
        quick.append(f"type({value}) is int and {-LARGEST_WHOLE} <= {value} <= {LARGEST_WHOLE}")
    return f"({' or '.join([*quick, f'{fit}({value})'])})"
