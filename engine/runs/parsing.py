"""Writes events as lines of an event file, and reads such lines fast, as files may have many. A line with a field of
another type than events.py declares is no event. Fields that are not declared are kept. An event of an unknown type is
an `Unknown`. Text is made harmless to a terminal.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_type_hints

from ..files import typed
from ..files.appending import RETRY_SECONDS, Gap, LineFile
from ..files.values import MAX_DEPTH, depth, harmless_in, plain, to_json
from ..gpu import Gpu, TrainingGpu
from ..system.run_clock import RunClock
from ..units import counted
from . import events
from .events import T_DIGITS, Event, Warn, fields_of

E = TypeVar("E", bound=Event)


class EventWriter:
    """Appends the events of the run `run_id` to the file `path`, one line each, without buffering. Several threads may
    use it. `clock` gives the events their time, by default a clock that begins now. A full disk raises no error: events
    wait in memory (files/appending.py) and are written later, with a warning after them.
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
        """Try so long to write the events that wait for the disk; how many are still missing."""
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


_TYPE, _END = b'"type":"', b'"'


class Unknown(Event):
    """An event of a type that this version of gputui does not know."""


def parse_line(line: bytes, is_harmless: bool = False) -> Event | None:
    """None if the line is no complete, valid event. Unless it `is_harmless`, its texts are made so."""
    readers = _readers()
    try:
        if not (is_harmless or _is_harmless(line)):
            content = json.loads(line.decode("utf-8", "replace"), parse_constant=_refuse)
            line = json.dumps(harmless_in(content), separators=(",", ":")).encode()
        begin = line.find(_TYPE) + len(_TYPE)
        reader = readers.get(line[begin : line.find(_END, begin)])
        if reader is None:  # an unknown type, or a line of another program
            reader = readers.get(_head()(line)["type"].encode()) or (Unknown, _head(), False)
        kind, decode, is_open = reader
        content = decode(line)
        if is_open and line.count(b"{") + line.count(b"[") > MAX_DEPTH and depth(content) > MAX_DEPTH:
            return None
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    event = new(kind)
    set_fields(event, "__dict__", _with_gpus(content) if content["type"] in _GPUS else content)
    return event


def with_line(event: Event, line: bytes) -> Event:
    set_fields(event, "line", line)
    return event


def line_of(event: Event) -> str:
    """Return an event as a line of JSON, with the fields that only its file declares, if the line was kept."""
    if not event.line:
        return to_json(fields_of(event), short=True)
    if event.line.isascii() and b"\x7f" not in event.line:  # a terminal prints it as it is
        return event.line.decode().rstrip()
    return to_json(harmless_in(json.loads(event.line.decode("utf-8", "replace"))), short=True)


def parse_block(block: bytes) -> Iterator[tuple[Event | None, bytes]]:
    """Each complete line, without its newline, with its event; None if it is not a valid one."""
    is_harmless = _is_harmless(block)
    return ((parse_line(line, is_harmless), line) for line in block.split(b"\n")[:-1])


def _is_harmless(text: bytes) -> bool:
    # JSON writes characters that control a terminal with a backslash.
    return b"\\" not in text and text.isascii() and b"\x7f" not in text


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_Reader = tuple[type[Event], Callable[[bytes], dict[str, Any]], bool]


@cache
def _readers() -> Mapping[bytes, _Reader]:
    # For each type: its class, the function that reads a line, and whether it has mappings of any depth.
    readers: dict[bytes, _Reader] = {}
    for name, kind in kinds().items():
        hints = get_type_hints(kind, include_extras=True)
        own = {field.name: hints[field.name] for field in fields(kind)}
        decode = typed.decoder({"run": str, **own}, name)
        readers[name.encode()] = kind, decode, any(map(typed.has_any, own.values()))
    return readers


@cache
def _head() -> Callable[[bytes], dict[str, Any]]:
    return typed.decoder({"run": str}, "")


def recalled(content: dict[str, Any]) -> Event:
    """The event with these fields, unchecked; absent ones have the values that `Event` gives them."""
    event = new(kinds().get(content["type"], Unknown))
    set_fields(event, "__dict__", _with_gpus(content) if content["type"] in _GPUS else content)
    return event


_GPUS = {"gpu": ("gpus", Gpu.from_json), "started": ("gpu_devices", TrainingGpu.from_json)}


def _with_gpus(content: dict[str, Any]) -> dict[str, Any]:
    name, read = _GPUS[content["type"]]
    return {**content, name: tuple(map(read, content[name]))} if name in content else content


def dated(event: E, t: float, run: str = "") -> E:
    """Return an event of this process with time and run added, as if it had been read from a file."""
    read: E = new(type(event))
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    set_fields(read, "__dict__", {"t": t, "type": event.type, "run": run} | values)
    return read


new, set_fields = object.__new__, object.__setattr__  # events are frozen; this is how dataclasses fill them, too


@cache
def kinds() -> Mapping[str, type[Event]]:
    """Return the classes of events by their `type` in the file."""
    types: list[Any] = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]
    return {kind.type: kind for kind in types if kind is not Event}
