"""What is installed for training, from the lists and files of pip's packages. TensorFlow is not imported for this.
Inside `with of(python):` it is about the interpreter `python`, in which a trainer is to run (run.python).
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import interpreter, supported_versions
from .interpreter import CUDNN as CUDNN
from .interpreter import Interpreter

Version = tuple[int, int]
LIBCUDNN = "libcudnn.so.9"
_meant: ContextVar[Callable[[], Interpreter] | None] = ContextVar("meant", default=None)


@contextlib.contextmanager
def of(python: str) -> Iterator[None]:
    """The interpreter is queried when a function needs it. If it does not answer, no package is installed for it."""
    token = _meant.set(functools.cache(functools.partial(_interpreter, python)))
    try:
        yield
    finally:
        _meant.reset(token)


def _interpreter(python: str) -> Interpreter:
    try:
        return interpreter.examine(python)
    except interpreter.Unusable:
        return Interpreter(python, (0, 0, 0), {}, {}, ())


def intended() -> Interpreter:
    look = _meant.get()
    return interpreter.own() if look is None else look()


def tensorflow_version() -> str | None:
    """None also if it is not installed as a package."""
    return intended().tensorflow


def with_cuda() -> str:
    """How to get a TensorFlow that can use GPUs: its own packages for ARM are built without CUDA."""
    if not supported_versions.HAS_CUDA:
        return supported_versions.WITH_CUDA_ON_ARM
    return intended().install(supported_versions.TENSORFLOW)


def install(package: str) -> str:
    if not interpreter.is_own(intended().python):
        return intended().install(package)
    return f"pip install '{package}'" if ">" in package else f"pip install {package}"


@dataclass(frozen=True)
class Cudnn:
    """A cuDNN that TensorFlow loads."""

    version: Version | None
    folder: str = ""  # of LD_LIBRARY_PATH, if it is from there
    instead_of: Version | None = None  # of pip's cuDNN, which is then not loaded


def cudnn() -> Cudnn | None:
    """The first in LD_LIBRARY_PATH, else pip's: TensorFlow's own path to pip's libraries is a RUNPATH, which the loader
    searches after LD_LIBRARY_PATH (man ld.so). With neither it loads one of the system.
    """
    pips = two_numbers(intended().packages.get(CUDNN))
    own = site("nvidia/cudnn/lib")
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        library = Path(folder, LIBCUDNN)
        if folder and library.exists():
            if own is not None and os.path.realpath(folder) == os.path.realpath(own):
                break
            return Cudnn(version_of_cudnn(library), folder, pips)
    return None if pips is None else Cudnn(pips)


def version_of_cudnn(library: Path) -> Version | None:
    """The version is in the name of the file behind the link, or of the pip package that has it."""
    if named := re.search(r"\.so\.(\d+\.\d+)", os.path.realpath(library)):
        return two_numbers(named[1])
    is_pips = library.absolute().parts[-4:-1] == ("nvidia", "cudnn", "lib")
    packages = library.absolute().parents[3].glob("nvidia_cudnn_cu*.dist-info") if is_pips else ()
    return next((two_numbers(path.name.split("-")[1]) for path in packages), None)


def cudnn_version() -> Version | None:
    """Return the version of the loaded one; None for one of the system."""
    loaded = cudnn()
    return None if loaded is None else loaded.version


def tensorflow_numbers() -> Version | None:
    """The first two."""
    return two_numbers(tensorflow_version())


def build_info() -> dict[str, Any]:
    """Return what `tf.sysconfig.get_build_info()` returns, read from its source file."""
    return _build_info(site("tensorflow/python/platform/build_info.py"))


@functools.cache
def _build_info(path: Path | None) -> dict[str, Any]:
    try:
        source = path.read_text(encoding="utf-8") if path else ""
        listed = re.search(r"OrderedDict\((\[.*\])\)", source, re.DOTALL)
        return dict(ast.literal_eval(listed[1])) if listed else {}
    except (OSError, ValueError, SyntaxError):
        return {}


def cuda_version() -> tuple[int, int] | None:
    """Return the CUDA that TensorFlow was built with, if any."""
    return two_numbers(build_info().get("cuda_version"))


def capabilities() -> list[tuple[int, int]]:
    """Return those for which TensorFlow contains machine code."""
    return _targets("sm")


def newest_target() -> tuple[int, int] | None:
    """Return the newest as machine code or as PTX, which the driver compiles for later chips."""
    return max([*_targets("sm"), *_targets("compute")], default=None)


def _targets(kind: str) -> list[tuple[int, int]]:
    names = build_info().get("cuda_compute_capabilities", [])
    matches = [re.fullmatch(rf"{kind}_(\d+)(\d)", str(name)) for name in names]
    return [(int(match[1]), int(match[2])) for match in matches if match]


def site(relative: str) -> Path | None:
    """Return the path in the folder of the installed TensorFlow; None if it does not exist."""
    place = intended().place
    path = Path(place) / relative if place is not None else None
    return path if path is not None and path.exists() else None


def two_numbers(text: object) -> Version | None:
    """The first two numbers of a version such as `9.3.0`."""
    match = re.match(r"(\d+)\.(\d+)", str(text or ""))
    return (int(match[1]), int(match[2])) if match else None
