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

from ..frozen import dataclass
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
        """The shell command, which first removes packages with files in the same folder, or none would work."""
        add, remove = self._commands()
        in_the_way = " ".join(self._in_the_way(requirement))
        return f"{remove} {in_the_way} && {add} '{requirement}'" if in_the_way else f"{add} '{requirement}'"

    def _commands(self) -> tuple[str, str]:
        python = shlex.quote(self.python)
        if is_own(self.python) and _is_active("pip"):
            return "pip install", "pip uninstall -y"
        if "pip" in self.packages:
            return f"{python} -m pip install", f"{python} -m pip uninstall -y"
        return f"uv pip install --python {python}", f"uv pip uninstall --python {python}"

    def _in_the_way(self, requirement: str) -> Iterator[str]:
        """Installed packages of Keras, for TensorFlow of both, unless it is only the usual one, which pip replaces."""
        kinds = [kind for kind in (TENSORFLOW, KERAS) if requirement.startswith((kind[0], "tensorflow"))]
        for kind in kinds:
            there = [name for name in kind if name in self.packages]
            if there not in ([], [kind[0]]):
                yield from there

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
    if "/" not in text and not os.path.exists(path) and (program := _on_path(text)) is not None:
        return program
    if os.path.isdir(path):
        path = os.path.join(path, "bin", "python")
    return os.path.normpath(path)


def _is_active(name: str) -> bool:
    return os.path.dirname(_on_path(name) or "") == os.path.dirname(sys.executable)


def _on_path(name: str) -> str | None:
    import shutil

    return shutil.which(name)


def _no_notice(python: str) -> None:
    pass


# Called, in any thread, if an interpreter has not answered for a second.
notice: Callable[[str], None] = _no_notice


def is_own(python: str) -> bool:
    return python == sys.executable


def examine(python: str) -> Interpreter:
    """Queried again only if its file or packages have changed. Raises Unusable; such a one is queried again only if its
    file has changed, or after `forget_failures`, as that may take 10 s.
    """
    if is_own(python):
        return own()
    if (absent := _absent(python)) is not None:
        raise absent
    earlier = _known.get(python)
    if earlier is None or earlier.state != _state(python, earlier.search_path):
        earlier = _known[python] = _query(python)
    if earlier.interpreter is None:
        raise Unusable(*earlier.fault)
    return earlier.interpreter


def forget_failures() -> None:
    """The user may have repaired them."""
    for python, answer in list(_known.items()):
        if answer.interpreter is None:
            _known.pop(python, None)


def ask_with(tell: Callable[[str], None]) -> None:
    """`tell` gets, in any thread, the path of an interpreter that has not answered for 1 s. Allows questions."""
    global notice
    notice = tell
    if (inquiry := sys.modules.get(f"{__package__}.installed_query")) is not None:
        inquiry.begin()


def give_up() -> None:
    """End all questions until `ask_with`, so that the program can end at once. Callers get NotWaitedFor."""
    from . import installed_query as inquiry

    inquiry.give_up()


def slow() -> str | None:
    """An interpreter that has not answered for 1 s."""
    inquiry = sys.modules.get(f"{__package__}.installed_query")
    return None if inquiry is None else inquiry.slow()


def _query(python: str) -> _Answer:
    from . import installed_query as inquiry

    try:
        answer = inquiry.answer(python, ASKED, notice)
    except inquiry.NotWaitedFor as fault:
        raise NotWaitedFor(str(fault), NAME_ANOTHER) from None
    except inquiry.NoAnswer as fault:
        return _Answer(_state(python, ()), (), None, (str(fault), NAME_ANOTHER))
    described = Interpreter(
        python, tuple(answer["version"]), answer["packages"], answer["places"], tuple(answer["path"])
    )
    return _Answer(_state(python, described.search_path), described.search_path, described)


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


@dataclass(frozen=True)
class _Answer:
    """The interpreter, or why it has none and the remedy (`fault`); `state` is that of `_state` at that time."""

    state: tuple[int, ...]
    search_path: tuple[str, ...]
    interpreter: Interpreter | None
    fault: tuple[str, str] = ("", "")


_known: dict[str, _Answer] = {}  # by the path of the interpreter


def _state(python: str, search_path: Sequence[str]) -> tuple[int, ...]:
    return tuple(_changed(path) for path in (python, *search_path))


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _absent(python: str) -> Unusable | None:
    """The error if the path is no program that can be started."""
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
    """Read only once."""
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


# ---- its command ----------------------------------------------------------------------------------


_SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bootstrap", "run_module.py")


def command(python: str, module: str, *words: str) -> list[str]:
    """-P, or bootstrap/run_module.py in another one: a file in the current folder replaces no module of gputui."""
    start = ["-P"] if python == sys.executable else [_SCRIPT]
    return [python, *start, "-m", module, *words]


def environment(python: str) -> dict[str, str]:
    """The programs of another interpreter than gputui's are put on PATH, as if its environment was activated."""
    from ..system.child_process import OWN_PYTHON

    variables = dict(os.environ)
    variables.pop(OWN_PYTHON, None)
    if python == sys.executable:
        return variables
    programs, path = os.path.dirname(python), variables.get("PATH", "")
    if programs not in path.split(os.pathsep):
        variables["PATH"] = os.pathsep.join([programs, path] if path else [programs])
    return variables | {OWN_PYTHON: sys.executable}
