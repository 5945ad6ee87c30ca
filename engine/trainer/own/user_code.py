"""Runs a user's code as `python train.py` would: its folder first on the path, in the folder it was started in.

Separates their code from ours: whatever they raise, now or while TensorFlow traces and runs their functions, is told as
file, line, source line and message of their code. The full traceback goes to engine.log.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import keras
import tensorflow as tf

from ...presets import entry as entries
from ...presets.entry import Entry
from ..common.faults import TrainerError
from ..common.stopping import StopRequested

_OURS = str(Path(__file__).resolve().parents[2])
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_NOT_THEIRS = (TrainerError, StopRequested, MemoryError, tf.errors.ResourceExhaustedError)
_PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\s,]+)')
_OP_NAMES = re.compile(r"\{\{[^}]*\}\}|\[\[.*?\]\]|\[Op:[^\]]*\]")
_NOISE = re.compile(
    r"^(in user code:|Graph execution error|Detected at node|Stack trace for op|Arguments received by"
    r"|<stack traces unavailable>|Traceback \(most recent)"
)
_KIND = re.compile(r"[A-Za-z_.]*(Error|Exception|Interrupt|Warning)\b")


OWN_STRATEGY = "leave out a tf.distribute strategy of your own: strategy.kind makes it, and calls build in its scope"


class UserError(TrainerError):
    """Something that the user's code did or handed over."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__("user_code", message, hint)


class UserCode:
    """The function of the entry, and where its code lies."""

    def __init__(self, entry: str, folder: str) -> None:
        """Run the module; raises UserError."""
        self.entry = entries.parse(entry)
        self.folder = Path(folder)
        try:
            os.chdir(folder)
        except OSError as fault:
            raise UserError(f"workload.folder: {folder} cannot be entered: {fault.strerror}") from None
        # Filtered tracebacks have lost the very lines that are looked for.
        keras.config.disable_traceback_filtering()
        tf.debugging.disable_traceback_filtering()
        try:
            self.file = entries.source_file(self.entry, self.folder)
        except entries.EntryFault as fault:
            raise UserError(str(fault), fault.change) from None
        self.home = self.file.parent if self.entry.file else self.folder
        sys.argv = [str(self.file)]  # the trainer's own words mean nothing to a parser of theirs
        sys.path.insert(0, str(self.home))
        importlib.invalidate_caches()
        with self.blamed():
            module = _imported(self.entry, self.file)
        self.function = self._function(module)

    def _function(self, module: ModuleType) -> Callable[[Any], Any]:
        found = getattr(module, self.entry.function, None)
        if not callable(found):
            raise UserError(f"{self.file.name} has no function {self.entry.function}", "workload.entry names it")
        return found

    def blamed(self, found_only: bool = False) -> Blamed:
        """Around calls of their code: what it raises becomes a UserError that says where.

        With `found_only` a fault that passed through none of their lines stays what it is.
        """
        return Blamed(self, found_only)

    def error_of(self, fault: BaseException) -> UserError | None:
        """A fault as their code's, or None where no line of theirs is part of it."""
        place = self._place(fault)
        if place is None:
            return None
        file, line, function = place
        source = linecache.getline(file, line).strip()
        name = self.name_of(file)
        inside = f" in {function}" if function and function != "<module>" else ""
        message = f"{name}:{line}{inside}: {_what(fault)}"
        hint = OWN_STRATEGY if "Strategy" in message else "the full traceback is in engine.log"
        return UserError(message + (f"\n    {source}" if source else ""), hint)

    def _place(self, fault: BaseException) -> tuple[str, int, str] | None:
        """The innermost of their lines: of what TensorFlow tells in its message, else of the traceback."""
        if isinstance(fault, SyntaxError) and fault.filename and self.owns_file(fault.filename):
            return fault.filename, fault.lineno or 1, ""
        told = [match for match in _PLACE.finditer(str(fault)) if self.owns_file(match["file"])]
        if told:
            return told[-1]["file"], int(told[-1]["line"]), told[-1]["function"]
        frames = [frame for link in _chain(fault) for frame in _frames(link.__traceback__) if self.owns_file(frame[0])]
        return frames[-1] if frames else None

    def owns_file(self, file: str) -> bool:
        """Below the folders of their code, and neither installed there nor ours."""
        if file.startswith("<"):  # <frozen importlib._bootstrap>, <string>: no file
            return False
        path = os.path.abspath(file)
        if path == str(self.file):
            return True
        if path.startswith((*_INSTALLED, _OURS)) or "/site-packages/" in path or "__autograph_generated" in path:
            return False
        return any(Path(path).is_relative_to(home) for home in (self.home, self.folder))

    def name_of(self, file: str) -> str:
        """As a person knows it: from the folder of their code."""
        return os.path.relpath(file, self.home) if Path(file).is_relative_to(self.home) else file

    def owns(self, module: str) -> bool:
        """Whether a module that has been imported is of their code."""
        file = getattr(sys.modules.get(module), "__file__", None)
        return file is not None and self.owns_file(file)

    def modules(self) -> list[ModuleType]:
        """Those of their code, in the order in which they were imported."""
        return [module for name, module in list(sys.modules.items()) if self.owns(name)]

    def shadowed(self) -> list[str]:
        """Modules beside theirs that are not used, because Python imported others of these names first."""
        found = []
        for path in sorted(self.home.glob("*.py")):
            loaded = sys.modules.get(path.stem)
            origin = getattr(loaded, "__file__", None)
            if loaded is not None and origin != str(path):
                found.append(path.name)
        return found


class Blamed:
    """A context in which faults of the user's code become UserErrors."""

    def __init__(self, code: UserCode, found_only: bool) -> None:
        self._code, self._found_only = code, found_only

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, fault: BaseException | None, trace: Any) -> None:
        if fault is None or isinstance(fault, _NOT_THEIRS):
            return
        if isinstance(fault, SystemExit):
            raise UserError(f"{self._code.file.name} ended the process with sys.exit", "return instead") from fault
        if isinstance(fault, Exception):
            told = self._code.error_of(fault)
            if told is None and self._found_only:
                return
            raise told or UserError(f"{self._code.entry}: {_what(fault)}") from fault


def _imported(entry: Entry, file: Path) -> ModuleType:
    """The module under its own name, as an import of it beside its folder would give; never as __main__."""
    if entry.module is not None:
        return importlib.import_module(entry.module)
    name = file.stem if file.stem.isidentifier() and file.stem not in sys.modules else f"_own_{abs(hash(str(file)))}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _chain(fault: BaseException | None) -> Iterator[BaseException]:
    """The faults that led to this one, the first of them first."""
    if fault is not None:
        yield from _chain(fault.__cause__ or (None if fault.__suppress_context__ else fault.__context__))
        yield fault


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno, trace.tb_frame.f_code.co_name
        trace = trace.tb_next


def _what(fault: BaseException) -> str:
    """Kind and message of a fault, in a line."""
    if isinstance(fault, SyntaxError):
        return f"{type(fault).__name__}: {fault.msg}"
    told = _after_places(str(fault))
    if told:
        return told[:300]
    lines = [_OP_NAMES.sub("", line).strip() for line in str(fault).splitlines()]
    lines = [line for line in lines if line and not _PLACE.search(line) and not _NOISE.match(line)]
    return f"{type(fault).__name__}: {lines[0] if lines else 'no message'}"[:300]


def _after_places(text: str) -> str:
    """Where TensorFlow tells places and source lines, the Python error itself comes after them, kind included."""
    lines = text.splitlines()
    last = max((i for i, line in enumerate(lines) if _PLACE.search(line)), default=len(lines))
    rest = (_OP_NAMES.sub("", line).strip() for line in lines[last + 1 :])
    return next((line for line in rest if _KIND.match(line)), "")
