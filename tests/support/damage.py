"""Kinds of damage that a file of a run may have, for tests and benchmarks: odd files, broken JSON, odd values.

A kind is a name and what it does to the file at a path. Kinds of values take a place in the file at random, which
`seed` decides, so that many seeds try many places and each can be had again.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILES = ("status.json", "result.json", "events.jsonl", "telemetry.jsonl", "preset.yaml")
Damager = Callable[[Path, random.Random], None]
_MARK = "@@value@@"


@dataclass(frozen=True)
class Kind:
    name: str
    make: Damager

    def damage(self, path: Path, seed: int = 0) -> None:
        """Damage the file, the same way for the same seed."""
        self.make(path, random.Random(f"{self.name}-{path.name}-{seed}"))


def kinds() -> list[Kind]:
    """All of them."""
    return [
        *(Kind(name, make) for name, make in _OTHER_THINGS.items()),
        *(Kind(name, _content(text)) for name, text in _OTHER_CONTENT.items()),
        *(Kind(name, _changed(change)) for name, change in _CHANGES.items()),
        *(Kind(f"value {name}", _valued(text)) for name, text in _VALUES.items()),
        Kind("value missing", _without),
        Kind("name with control text", _renamed),
    ]


# ---- something else in its place --------------------------------------------------------------


def _in_its_place(make: Callable[[Path], object]) -> Damager:
    def damager(path: Path, of: random.Random) -> None:
        path.unlink(missing_ok=True)
        make(path)

    return damager


def _socket(path: Path) -> None:
    """Bound by its name in the current folder: the address of a socket is short."""
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


def _sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(50_000_000)


_OTHER_THINGS: dict[str, Damager] = {
    "absent": _in_its_place(lambda path: None),
    "a folder": _in_its_place(lambda path: path.mkdir()),
    "a named pipe": _in_its_place(os.mkfifo),
    "a socket": _in_its_place(_socket),
    "a link to nothing": _in_its_place(lambda path: path.symlink_to(path.parent / "nothing")),
    "a link to itself": _in_its_place(lambda path: path.symlink_to(path)),
    "a link to /dev/zero": _in_its_place(lambda path: path.symlink_to("/dev/zero")),
    "a link to /dev/null": _in_its_place(lambda path: path.symlink_to("/dev/null")),
    "a link to a terminal": _in_its_place(lambda path: path.symlink_to("/dev/ptmx")),
    "50 MB of nothing": _in_its_place(_sparse),
}


# ---- other content ----------------------------------------------------------------------------


def _content(content: bytes) -> Damager:
    return lambda path, of: _rewrite(path, content)


def _rewrite(path: Path, content: bytes) -> None:
    path.write_bytes(content)


_OTHER_CONTENT: dict[str, bytes] = {
    "empty": b"",
    "a newline": b"\n",
    "null": b"null\n",
    "a number": b"3\n",
    "a text": b'"text"\n',
    "a list": b"[1, 2]\n",
    "an empty object": b"{}\n",
    "true": b"true\n",
    "a list of objects": b'[{"t": 1.0, "type": "progress"}]\n',
    "lists in lists": b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "lists that do not end": b"[" * 200_000 + b"\n",
    "objects in objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"\n",
    "deep in an event": b'{"t":1.0,"type":"gpu","gpus":' + b"[" * 900 + b"]" * 900 + b"}\n",
    "binary": bytes(range(256)) * 20,
    "zeros": bytes(5000),
    "an image": b"\x89PNG\r\n\x1a\n" + bytes(range(255, 0, -1)),
    "UTF-16": '{"t": 1.0, "type": "progress"}\n'.encode("utf-16"),
    "one long line": b"x" * 3_000_000 + b"\n",
    "a long number": b"9" * 5000 + b"\n",
}


# ---- the same content, changed ----------------------------------------------------------------


def _changed(change: Callable[[bytes, random.Random], bytes]) -> Damager:
    return lambda path, of: _rewrite(path, change(path.read_bytes(), of))


def _flipped(content: bytes, of: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(20):
        changed[of.randrange(len(changed))] ^= 1 << of.randrange(8)
    return bytes(changed)


def _control(content: bytes, of: random.Random) -> bytes:
    at = of.randrange(len(content))
    return content[:at] + b"\x1b]0;owned\x07\x1b[2J" + content[at:]


def _mixed(content: bytes, of: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    of.shuffle(lines)
    return b"".join(lines)


_CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut in the middle": lambda content, of: content[: of.randrange(len(content))],
    "its beginning lost": lambda content, of: content[of.randrange(len(content)) :],
    "a hole of zeros": lambda content, of: content[: len(content) // 3] + bytes(500) + content[len(content) // 2 :],
    "twice": lambda content, of: content + content,
    "lines mixed": _mixed,
    "flipped bits": _flipped,
    "control text": _control,
    "a byte order mark": lambda content, of: b"\xef\xbb\xbf" + content,
    "not UTF-8": lambda content, of: content.replace(b"e", b"\xe9"),
    "Windows lines": lambda content, of: content.replace(b"\n", b"\r\n"),
    "no line ends": lambda content, of: content.replace(b"\n", b" "),
}


# ---- odd values -------------------------------------------------------------------------------

# As they stand in JSON, and mostly in YAML.
_VALUES: dict[str, str] = {
    "null": "null",
    "text": '"abc"',
    "empty text": '""',
    "number in text": '"12"',
    "minus one": "-1",
    "zero": "0",
    "fraction": "1.5",
    "true": "true",
    "list": "[1]",
    "empty list": "[]",
    "mapping": '{"a": 1}',
    "list of texts": '["a", {"b": null}]',
    "400 digits": "9" * 400,
    "5000 digits": "9" * 5000,
    "2**63": str(2**63),
    "1e308": "1e308",
    "1e400": "1e400",
    "minus 1e400": "-1e400",
    "NaN": "NaN",
    "Infinity": "Infinity",
    "control text": '"\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\u202e"',
    "half a character": '"\\ud800"',
    "long text": '"' + "long " * 20_000 + '"',
    "deep": "[" * 500 + "]" * 500,
}


def _valued(text: str) -> Damager:
    """One entry, wherever it lies, has this value."""
    return lambda path, of: _edit(path, of, lambda holder, key: holder.__setitem__(key, _MARK), text)


def _without(path: Path, of: random.Random) -> None:
    _edit(path, of, lambda holder, key: holder.__delitem__(key))


def _renamed(path: Path, of: random.Random) -> None:
    def rename(holder: Any, key: Any) -> None:
        if isinstance(holder, dict):
            holder["\x1b[2J\x9b" + str(key)] = holder.pop(key)

    _edit(path, of, rename)


def _edit(path: Path, of: random.Random, change: Callable[[Any, Any], object], text: str = "") -> None:
    """Change an entry of the object; of a file of events in every line of a type."""
    if path.suffix == ".jsonl":
        told = [json.loads(line) for line in path.read_text().splitlines()]
        kind = of.choice(sorted({event["type"] for event in told}))
        first = next(event for event in told if event["type"] == kind)
        place = of.choice(list(_places(first)))
        for event in told:
            if event["type"] == kind:
                _change_at(event, place, change)
        lines = [json.dumps(event) for event in told]
    else:
        found = yaml.safe_load(path.read_text())  # JSON too
        _change_at(found, of.choice(list(_places(found))), change)
        lines = [json.dumps(found)]
    path.write_text("".join(line.replace(f'"{_MARK}"', text) + "\n" for line in lines))


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every entry, those of lists by the first alone."""
    entries = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*above, key)
        yield from _places(inner, (*above, key))


def _change_at(value: Any, place: tuple[Any, ...], change: Callable[[Any, Any], object]) -> None:
    for key in place[:-1]:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return
    if (isinstance(value, dict) and place[-1] in value) or (isinstance(value, list) and len(value)):
        change(value, place[-1])
