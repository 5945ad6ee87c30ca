"""Damage to the files of a run (odd files, broken JSON, odd values), and what is wrong with what commands say then.

A kind of damage is a name and what it does to the file at a path. Kinds of values take a place in the file at random,
which `seed` decides, so that many seeds try many places and each can be had again. Commands are run in this process.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from tests.doors.engine import Run
from tests.doors.tui import RunList, RunReader
from tests.doors.tui import tui_cli as cli
from tests.support import recorded

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
        *(Kind(f"{len(text)} bytes, {text[:30]!r}", _content(text)) for text in _OTHER_CONTENT),
        *(Kind(name, _changed(change)) for name, change in _CHANGES.items()),
        *(Kind(f"value of {len(text)} characters, {text[:30]}", _valued(text)) for text in _VALUES),
        Kind("value missing", _without),
        Kind("name with control text", _renamed),
    ]


# ---- something else in its place, or other content ----------------------------------------------


def _in_its_place(make: Callable[[Path], object]) -> Damager:
    def damager(path: Path, of: random.Random) -> None:
        path.unlink(missing_ok=True)
        make(path)

    return damager


def _socket(path: Path) -> None:
    """Bound by its name in the current folder: the address of a socket is short."""
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def _changed(change: Callable[[bytes, random.Random], bytes]) -> Damager:
    def damager(path: Path, of: random.Random) -> None:
        path.write_bytes(change(path.read_bytes(), of))

    return damager


def _linked(to: str) -> Damager:
    return _in_its_place(lambda path: path.symlink_to(to))


def _content(content: bytes) -> Damager:
    def damager(path: Path, of: random.Random) -> None:
        path.write_bytes(content)

    return damager


_OTHER_THINGS: dict[str, Damager] = {
    "absent": _in_its_place(lambda path: None),
    "a folder": _in_its_place(lambda path: path.mkdir()),
    "a named pipe": _in_its_place(os.mkfifo),
    "a socket": _in_its_place(_socket),
    "a link to itself": _in_its_place(lambda path: path.symlink_to(path)),
    **{f"a link to {to}": _linked(to) for to in ("nothing", "/dev/zero", "/dev/null", "/dev/ptmx")},
    "50 MB of nothing": _changed(lambda content, of: bytes(50_000_000)),
}
_OTHER_CONTENT = (
    b"", b"\n", b"null\n", b"3\n", b'"text"\n', b"[1, 2]\n", b"{}\n", b"true\n", b'[{"t": 1.0, "type": "progress"}]\n',
    b"[" * 100_000 + b"]" * 100_000 + b"\n", b"[" * 200_000 + b"\n", b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"\n",
    b'{"t":1.0,"type":"gpu","gpus":' + b"[" * 900 + b"]" * 900 + b"}\n", bytes(range(256)) * 20, bytes(5000),
    b"\x89PNG\r\n\x1a\n" + bytes(range(255, 0, -1)), '{"t": 1.0, "type": "progress"}\n'.encode("utf-16"),
    b"x" * 3_000_000 + b"\n", b"9" * 5000 + b"\n",
)  # fmt: skip


# ---- the same content, changed ----------------------------------------------------------------


def _flipped(content: bytes, of: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(20):
        changed[of.randrange(len(changed))] ^= 1 << of.randrange(8)
    return bytes(changed)


def _control(content: bytes, of: random.Random) -> bytes:
    at = of.randrange(len(content))
    return content[:at] + b"\x1b]0;owned\x07\x1b[2J" + content[at:]


_CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut in the middle": lambda content, of: content[: of.randrange(len(content))],
    "its beginning lost": lambda content, of: content[of.randrange(len(content)) :],
    "a hole of zeros": lambda content, of: content[: len(content) // 3] + bytes(500) + content[len(content) // 2 :],
    "twice": lambda content, of: content + content,
    "lines mixed": lambda content, of: b"".join(of.sample(lines := content.splitlines(keepends=True), len(lines))),
    "flipped bits": _flipped,
    "control text": _control,
    "a byte order mark": lambda content, of: b"\xef\xbb\xbf" + content,
    "not UTF-8": lambda content, of: content.replace(b"e", b"\xe9"),
    "Windows lines": lambda content, of: content.replace(b"\n", b"\r\n"),
    "no line ends": lambda content, of: content.replace(b"\n", b" "),
}


# ---- odd values -------------------------------------------------------------------------------

DEEP_VALUE = "[" * 500 + "]" * 500
# As they stand in JSON, and mostly in YAML.
_VALUES = (
    "null", '"abc"', '""', '"12"', "-1", "0", "1.5", "true", "[1]", "[]", '{"a": 1}', '["a", {"b": null}]', "9" * 400,
    "9" * 5000, str(2**63), "1e308", "1e400", "-1e400", "NaN", "Infinity",
    '"\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\u202e"', '"\\ud800"', '"' + "long " * 20_000 + '"', DEEP_VALUE,
)  # fmt: skip


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
        found = (json.loads if path.suffix == ".json" else yaml.safe_load)(path.read_text())
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


# ---- what is wrong with the answers of commands ---------------------------------------------

BAD, GOOD = "20260101-000000-damaged", "20260102-000000-whole"
SECONDS = 20  # for one command: far more than any takes, far less than for ever
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("runs",), ("runs", "--json"), ("compare", GOOD, BAD), ("compare", GOOD, BAD, "--json"),
    ("compare", GOOD, BAD, "--markdown"), ("compare", GOOD, BAD, "--csv"), ("compare", BAD, GOOD, "--json"),
    ("diagnose", BAD), ("diagnose", BAD, "--json"), ("history", BAD), ("history", BAD, "--jsonl"), ("stop", BAD),
    ("resume", BAD, "--detach"),
)  # fmt: skip


def home_of_two(home: Path) -> Path:
    """A home with two runs of which everything is told: GPUs, stages of the input, a diagnosis, a result."""
    told: dict[str, Any] = {"diagnosis": recorded.DIAGNOSIS, "input_stages": recorded.STAGES, "mfu": 0.4}
    for name in (BAD, GOOD):
        recorded.write(home, name=name, gpus=2, seconds=16, warnings=(("memory", "little is left"),), **told)
    return home


def violations(
    template: Path, home: Path, file: str, kind: Kind, seed: int = 0, commands: Sequence[tuple[str, ...]] = COMMANDS
) -> list[str]:
    """What is wrong with the commands' answers if `file` of one run is damaged; `home` is made anew."""
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(template, home)
    kind.damage(home / "runs" / BAD / file, seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("GPUTUI_HOME", str(home))
        found = [f"{' '.join(command)}: {what}" for command in commands for what in judged(command)]
        return found + [f"screens: {what}" for what in _read_by_screens(Run(home / "runs" / BAD))]


def ran(command: tuple[str, ...]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _limited():
        code = cli.run(list(command))
    return code, out.getvalue(), err.getvalue()


def judged(command: tuple[str, ...]) -> Iterator[str]:
    """What is wrong with the command's answer."""
    try:
        code, out, err = ran(command)
    except BaseException as fault:  # noqa: BLE001 - told at the end
        yield f"{type(fault).__name__}: {str(fault)[:200]}"
        return
    yield from wrong_in(code, out, err)
    if code:
        return
    if command[0] == "runs" and GOOD not in out:
        yield "the whole run is not listed"
    if {"--json", "--jsonl"} & {*command}:
        texts = [out] if "--json" in command and len(command) > 2 else out.splitlines()  # one thing, or a list
        try:
            for text in texts:
                json.loads(text, parse_constant=_no_json)
        except ValueError as fault:
            yield f"no strict JSON: {fault}"


def wrong_in(code: int, out: str, err: str) -> Iterator[str]:
    """What no answer may have, whatever was asked."""
    if code not in (0, 2):
        yield f"exit code {code}: {err[:300]}"
    if code == 2 and not err.strip():
        yield "refused without a word"
    if "please report it" in err or "Traceback" in err:
        yield err[:300]
    if odd := _steering(out + err):
        yield f"control characters {odd}"
    if long := [line for line in err.splitlines() if len(re.sub(r"/\S+", "", line)) > 400]:  # paths are never cut
        yield f"a line of {len(long[0])} characters on stderr"


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _read_by_screens(run: Run) -> Iterator[str]:
    try:
        with _limited():
            feed = RunReader(run)
            while feed.poll():
                pass
            names = [entry.run.id for entry in RunList().read()]
    except BaseException as fault:  # noqa: BLE001 - told at the end
        yield f"{type(fault).__name__}: {str(fault)[:200]}"
        return
    if GOOD not in names:
        yield "the whole run is not listed"
    warnings = feed.picture.snapshot.warnings
    if odd := _steering("".join(text for w in warnings for text in (w.kind, w.message, w.hint, w.option))):
        yield f"control characters {odd}"


def _steering(text: str) -> list[str]:
    return sorted({each for each in text if not each.isprintable() and unicodedata.category(each) != "Zs"} - {"\n"})


class _TooLong(BaseException):
    """No command catches it."""


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(number: int, frame: object) -> NoReturn:
        raise _TooLong(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
