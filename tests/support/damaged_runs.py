"""Commands on a home in which one run is damaged, in this process: what they print is judged, not what they mean.

`violations` is one case of a campaign; tests take a few, benchmarks/faults.py many.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.doors.engine import Run
from tests.doors.tui import RunList, RunReader
from tests.doors.tui import tui_cli as cli
from tests.support import recorded
from tests.support.damage import Kind

BAD, GOOD = "20260101-000000-damaged", "20260102-000000-whole"
SECONDS = 20  # for one command: far more than any takes, far less than for ever
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("runs",),
    ("runs", "--json"),
    *(("compare", GOOD, BAD, *form) for form in ((), ("--json",), ("--markdown",), ("--csv",))),
    ("compare", BAD, GOOD, "--json"),
    ("diagnose", BAD),
    ("diagnose", BAD, "--json"),
    ("history", BAD),
    ("history", BAD, "--jsonl"),
    ("stop", BAD),
    ("resume", BAD, "--detach"),
)


def home_of_two(home: Path) -> Path:
    """A home with two runs of which everything is told: GPUs, stages of the input, a diagnosis, a result."""
    stages = [
        {"name": "read", "op": "TFRecord", "ms_per_batch": 3.0, "parallelism": None},
        {"name": "augment", "op": "Map", "ms_per_batch": 9.0, "parallelism": 4},
    ]
    remedy = {
        "step": "input",
        "changes": {"input.cache": "memory"},
        "reason": "it reads again",
        "expected_gain": 1.3,
        "changes_learning": False,
    }
    evidence = {
        "signal": "input_wait",
        "value": 0.3,
        "unit": "share",
        "threshold": 0.2,
        "text": "it waits",
        "source": "XProf",
    }
    diagnosis = {
        "verdict": "input_bound",
        "sentence": "Input-bound",
        "confidence": 0.9,
        "steps": 90,
        "evidence": [evidence],
        "others": [],
        "remedies": [remedy],
    }
    for name in (BAD, GOOD):
        recorded.write(
            home,
            name=name,
            gpus=2,
            seconds=16,
            input_stages={"stages": stages, "buffer_fill": 0.1},
            diagnosis=diagnosis,
            warnings=(("memory", "little is left"),),
            mfu=0.4,
        )
    return home


def violations(
    template: Path,
    home: Path,
    file: str,
    kind: Kind,
    seed: int = 0,
    commands: Sequence[tuple[str, ...]] = COMMANDS,
) -> list[str]:
    """What is wrong with the commands' answers if `file` of one run is damaged; `home` is made anew."""
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(template, home)
    kind.damage(home / "runs" / BAD / file, seed)
    found = []
    with _environment(GPUTUI_HOME=str(home)):
        for command in commands:
            found += [f"{' '.join(command)}: {what}" for what in judged(command)]
        found += _read_by_screens(Run(home / "runs" / BAD))
    return found


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
    if code not in (0, 2):
        yield f"exit code {code}: {err[:300]}"
    if code == 2 and not err.strip():
        yield "refused without a word"
    if "please report it" in err or "Traceback" in err:
        yield err[:300]
    if odd := _steering(out + err):
        yield f"control characters {odd}"
    if long := [line for line in err.splitlines() if len(line) > 300]:
        yield f"a line of {len(long[0])} characters on stderr"
    if code == 0:
        yield from _content(command, out)


def _content(command: tuple[str, ...], out: str) -> Iterator[str]:
    if command[0] == "runs" and GOOD not in out:
        yield "the whole run is not listed"
    if "--json" in command:
        texts = out.splitlines() if len(command) == 2 else [out]  # a list, or one thing
        try:
            for text in texts:
                json.loads(text, parse_constant=_no_json)
        except ValueError as fault:
            yield f"no strict JSON: {fault}"
    if "--jsonl" in command:
        try:
            for line in out.splitlines():
                json.loads(line, parse_constant=_no_json)
        except ValueError as fault:
            yield f"no strict JSON lines: {fault}"


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
        yield f"screens: {type(fault).__name__}: {str(fault)[:200]}"
        return
    if GOOD not in names:
        yield "screens: the whole run is not listed"
    said = "".join(_texts(feed.picture.snapshot.warnings))
    if odd := _steering(said):
        yield f"screens: control characters {odd}"


def _steering(text: str) -> list[str]:
    return [] if text.replace("\n", "").isprintable() else sorted({c for c in text if not c.isprintable()} - {"\n"})


def _texts(messages: Any) -> Iterator[str]:
    for message in messages:
        yield from (message.kind, message.message, message.hint, message.option)


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


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
