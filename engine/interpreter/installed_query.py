"""Asks an interpreter what is installed for it, in a process whose answer is waited for at most 10 s and can be given
up. Callers that ask the same interpreter meanwhile wait for the same answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any

from ..system import child_process

ANSWER_SECONDS = 10.0  # a first start from a network disk
MOST_BYTES = 1 << 20  # of an answer: many times what any Python prints
NOTICE_SECONDS = 1.0  # without an answer; then `notice` is called
MARK = "gputui: "  # before the answer: other programs may print something before and after it
# The program must run in any Python, so that an old Python can be refused by its version. It removes the current folder
# from sys.path, as a trainer does not have it there either.
PROGRAM = """
import sys
if sys.path and sys.path[0] == "":
    del sys.path[0]
import json
found, places = {}, {}
try:
    from importlib import metadata, util
except ImportError:
    pass
else:
    for name in sys.argv[2:]:
        try:
            one = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name], places[name] = one.version, str(one.locate_file(""))
    for name in ("tensorflow", "keras", "numpy"):
        spec = util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            places.setdefault(name, list(spec.submodule_search_locations)[0].rpartition("/")[0])
told = {"version": list(sys.version_info[:3]), "packages": found, "places": places, "path": sys.path}
print("\\n" + sys.argv[1] + json.dumps(told))
"""
# The lines of output that explain why a Python cannot be used: from Python itself, or from the loader of its libraries.
_TELLING = re.compile(r"^(\w+\.)*\w*(Error|Exception)\b|^Fatal Python error|error while loading shared librar|GLIBC")
_lock = Lock()
_under_way: dict[str, _Inquiry] = {}
_ends = False  # True after `give_up`: no interpreter is asked


class NoAnswer(Exception):
    """An interpreter has not answered; the text says why."""


class NotWaitedFor(NoAnswer):
    """The interpreter had not answered when `give_up` was called."""


class _Inquiry:
    """One process that asks `python`; `notice` gets its path after 1 s without an answer."""

    def __init__(self, python: str, names: Sequence[str], notice: Callable[[str], None]) -> None:
        self.python, self._names, self._notice = python, names, notice
        self.answer: Future[dict[str, Any]] = Future()
        self._process: subprocess.Popen[bytes] | None = None
        self.is_slow = False
        self._given_up = False

    def make(self) -> None:
        try:
            self.answer.set_result(self._ask())
        except BaseException as fault:  # noqa: BLE001 - raised again where the answer is read
            self.answer.set_exception(fault)

    def give_up(self) -> None:
        self._given_up = True
        self._end()

    def _ask(self) -> dict[str, Any]:
        python = self.python
        try:
            # In a group of its own, which is ended as a whole: it may be a script that has started something.
            self._process = child_process.start(
                [python, "-c", PROGRAM, MARK, *self._names], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, process_group=0,
            )  # fmt: skip
        except OSError as fault:
            raise NoAnswer(f"{python} cannot be run: {fault.strerror}") from None
        with self._process:
            try:
                output, log = self._output(self._process)
            except subprocess.TimeoutExpired:
                raise NoAnswer(f"{python} does not answer within {ANSWER_SECONDS:g} s") from None
            finally:
                self._end()
        if self._given_up:
            raise NotWaitedFor(f"{python} was not waited for")
        return _read(python, output, log)

    def _output(self, process: subprocess.Popen[bytes]) -> tuple[str, str]:
        """Raises TimeoutExpired after 10 s, or NoAnswer if an output is longer than 1 MiB."""
        if self._given_up:
            self._end()
        began = time.monotonic()
        printed: dict[Any, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
        with selectors.DefaultSelector() as streams:
            for stream in printed:
                streams.register(stream, selectors.EVENT_READ)
            while streams.get_map():
                for key, _ in streams.select(self._seconds_left(process, began)):
                    block = os.read(key.fd, MOST_BYTES)
                    printed[key.fileobj] += block
                    if not block:
                        streams.unregister(key.fileobj)
                    if len(printed[key.fileobj]) > MOST_BYTES:
                        raise NoAnswer(f"{self.python} is not a usable Python: it prints without end")
        process.wait(ANSWER_SECONDS)
        output, log = (block.decode("utf-8", "replace") for block in printed.values())
        return output, log

    def _seconds_left(self, process: subprocess.Popen[bytes], began: float) -> float:
        """Return the time until `notice` is due, which is called, or else until the time limit."""
        passed = time.monotonic() - began
        if passed >= ANSWER_SECONDS:
            raise subprocess.TimeoutExpired(process.args, ANSWER_SECONDS)
        if passed >= NOTICE_SECONDS and not self.is_slow:
            self.is_slow = True
            self._notice(self.python)
        return (ANSWER_SECONDS if self.is_slow else NOTICE_SECONDS) - passed

    def _end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)


def answer(python: str, names: Sequence[str], notice: Callable[[str], None]) -> dict[str, Any]:
    """The fields that PROGRAM prints: `version`, `packages` (of `names`), `places` and `path`. `notice` gets the
    interpreter's path after 1 s. Raises NoAnswer, and NotWaitedFor after `give_up`.
    """
    with _lock:
        if _ends:
            raise NotWaitedFor(f"{python} is not asked any more")
        under_way = _under_way.get(python)
        inquiry = under_way or _under_way.setdefault(python, _Inquiry(python, names, notice))
    if under_way is None:
        try:
            inquiry.make()
        finally:
            with _lock:
                del _under_way[python]
    else:
        with contextlib.suppress(TimeoutError):
            return under_way.answer.result(NOTICE_SECONDS)
        notice(python)
    return inquiry.answer.result()


def slow() -> str | None:
    """An interpreter that has not answered for 1 s."""
    with _lock:
        return next((inquiry.python for inquiry in _under_way.values() if inquiry.is_slow), None)


def begin() -> None:
    """Allow new questions after `give_up`."""
    global _ends
    _ends = False


def give_up() -> None:
    """Ask no more until `begin`; callers get NotWaitedFor."""
    global _ends
    with _lock:
        _ends = True
        inquiries = list(_under_way.values())
    for inquiry in inquiries:
        inquiry.give_up()


def _read(python: str, output: str, log: str) -> dict[str, Any]:
    if log.startswith(child_process.NOT_RUN):
        raise NoAnswer(f"{python} cannot be run: {log.removeprefix(child_process.NOT_RUN).strip()}")
    try:
        answer, _ = json.JSONDecoder().raw_decode(output[output.rindex(MARK) + len(MARK) :])
        return _whole(answer)
    except (ValueError, TypeError, RecursionError):
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        telling = lines[-1:] if len(lines) == 1 else [line for line in lines if _TELLING.search(line)][-1:]
        why = f": {_shown(telling[0])}" if telling else ": it does not answer as a Python does"
        raise NoAnswer(f"{python} is not a usable Python{why}") from None


def _whole(answer: Any) -> dict[str, Any]:
    """TypeError unless it has the form that PROGRAM prints."""
    if not isinstance(answer, dict):
        raise TypeError
    version, path, *texts = (answer.get(name) for name in ("version", "path", "packages", "places"))
    whole = isinstance(version, list) and len(version) == 3 and all(type(part) is int for part in version)
    whole = whole and isinstance(path, list) and all(isinstance(folder, str) for folder in path)
    for mapping in texts:
        whole = whole and isinstance(mapping, dict) and all(isinstance(text, str) for text in mapping.values())
    if not whole:
        raise TypeError
    return answer


def _shown(line: str) -> str:
    return "".join(character if character.isprintable() else " " for character in line)[:120]
