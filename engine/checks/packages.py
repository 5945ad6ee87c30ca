"""Checks the Python that trains: that it exists, with TensorFlow and Keras in versions that gputui supports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..interpreter import interpreter, supported_versions
from ..interpreter.interpreter import Interpreter, Unusable
from ..interpreter.supported_versions import Remark
from ..job.machine_gpus import Machine
from ..options import Options
from .option_finding import Finding

KEY = "run.python"
_OR_ANOTHER = "set {} to the Python of an environment that has it, or {}"
_WAYS = f"{KEY} (or {interpreter.VARIABLE})"  # to name one


def of_packages(option: str | None) -> list[Finding]:
    """Return the findings about the Python that trains and its packages; empty if gputui's own Python fits.

    `option` is the value of run.python. The findings do not depend on other options.
    """
    python = interpreter.chosen(option)
    own = interpreter.is_own(python)
    keys = () if own else (KEY,)
    try:
        described = interpreter.require(python)
    except Unusable as fault:
        return [Finding("error", keys, _from(option, str(fault)), fault.change)]
    if described.place is None:
        change = _OR_ANOTHER.format(_WAYS, described.install(supported_versions.TENSORFLOW))
        return [Finding("error", keys, "TensorFlow is not installed", change)]
    remarks = supported_versions.remarks(described.tensorflow, described.keras, described.install)
    findings = [_remark(remark, keys, described) for remark in remarks]
    blocked = any(finding.level == "error" for finding in findings)
    return findings if own or blocked else [*findings, _trains(option, described)]


def of_resumed(python: str, preset_file: str) -> list[Finding]:
    """Return the findings of `of_packages` for a run that is resumed in the Python that its own preset names.

    Their remedies name run.python in `preset_file`.
    """
    where = f"{KEY} in {preset_file}"
    return [replace(finding, change=_of_resumed(finding, where)) for finding in of_packages(python)]


def _of_resumed(finding: Finding, where: str) -> str:
    if finding.level == "note":
        return "the run's preset names it"
    if finding.level == "error" and finding.options:
        return f"change {where}"
    return finding.change.replace(_WAYS, where)


def packages(options: Options, _machine: Machine) -> Iterator[Finding]:
    yield from of_packages(options.run.python)


def _trains(option: str | None, described: Interpreter) -> Finding:
    named_by = f"{interpreter.VARIABLE} names it" if option is None else "the preset or --set names it"
    return Finding("note", (KEY,), f"trains in {described}", named_by)


def _from(option: str | None, what: str) -> str:
    """Return the text `what`, followed by `(GPUTUI_PYTHON)` if this variable has chosen the interpreter.

    That is so if run.python (`option`) is not set and the variable is.
    """
    return f"{what} ({interpreter.VARIABLE})" if option is None and interpreter.from_environment() else what


def _remark(remark: Remark, keys: tuple[str, ...], described: Interpreter) -> Finding:
    """Return a remark on the packages of the interpreter `described` as a finding about the options `keys`.

    If `keys` is not empty, the interpreter is not gputui's own, and the message begins with its path.
    """
    what = f"{described.python}: {remark.what}" if keys else remark.what
    return Finding(remark.level, keys, what, remark.remedy)
