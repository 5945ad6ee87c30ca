"""Writes events as lines of an event file, and reads such lines fast, as files may have many.

A line with a field of another type than events.py declares is no event. Fields that are not declared are kept. An event
of an unknown type is an `Unknown`. Text is made harmless to a terminal.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..files.appending import RETRY_SECONDS, Gap, LineFile
from ..files.values import LARGEST, LARGEST_WHOLE, LATEST_T, MAX_DEPTH, depth, fits, form_of, harmless_in, moment, plain
from ..gpu import Gpu, TrainingGpu
from ..system.run_clock import RunClock
from ..units import counted
from . import events
from .events import T_DIGITS, Event, Warn


class EventWriter:
    """Appends the events of the run `run_id` to the file `path`, one line each, without buffering.

    Several threads may use it. `clock` gives the events their time, by default a clock that begins now. A full disk
    raises no error: events wait in memory (files/appending.py) and are written later, with a warning after them.
    """

    def __init__(self, path: Path, run_id: str, clock: RunClock | None = None) -> None:
        self.path, self._run_id = path, run_id
        self.clock = clock or RunClock.launched()
        self._lock = threading.Lock()
        self._file = LineFile(path)
        self._closed = False

    def emit(self, event: Event, t: float | None = None) -> None:
        """Write one event. `t` is its time in Unix seconds, by default now. After `close`, nothing is written."""
        line = self._line(event, t)
        with self._lock:
            if not self._closed:
                self._warn(self._file.append(line))

    def drain(self, seconds: float) -> int:
        """Try for at most `seconds` to write the events that wait for the disk.

        Returns the number of events that are still missing.
        """
        until = time.monotonic() + seconds
        while True:
            with self._lock:
                self._warn(self._file.flush())
                missing = self._file.missing if self._file.waiting else 0
            if not missing or time.monotonic() >= until:
                return missing
            time.sleep(RETRY_SECONDS)

    def unwritten(self) -> list[str]:
        """Return the lines that still wait for the disk."""
        with self._lock:
            return self._file.lines

    def close(self) -> None:
        with self._lock:
            self._warn(self._file.flush())
            self._file.close()
            self._closed = True

    def _line(self, event: Event, t: float | None = None) -> str:
        head = {"t": round(self.clock.now() if t is None else t, T_DIGITS), "type": event.type, "run": self._run_id}
        own = {field.name: plain(getattr(event, field.name)) for field in fields(event)}
        return json.dumps(head | own, allow_nan=False, separators=(",", ":"))

    def _warn(self, gap: Gap | None) -> None:
        if gap is not None:
            lost = f"{counted(gap.lost, 'events')} {'is' if gap.lost == 1 else 'are'} missing"
            kept = lost if gap.lost else "no event is missing"
            message = f"{gap.reason}: nothing could be written to {self.path} for {gap.seconds:.1f} s; {kept}"
            self._file.append(self._line(Warn(kind="disk", message=message)))


Quick = Callable[[dict[str, Any]], bool]
Reader = Callable[[bytes], Any]

_WORTH_AN_IMPORT_BYTES = 1_000_000  # of JSON, which take json.loads some 20 ms
# NaN and Infinity, which are no JSON, become None.
_DECODER: Any = json.JSONDecoder(parse_constant=lambda _name: None)
_scan = _DECODER.scan_once
quick_reader: Callable[[], Reader] | None = None  # set by quick_json.py if the process has pydantic
_NOT_A_LINE = (ValueError, RecursionError, StopIteration)  # StopIteration: not even the beginning of a value


class Unknown(Event):
    """An event of a type that this version of gputui does not know."""


def parse_line(line: str) -> Event | None:
    """Return the event in a line, or None if the line is not a complete, valid event."""
    try:
        content, end = _scan(line, 0)
    except _NOT_A_LINE:
        return None
    if type(content) is not dict or (end < len(line) and line[end:].strip()):
        return None
    if "\\" in line or not line.isascii() or "\x7f" in line:  # JSON writes control characters with a backslash
        content = harmless_in(content)
    if _may_be_deep(line.encode()) and depth(content) > MAX_DEPTH:
        return None
    name = content.get("type")
    if type(name) is not str or moment(content.get("t")) is None:
        return None
    kind: Any = kinds().get(name)
    return recalled(content) if kind is None or form_of(kind).holds(content) else None


def parse_block(block: bytes) -> Iterator[tuple[Event | None, bytes]]:
    """Yield each complete line of the block, without its newline, with its event.

    The event is None if the line is not a valid event. The rest after the last newline is left out.
    """
    lines = block.split(b"\n")[:-1]
    harmless_block = _is_harmless(block)
    quick, types, read = _quick(), kinds(), _json_reader(len(block))
    for line in lines:
        if not (harmless_block or _is_harmless(line)):
            yield parse_line(line.decode("utf-8", "replace")), line
            continue
        try:
            content = read(line)
            name = content["type"]
            if quick[name](content) and not _may_be_deep(line):
                event = new(types[name])
                set_fields(event, "__dict__", _with_gpus(content) if name in _GPUS else content)
                yield event, line
                continue
        except (*_NOT_A_LINE, KeyError, TypeError):
            pass
        yield parse_line(line.decode("ascii")), line


def _is_harmless(text: bytes) -> bool:
    """Return True if the values in JSON text need no change for a terminal: JSON writes control characters with a
    backslash.
    """
    return text.isascii() and b"\\" not in text and b"\x7f" not in text


def _json_reader(size_bytes: int) -> Reader:
    """Return the function that parses a line of JSON.

    It is pydantic's quick one if a block of `size_bytes` is worth the time of pydantic's import.
    """
    if size_bytes < _WORTH_AN_IMPORT_BYTES or quick_reader is None:
        return lambda line: _DECODER.decode(line.decode("ascii"))
    return quick_reader()


def recalled(content: dict[str, Any]) -> Event:
    """Return the event with the fields `content`, among them `t`, `type` and `run`, without checking them.

    Fields that are absent have the values that `Event` gives them.
    """
    event = new(kinds().get(content["type"], Unknown))
    set_fields(event, "__dict__", _with_gpus(content) if content["type"] in _GPUS else content)
    return event


_GPUS = {"gpu": ("gpus", Gpu.from_json), "started": ("gpu_devices", TrainingGpu.from_json)}


def _with_gpus(content: dict[str, Any]) -> dict[str, Any]:
    name, read = _GPUS[content["type"]]
    return {**content, name: tuple(map(read, content[name]))} if name in content else content


def dated(event: Event, t: float, run: str = "") -> Event:
    """Return an event of this process with time and run added, as if it had been read from a file."""
    read: Event = new(type(event))
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    set_fields(read, "__dict__", {"t": t, "type": event.type, "run": run} | values)
    return read


new, set_fields = object.__new__, object.__setattr__  # events are frozen; this is how dataclasses fill them, too


def _may_be_deep(line: bytes) -> bool:
    return line.count(b"{") + line.count(b"[") > MAX_DEPTH


@cache
def kinds() -> Mapping[str, type[Event]]:
    """Return the classes of events by their `type` in the file."""
    types: list[Any] = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]
    return {kind.type: kind for kind in types if kind is not Event}


# ---- the usual form of a line -----------------------------------------------------------


@cache
def _quick() -> Mapping[str, Quick]:
    return {name: _checker(kind) for name, kind in kinds().items()}


def _checker(kind: Any) -> Quick:
    """Return a function that returns True if a parsed line has exactly the fields of the event class `kind`, in their
    order, with valid values.

    If it returns False, the line must be checked in another way. The function is compiled for each class of event, as
    looking up the type of each field takes longer than the check.
    """
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)]
    tests = [fits(hints[name]) for name in names]
    checks = [_check(f"v{at}", f"fits[{at}]", hints[name]) for at, name in enumerate(names)]
    values = "".join(f", v{at}" for at in range(len(names)))
    source = f"""def checker(content):
    if tuple(content) != names:
        return False
    t, _, _{values} = content.values()
    return type(t) is float and 0.0 <= t <= {LATEST_T!r} and {" and ".join(checks) or True}"""
    scope: dict[str, Any] = {"names": ("t", "type", "run", *names), "fits": tests}
    exec(source, scope)  # only from the declarations in events.py
    checker: Quick = scope["checker"]
    return checker


def _check(value: str, fit: str, hint: Any) -> str:
    """Return the Python source of a test of the variable `value`, whose type is declared by `hint`.

    The test first compares the usual types, then calls the complete test, which is the expression `fit`.
    """
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    quick = [f"{value} is None"] if type(None) in members else []
    if str in members:
        quick.append(f"type({value}) is str")
    if float in members:
        quick.append(f"type({value}) is float and {-LARGEST!r} <= {value} <= {LARGEST!r}")
    if int in members:
        quick.append(f"type({value}) is int and {-LARGEST_WHOLE} <= {value} <= {LARGEST_WHOLE}")
    return f"({' or '.join([*quick, f'{fit}({value})'])})"
