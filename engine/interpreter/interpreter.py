"""The interpreter in which a trainer runs: gputui's own, or one of the user's (run.python).

The interpreter itself reports what is installed for it, in a process that imports nothing that takes long.

Deferred imports: most commands ask no other interpreter.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    """An interpreter in which no trainer can run; the text says why, `change` what to do."""

    def __init__(self, message: str, change: str) -> None:
        super().__init__(message)
        self.change = change


class NotWaitedFor(Unusable):
    """An interpreter that had not answered when the question was given up."""


@dataclass(frozen=True)
class Interpreter:
    """A Python, what of ASKED is installed for it, and in which folders; `search_path` is its sys.path."""

    python: str
    version: tuple[int, int, int]
    packages: Mapping[str, str]
    places: Mapping[str, str]
    search_path: tuple[str, ...]

    @property
    def tensorflow(self) -> str | None:
        """The version; None if no package tells it."""
        return self._version(TENSORFLOW)

    @property
    def overwritten(self) -> tuple[str, ...]:
        """The packages that bring a module `tensorflow` if there are several; on ARM one of them needs another."""
        there = tuple(name for name in TENSORFLOW if name in self.packages and name != "tensorflow-cpu-aws")
        return there if len(there) > 1 else ()

    @property
    def keras(self) -> str | None:
        return self._version(KERAS)

    @property
    def place(self) -> str | None:
        """The folder that contains the package tensorflow; None if there is none."""
        return next((self.places[name] for name in TENSORFLOW if name in self.places), None)

    def _version(self, names: Sequence[str]) -> str | None:
        return next((self.packages[name] for name in names if name in self.packages), None)

    @property
    def python_version(self) -> str:
        return ".".join(map(str, self.version))

    def install(self, requirement: str) -> str:
        """The command that installs a package for it.

        Packages with files in the same folder are removed first: otherwise neither they nor the new one would work.
        """
        add, remove = self._commands()
        in_the_way = " ".join(self._in_the_way(requirement))
        return f"{remove} {in_the_way} && {add} '{requirement}'" if in_the_way else f"{add} '{requirement}'"

    def _commands(self) -> tuple[str, str]:
        """The commands that install packages for it, and remove them; environments of uv have no pip."""
        python = shlex.quote(self.python)
        if is_own(self.python) and _is_active("pip"):
            return "pip install", "pip uninstall -y"
        if "pip" in self.packages:
            return f"{python} -m pip install", f"{python} -m pip uninstall -y"
        return f"uv pip install --python {python}", f"uv pip uninstall --python {python}"

    def _in_the_way(self, requirement: str) -> Iterator[str]:
        """The installed packages of TensorFlow or Keras, if another than the usual one is among them."""
        kinds = [kind for kind in (TENSORFLOW, KERAS) if requirement.startswith((kind[0], "tensorflow"))]
        for kind in kinds:
            there = [name for name in kind if name in self.packages]
            if there not in ([], [kind[0]]):
                yield from there

    def __str__(self) -> str:
        """Its path and the versions of what trains in it."""
        versions = f"TensorFlow {self.tensorflow or 'of unknown version'}, Keras {self.keras or 'of unknown version'}"
        return f"{self.python}: {versions}, Python {self.python_version}"


def chosen(option: str | None) -> str:
    """The interpreter of a training: run.python, or GPUTUI_PYTHON, or that of gputui."""
    return option or from_environment() or sys.executable


def from_environment() -> str | None:
    """The interpreter that GPUTUI_PYTHON names, as a path from the current folder; None if it names none."""
    given = os.environ.get(VARIABLE, "").strip()
    return file_of(given) if given else None


def file_of(text: str, folder: str = "") -> str:
    """The absolute path of an interpreter as people name it: a file, or the folder of an environment.

    The links of an environment are kept: by its own path a Python knows in which environment it runs.
    """
    path = os.path.join(os.path.abspath(folder), os.path.expanduser(text))
    if "/" not in text and not os.path.exists(path) and (program := _on_path(text)) is not None:
        return program
    if os.path.isdir(path):
        path = os.path.join(path, "bin", "python")
    return os.path.normpath(path)


def _is_active(name: str) -> bool:
    """Whether a shell finds this program in the environment of gputui."""
    return os.path.dirname(_on_path(name) or "") == os.path.dirname(sys.executable)


def _on_path(name: str) -> str | None:
    """The program that a shell would start by a name such as python3."""
    import shutil

    return shutil.which(name)


def _no_notice(python: str) -> None:
    pass


# Called, in whatever thread, when the answer of an interpreter has been waited for a second.
notice: Callable[[str], None] = _no_notice


def is_own(python: str) -> bool:
    return python == sys.executable


def look(python: str) -> Interpreter:
    """The interpreter's version and packages, asked again when it or they have changed; raises Unusable.

    One that does not answer is asked once, as that may take long: again when its file has changed, or after
    `forget_failures`.
    """
    if is_own(python):
        return own()
    if (absent := _absent(python)) is not None:
        raise absent
    earlier = _known.get(python)
    if earlier is None or earlier.state != _state(python, earlier.search_path):
        earlier = _known[python] = _asked(python)
    if earlier.found is None:
        raise Unusable(*earlier.fault)
    return earlier.found


def forget_failures() -> None:
    """Ask again for what has not answered: somebody may have mended it."""
    for python, answer in list(_known.items()):
        if answer.found is None:
            _known.pop(python, None)


def ask_with(tell: Callable[[str], None]) -> None:
    """Ask until `give_up`; `tell` is called, in whatever thread, when an answer has been waited for a second."""
    global notice
    notice = tell
    if (inquiry := sys.modules.get(f"{__package__}.inquiry")) is not None:
        inquiry.begin()


def give_up() -> None:
    """End the questions that are being asked, and ask none any more, so that nobody waits who wants to leave."""
    from . import inquiry

    inquiry.give_up()


def slow() -> str | None:
    """The interpreter whose answer has been waited for a second or more, if there is one."""
    inquiry = sys.modules.get(f"{__package__}.inquiry")
    return None if inquiry is None else inquiry.slow()


def _asked(python: str) -> _Told:
    from . import inquiry

    try:
        answer = inquiry.answer(python, ASKED, notice)
    except inquiry.NotWaitedFor as fault:
        raise NotWaitedFor(str(fault), NAME_ANOTHER) from None
    except inquiry.NoAnswer as fault:
        return _Told(_state(python, ()), (), None, (str(fault), NAME_ANOTHER))
    described = Interpreter(
        python, tuple(answer["version"]), answer["packages"], answer["places"], tuple(answer["path"])
    )
    return _Told(_state(python, described.search_path), described.search_path, described)


def require(python: str) -> Interpreter:
    """The same for one in which a trainer can run; tensorflow_range.py judges its packages. Raises Unusable."""
    described = look(python)
    if not OLDEST <= described.version[:2] <= NEWEST:
        supported = "{}.{} to {}.{}".format(*OLDEST, *NEWEST)
        what = f"{python} is Python {described.python_version}, and gputui trains in Python {supported}"
        raise Unusable(what, "name another interpreter, or make an environment with one of these")
    places = {
        "TensorFlow": described.place,
        "Keras": described.places.get("keras"),
        "NumPy": described.places.get("numpy"),
    }
    for name, there in places.items():
        if there is None and not is_own(python):
            raise Unusable(f"{python} has no {name}", described.install(supported_versions.REQUIRED[name]))
    return described


@dataclass(frozen=True)
class _Told:
    """What an interpreter has told, or why it has not, with the state of its files at that time."""

    state: tuple[int, ...]
    search_path: tuple[str, ...]
    found: Interpreter | None
    fault: tuple[str, str] = ("", "")


_known: dict[str, _Told] = {}  # by path


def _state(python: str, search_path: Sequence[str]) -> tuple[int, ...]:
    """When the interpreter and the folders of its packages were last changed; 0 for one that is not there."""
    return tuple(_changed(path) for path in (python, *search_path))


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _absent(python: str) -> Unusable | None:
    """Why there is nothing to start, before it is tried."""
    if not os.path.exists(python):
        folder = os.path.dirname(os.path.dirname(python))
        if python.endswith("/bin/python") and os.path.isdir(folder):
            return Unusable(f"{folder} has no bin/python, so it is not a Python environment", NAME_ANOTHER)
        return Unusable(f"{python} does not exist", NAME_ANOTHER)
    if not os.access(python, os.X_OK):
        return Unusable(f"{python} cannot be executed", NAME_ANOTHER)
    return None


@functools.cache
def own() -> Interpreter:
    """That of this process."""
    from importlib import metadata
    from importlib.util import find_spec

    packages, places = {}, {}
    for name in ASKED:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        packages[name], places[name] = distribution.version, str(distribution.locate_file(""))
    if not any(name in places for name in TENSORFLOW) and (spec := find_spec("tensorflow")) is not None:
        places["tensorflow"] = os.path.dirname(next(iter(spec.submodule_search_locations or [""])))
    return Interpreter(sys.executable, sys.version_info[:3], packages, places, tuple(sys.path))
