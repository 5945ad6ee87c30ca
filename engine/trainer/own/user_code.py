"""Runs a user's code as `python train.py` would: its folder first on the path, in the folder that it was started in. An
exception of it, also within TensorFlow, is reported as file, line, source line and message of the user's code.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import importlib
import importlib.util
import linecache
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

from ... import entry as entries
from ...entry import Entry
from ...files import writing
from ...runs import Run, code_copy, code_files
from ..common.stopping import StopRequested
from ..common.training_errors import TrainerError, first_line

_OURS = str(Path(__file__).resolve().parents[2])
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_NOT_THEIRS = (TrainerError, StopRequested, MemoryError, tf.errors.ResourceExhaustedError)
_PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\s,]+)')
_KIND = re.compile(r"[A-Za-z_.]*(Error|Exception|Interrupt|Warning)\b")


NO_ARGUMENTS = (
    "a script gets no arguments here: give each a default, and read workload.args in build instead, as context.args"
)
ARGUMENTS = "give its arguments behind its name: gputui run SCRIPT ARGUMENTS; in a preset they are workload.argv"
OWN_STRATEGY = "remove your own tf.distribute strategy: strategy.kind creates it, and your code runs in its scope"


class UserError(TrainerError):
    """A fault in the user's code, or in the value that it returned."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__("user_code", message, hint)


def contains_none(data: str) -> UserError:
    """Return the error for batches in which a part is None, as Keras' fit takes them for an optional input."""
    hint = "leave out what is None: build the model without this input"
    return UserError(f"{data} contains None, which is no array", hint)


class UserCode:
    """The code that workload.entry names and its files, from the run's `copy` if there is one. A script runs by `run`;
    of other code `load` returns the function.
    """

    def __init__(self, entry: str, folder: str, copy: Path | None = None) -> None:
        """Prepare this process as Python does for `python train.py`. Raises UserError."""
        self.entry = entries.parse(entry)
        self.folder = Path(folder)
        self._owned: dict[str, bool] = {}  # by the file of a module
        try:
            os.chdir(folder)
        except OSError as fault:
            raise UserError(f"workload.folder: cannot change to {folder}: {fault.strerror}") from None
        # Keras' filtered tracebacks lack the lines of the user's code.
        keras.config.disable_traceback_filtering()
        tf.debugging.disable_traceback_filtering()
        try:
            self.file = entries.source_file(code_copy.used_entry(self.entry, copy), self.folder)
        except entries.EntryFault as fault:
            raise UserError(str(fault), fault.change) from None
        self.home = self.file.parent if self.entry.file else self.folder
        self.origin = self.home if copy is None else (self.folder / os.path.expanduser(str(self.entry.file))).parent
        sys.argv = [str(self.file)]  # the trainer's own arguments would confuse an argument parser in the user's code
        sys.path.insert(0, str(self.home))
        importlib.invalidate_caches()

    def load(self) -> Any:
        """Import the module of the user's code, which runs it, and return the function. Raises UserError."""
        assert self.entry.function is not None
        with self.blamed():
            module = _imported(self.entry, self.file)
        function: Any = getattr(module, self.entry.function, None)
        if not callable(function):
            raise UserError(f"{self.file.name} has no function {self.entry.function}", "workload.entry names it")
        return function

    def run(self, arguments: Sequence[str]) -> None:
        """Run the script to its end, as the module __main__. Raises what it raises, and UserError for its syntax."""
        sys.argv = [str(self.file), *arguments]
        main = sys.modules["__main__"] = ModuleType("__main__")
        main.__file__ = str(self.file)
        vars(main)["__builtins__"] = builtins
        exec(compile(self.file.read_bytes(), str(self.file), "exec", dont_inherit=True), vars(main))

    @contextlib.contextmanager
    def blamed(self, found_only: bool = False, script: bool = False) -> Iterator[None]:
        """A context in which an exception of the user's code becomes a UserError with its place. With `found_only`, one
        that passed through no line of their code stays, as do errors of the trainer, stops and exhausted memory.
        """
        try:
            yield
        except _NOT_THEIRS:
            raise
        except SystemExit as fault:
            if script and fault.code in (None, 0):
                return
            place = self._place(fault)
            where, source = self._shown(*place) if place is not None else (self.file.name, "")
            for frame, _ in traceback.walk_tb(fault.__traceback__):
                if frame.f_code is argparse.ArgumentParser.error.__code__:  # an argument parser has ended the process
                    names = frame.f_locals
                    usage = " ".join(names["self"].format_usage().split())
                    refused = f"{names['message']} ({usage})"[:300]
                    raise UserError(f"{where}: {refused}{source}", ARGUMENTS if script else NO_ARGUMENTS) from fault
            status = f": {fault.code}" if isinstance(fault.code, str) else f" and the status {fault.code}" * script
            what = f"{where} ended the process with sys.exit{status}{source}"
            raise UserError(what, "" if script else "return instead") from fault
        except Exception as fault:
            error = self.error_of(fault)
            if error is None and found_only:
                raise
            if error is None and (place := self._calling()) is not None:  # a script has called fit there
                where, source = self._shown(*place)
                error = UserError(f"{where}: {_what(fault)}{source}", "the full traceback is in engine.log")
            raise error or UserError(f"{self.entry}: {_what(fault)}") from fault

    def error_of(self, fault: BaseException) -> UserError | None:
        """Return the error with the place in the user's code. None if no line of it is involved."""
        if (place := self._place(fault)) is None:
            return None
        where, source = self._shown(*place)
        message = f"{where}: {_what(fault)}"
        hint = OWN_STRATEGY if "Strategy" in message else "the full traceback is in engine.log"
        return UserError(message + source, hint)

    def _shown(self, file: str, line: int, function: str) -> tuple[str, str]:
        inside = f" in {function}" if function and function != "<module>" else ""
        source = linecache.getline(file, line).strip()
        return f"{self.name_of(file)}:{line}{inside}", f"\n    {source}" if source else ""

    def _calling(self) -> tuple[str, int, str] | None:
        for frame, line in traceback.walk_stack(None):
            if self.owns_file(frame.f_code.co_filename):
                return frame.f_code.co_filename, line, frame.f_code.co_name
        return None

    def _place(self, fault: BaseException) -> tuple[str, int, str] | None:
        # from TensorFlow's message, or else from the traceback
        if isinstance(fault, SyntaxError) and fault.filename and self.owns_file(fault.filename):
            return fault.filename, fault.lineno or 1, ""
        places = [match for match in _PLACE.finditer(str(fault)) if self.owns_file(match["file"])]
        if places:
            return places[-1]["file"], int(places[-1]["line"]), places[-1]["function"]
        for link in reversed(list(_chain(fault))):
            for frame, line in reversed(list(traceback.walk_tb(link.__traceback__))):
                if self.owns_file(frame.f_code.co_filename):
                    return frame.f_code.co_filename, line, frame.f_code.co_name
        return None

    def owns_file(self, file: str) -> bool:
        """Return True below the user's folders, but not for installed packages and gputui."""
        if file.startswith("<"):  # <frozen importlib._bootstrap>, <string>: no file
            return False
        path = os.path.abspath(file)
        if path == str(self.file):
            return True
        if path.startswith((*_INSTALLED, _OURS)) or "/site-packages/" in path or "__autograph_generated" in path:
            return False
        return any(Path(path).is_relative_to(home) for home in (self.home, self.folder))

    def name_of(self, file: str) -> str:
        """Return the file's path relative to the folder of the user's code, if it is within it."""
        return os.path.relpath(file, self.home) if Path(file).is_relative_to(self.home) else file

    def owns(self, module: str) -> bool:
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None:
            return False
        if file not in self._owned:  # thousands of files, which each checkpoint goes through
            self._owned[file] = self.owns_file(file)
        return self._owned[file]

    def modules(self) -> list[ModuleType]:
        return [module for name, module in list(sys.modules.items()) if self.owns(name)]

    def files(self) -> list[str]:
        files = (getattr(module, "__file__", None) or "" for module in self.modules())
        return sorted({os.path.abspath(file) for file in files if file.endswith(".py")})

    def record(self, run: Run) -> None:
        """Record the files that the code has imported up to now."""
        code_files.add(run, self.origin, self.files(), self.home if self.home != self.origin else None)

    def not_copied(self) -> list[str]:
        """Return the names of imported Python files that were not imported from the run's copy, if it has one."""
        if self.home == self.origin:
            return []
        others = (Path(file) for file in self.files() if not Path(file).is_relative_to(self.home))
        return [str(file.relative_to(self.origin)) for file in others if file.is_relative_to(self.origin)]

    def shadowed(self) -> list[str]:
        """Return the names of Python files in the user's folder for which another module was imported first."""
        loaded = {path: sys.modules.get(path.stem) for path in sorted(self.home.glob("*.py"))}
        return [
            path.name
            for path, module in loaded.items()
            if module is not None and getattr(module, "__file__", None) != str(path)
        ]


def _imported(entry: Entry, file: Path) -> ModuleType:
    """Return the user's module, imported from its folder under its own name, never as __main__."""
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
    if fault is not None:
        yield from _chain(fault.__cause__ or (None if fault.__suppress_context__ else fault.__context__))
        yield fault


def _what(fault: BaseException) -> str:
    if isinstance(fault, SyntaxError):
        return f"{type(fault).__name__}: {fault.msg}"
    lines = str(fault).splitlines()  # after the places, there may be an error of Python
    last = max((i for i, line in enumerate(lines) if _PLACE.search(line)), default=len(lines))
    rest = (writing.without_nodes(line).strip() for line in lines[last + 1 :])
    python_error = next((line for line in rest if _KIND.match(line)), "")
    return python_error[:300] or f"{type(fault).__name__}: {first_line(fault)}"
