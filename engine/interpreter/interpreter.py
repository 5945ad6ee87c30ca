"""The interpreter in which a trainer runs: gputui's own, or one of the user's (run.python), which reports its packages.
Deferred imports: most commands ask no other interpreter.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import selectors
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock
from typing import Any

from ..files.reading import written_at
from . import supported_versions

VARIABLE = "GPUTUI_PYTHON"  # environment variable: the interpreter if run.python is not set
NAME_ANOTHER = "give the path of a Python, or of the folder of an environment that has one"
OLDEST, NEWEST = (3, 11), (3, 13)  # versions of Python: the trainer's code is that of gputui
# The packages that bring a module `tensorflow`; conda and NVIDIA's containers have theirs under the first name.
TENSORFLOW = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-cpu-aws",
    "tensorflow-gpu",
    "tensorflow-rocm",
    "intel-tensorflow",
    "intel-tensorflow-avx512",
    "tf-nightly",
    "tf-nightly-cpu",
)
KERAS = ("keras", "keras-nightly")
CUDNN = "nvidia-cudnn-cu12"
ASKED = (*TENSORFLOW, *KERAS, "numpy", CUDNN, "pip")


class Unusable(Exception):
    """No trainer can run in it; `change` says what to do about it."""

    def __init__(self, message: str, change: str) -> None:
        super().__init__(message)
        self.change = change


class NotWaitedFor(Unusable):
    """The interpreter had not answered when `give_up` was called."""


@dataclass(frozen=True)
class Interpreter:
    """`packages` has the versions of the installed ones of ASKED, and `places` the folders that contain them."""

    python: str
    version: tuple[int, int, int]
    packages: Mapping[str, str]
    places: Mapping[str, str]
    search_path: tuple[str, ...]

    @property
    def tensorflow(self) -> str | None:
        """None also if it is not installed as a package."""
        return self._version(TENSORFLOW)

    @property
    def overwritten(self) -> tuple[str, ...]:
        """Packages of which one has overwritten another; on ARM another needs tensorflow-cpu-aws."""
        there = tuple(name for name in TENSORFLOW if name in self.packages and name != "tensorflow-cpu-aws")
        return there if len(there) > 1 else ()

    @property
    def keras(self) -> str | None:
        return self._version(KERAS)

    @property
    def place(self) -> str | None:
        """The folder that contains the package tensorflow."""
        return next((self.places[name] for name in TENSORFLOW if name in self.places), None)

    def _version(self, names: Sequence[str]) -> str | None:
        return next((self.packages[name] for name in names if name in self.packages), None)

    @property
    def python_version(self) -> str:
        return ".".join(map(str, self.version))

    def install(self, requirement: str) -> str:
        """The shell command, which first removes packages with files in the same folder, or none would work: those of
        Keras, for TensorFlow of both, unless it is only the usual one, which pip replaces.
        """
        python = shlex.quote(self.python)
        if is_own(self.python) and os.path.dirname(shutil.which("pip") or "") == os.path.dirname(sys.executable):
            add, remove = "pip install", "pip uninstall -y"
        elif "pip" in self.packages:
            add, remove = f"{python} -m pip install", f"{python} -m pip uninstall -y"
        else:
            add, remove = f"uv pip install --python {python}", f"uv pip uninstall --python {python}"
        in_the_way: list[str] = []
        for kind in (TENSORFLOW, KERAS):
            there = [name for name in kind if name in self.packages]
            if requirement.startswith((kind[0], "tensorflow")) and there not in ([], [kind[0]]):
                in_the_way += there
        return f"{remove} {' '.join(in_the_way)} && {add} '{requirement}'" if in_the_way else f"{add} '{requirement}'"

    def __str__(self) -> str:
        versions = f"TensorFlow {self.tensorflow or 'of unknown version'}, Keras {self.keras or 'of unknown version'}"
        return f"{self.python}: {versions}, Python {self.python_version}"


def chosen(option: str | None) -> str:
    """run.python (`option`), or GPUTUI_PYTHON, or that of gputui."""
    return option or from_environment() or sys.executable


def from_environment() -> str | None:
    """GPUTUI_PYTHON, resolved from the current folder."""
    given = os.environ.get(VARIABLE, "").strip()
    return file_of(given) if given else None


def file_of(text: str, folder: str = "") -> str:
    """The absolute path of a file, a program on the path, or a folder of an environment; it need not exist. Links are
    kept, as a Python recognizes its environment by the path with which it is started.
    """
    path = os.path.join(os.path.abspath(folder), os.path.expanduser(text))
    if "/" not in text and not os.path.exists(path) and (program := shutil.which(text)) is not None:
        return program
    if os.path.isdir(path):
        path = os.path.join(path, "bin", "python")
    return os.path.normpath(path)


def is_own(python: str) -> bool:
    return python == sys.executable


@functools.cache
def own() -> Interpreter:
    """Read only once."""
    from importlib import metadata

    packages, places = {}, {}
    for name in ASKED:
        with contextlib.suppress(metadata.PackageNotFoundError):
            distribution = metadata.distribution(name)
            packages[name], places[name] = distribution.version, str(distribution.locate_file(""))
    if not any(name in places for name in TENSORFLOW) and (spec := find_spec("tensorflow")) is not None:
        places["tensorflow"] = os.path.dirname(next(iter(spec.submodule_search_locations or [""])))
    return Interpreter(sys.executable, sys.version_info[:3], packages, places, tuple(sys.path))


def examine(python: str) -> Interpreter:
    """Queried again only if its file or packages have changed. Raises Unusable; such a one is queried again only if its
    file has changed, or after `forget_failures`, as that may take 10 s.
    """
    if is_own(python):
        return own()
    if not os.path.exists(python):
        folder = os.path.dirname(os.path.dirname(python))
        if python.endswith("/bin/python") and os.path.isdir(folder):
            raise Unusable(f"{folder} has no bin/python, so it is not a Python environment", NAME_ANOTHER)
        raise Unusable(f"{python} does not exist", NAME_ANOTHER)
    if not os.access(python, os.X_OK):
        raise Unusable(f"{python} cannot be executed", NAME_ANOTHER)
    state, answer = _known.get(python, ((), None))
    if answer is None or state != _state(python, answer):
        try:
            answer = _answer(python)
        except NotWaitedFor:
            raise
        except Unusable as fault:
            answer = str(fault)
        _known[python] = _state(python, answer), answer
    if isinstance(answer, str):
        raise Unusable(answer, NAME_ANOTHER)
    return answer


# By path: an interpreter, or why it cannot be used, with its state at that time.
_known: dict[str, tuple[tuple[float, ...], Interpreter | str]] = {}


def _state(python: str, answer: Interpreter | str) -> tuple[float, ...]:
    return tuple(written_at(Path(path)) for path in (python, *(() if isinstance(answer, str) else answer.search_path)))


def forget_failures() -> None:
    """The user may have repaired them."""
    for python in [python for python, (_, answer) in _known.items() if isinstance(answer, str)]:
        _known.pop(python, None)


def require(python: str) -> Interpreter:
    """Examine the interpreter. Raises Unusable unless it is Python 3.11 to 3.13 and, if not gputui's own, has
    TensorFlow, Keras and NumPy, whose versions supported_versions.py judges.
    """
    described = examine(python)
    if not OLDEST <= described.version[:2] <= NEWEST:
        supported = "{}.{} to {}.{}".format(*OLDEST, *NEWEST)
        what = f"{python} is Python {described.python_version}, and gputui trains in Python {supported}"
        raise Unusable(what, "name another interpreter, or make an environment with one of these")
    keras, numpy = described.places.get("keras"), described.places.get("numpy")
    for name, there in (("TensorFlow", described.place), ("Keras", keras), ("NumPy", numpy)):
        if there is None and not is_own(python):
            raise Unusable(f"{python} has no {name}", described.install(supported_versions.REQUIRED[name]))
    return described


# ---- what is installed --------------------------------------------------------------------------


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
told = {"version": list(sys.version_info[:3]), "packages": found, "places": places, "search_path": sys.path}
print("\\n" + sys.argv[1] + json.dumps(told))
"""
# The lines of output that explain why a Python cannot be used: from Python itself, or from the loader of its libraries.
_TELLING = re.compile(r"^(\w+\.)*\w*(Error|Exception)\b|^Fatal Python error|error while loading shared librar|GLIBC")
_lock = Lock()
_under_way: dict[str, _Inquiry] = {}
_ends = False  # True after `give_up`: no interpreter is asked
# Called, in any thread, with the path of an interpreter that has not answered for a second.
notice: Callable[[str], object] = str


class _Inquiry:
    """One process that asks `python`."""

    def __init__(self, python: str) -> None:
        self.python = python
        self.answer: Interpreter | BaseException | None = None
        self.has_ended = Event()
        self.is_slow = self.is_given_up = False
        self._process: Any = None

    def ask(self) -> Interpreter:
        """Raises Unusable, also if there is no answer after 10 s or an output is longer than 1 MiB."""
        import subprocess

        from ..files import typed
        from ..system import child_process

        python = self.python
        try:
            # In a group of its own, which is ended as a whole: it may be a script that has started something.
            self._process = child_process.start(
                [python, "-c", PROGRAM, MARK, *ASKED], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, process_group=0,
            )  # fmt: skip
        except OSError as fault:
            raise Unusable(f"{python} cannot be run: {fault.strerror}", NAME_ANOTHER) from None
        if self.is_given_up:
            self.end()
        began, printed = time.monotonic(), {self._process.stdout: bytearray(), self._process.stderr: bytearray()}
        with self._process, selectors.DefaultSelector() as streams:
            try:
                for stream in printed:
                    streams.register(stream, selectors.EVENT_READ)
                while streams.get_map():
                    passed = time.monotonic() - began
                    if passed >= ANSWER_SECONDS:
                        raise TimeoutError
                    if passed >= NOTICE_SECONDS and not self.is_slow:
                        self.is_slow = True
                        notice(python)
                    for key, _ in streams.select((ANSWER_SECONDS if self.is_slow else NOTICE_SECONDS) - passed):
                        block = os.read(key.fd, MOST_BYTES)
                        printed[key.fileobj] += block
                        if not block:
                            streams.unregister(key.fileobj)
                        if len(printed[key.fileobj]) > MOST_BYTES:
                            what = f"{python} is not a usable Python: it prints without end"
                            raise Unusable(what, NAME_ANOTHER)
                self._process.wait(ANSWER_SECONDS)
            except (TimeoutError, subprocess.TimeoutExpired):
                raise Unusable(f"{python} does not answer within {ANSWER_SECONDS:g} s", NAME_ANOTHER) from None
            finally:
                self.end()
        output, log = (block.decode("utf-8", "replace") for block in printed.values())
        if self.is_given_up:
            raise NotWaitedFor(f"{python} was not waited for", NAME_ANOTHER)
        if log.startswith(child_process.NOT_RUN):
            why = log.removeprefix(child_process.NOT_RUN).strip()
            raise Unusable(f"{python} cannot be run: {why}", NAME_ANOTHER)
        try:
            answer, _ = json.JSONDecoder().raw_decode(output[output.rindex(MARK) + len(MARK) :])
            return typed.convert(answer | {"python": python}, Interpreter)
        except (ValueError, TypeError, RecursionError):
            lines = [line.strip() for line in log.splitlines() if line.strip()]
            telling = lines[-1:] if len(lines) == 1 else [line for line in lines if _TELLING.search(line)][-1:]
            shown = ["".join(each if each.isprintable() else " " for each in line)[:120] for line in telling]
            why = "".join(shown) or "it does not answer as a Python does"
            raise Unusable(f"{python} is not a usable Python: {why}", NAME_ANOTHER) from None

    def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _answer(python: str) -> Interpreter:
    """Callers that ask the same interpreter meanwhile wait for the same answer. Raises Unusable."""
    with _lock:
        if _ends:
            raise NotWaitedFor(f"{python} is not asked any more", NAME_ANOTHER)
        under_way = _under_way.get(python)
        inquiry = under_way or _under_way.setdefault(python, _Inquiry(python))
    if under_way is None:
        try:
            inquiry.answer = inquiry.ask()
        except BaseException as fault:  # noqa: BLE001 - raised again for each caller
            inquiry.answer = fault
        finally:
            inquiry.has_ended.set()
            with _lock:
                del _under_way[python]
    elif not inquiry.has_ended.wait(NOTICE_SECONDS):
        notice(python)
        inquiry.has_ended.wait()
    if not isinstance(inquiry.answer, Interpreter):
        raise inquiry.answer or AssertionError("there is no answer")
    return inquiry.answer


def slow() -> str | None:
    """An interpreter that has not answered for 1 s."""
    with _lock:
        return next((inquiry.python for inquiry in _under_way.values() if inquiry.is_slow), None)


def ask_with(tell: Callable[[str], object]) -> None:
    """`tell` gets, in any thread, the path of an interpreter that has not answered for 1 s. Allows questions."""
    global notice, _ends
    notice, _ends = tell, False


def give_up() -> None:
    """End all questions until `ask_with`, so that the program can end at once. Callers get NotWaitedFor."""
    global _ends
    with _lock:
        _ends = True
        inquiries = list(_under_way.values())
    for inquiry in inquiries:
        inquiry.is_given_up = True
        inquiry.end()


# ---- its command ----------------------------------------------------------------------------------


_SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bootstrap", "run_module.py")


def command(python: str, module: str, *words: str) -> list[str]:
    """-P, or bootstrap/run_module.py in another one: a file in the current folder replaces no module of gputui."""
    start = ["-P"] if is_own(python) else [_SCRIPT]
    return [python, *start, "-m", module, *words]


def environment(python: str) -> dict[str, str]:
    """The programs of another interpreter than gputui's are put on PATH, as if its environment was activated."""
    from ..system import child_process

    variables = dict(os.environ)
    variables.pop(child_process.OWN_PYTHON, None)
    if is_own(python):
        return variables
    programs, path = os.path.dirname(python), variables.get("PATH", "")
    if programs not in path.split(os.pathsep):
        variables["PATH"] = os.pathsep.join([programs, path] if path else [programs])
    return variables | {child_process.OWN_PYTHON: sys.executable}
