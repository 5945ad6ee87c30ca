"""What functions that decide or convert return: each question of golden/rules is an expression, in names of the doors.

A line that assigns has no answer. Of an object those fields are shown that are not the usual ones, of a number six
digits.
"""

from __future__ import annotations

import dataclasses
import errno
import importlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.conftest import HERE, Golden
from tests.doors import engine
from tests.support import proving, recorded_proof, training

FILES = sorted(path.stem for path in (HERE / "golden/rules").glob("*.txt"))


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if value % 1 else f"{value:.1f}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if of_note(each, value)}
        return f"{type(value).__name__}({', '.join(f'{name}={shown(of)}' for name, of in fields.items())})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{shown(key)}: {shown(of)}' for key, of in value.items())}}}"
    if isinstance(value, list | tuple):
        inner = ", ".join(map(shown, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return repr(value)


def of_note(field: dataclasses.Field[Any], of: Any) -> bool:
    value = getattr(of, field.name)
    factory = field.default_factory
    return field.repr and value != (field.default if factory is dataclasses.MISSING else factory())


def under(call: Callable[[], Any], *changes: tuple[Any, str, Any]) -> Any:
    """What the call returns while these attributes of objects, or keys of mappings, have other values."""
    with pytest.MonkeyPatch.context() as patched:
        for of, name, value in changes:
            (patched.setitem if isinstance(of, Mapping) else patched.setattr)(of, name, value)
        return call()


def raises(fault: BaseException) -> None:
    raise fault


def raised(call: Callable[[], Any]) -> BaseException | None:
    try:
        call()
    except Exception as fault:  # noqa: BLE001 - it is looked at
        return fault
    return None


@pytest.mark.parametrize("name", FILES)
@pytest.mark.usefixtures("not_at_utc")
def test_what_is_decided(name: str, golden: Golden, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    names = vars(engine) | {each.__name__: each for each in (errno, io, os, sys, time, SimpleNamespace, Path, under)}
    names |= {each.__name__: each for each in (raised, raises, dataclasses.replace, training.options, proving.started)}
    names |= {"HERE": proving.HERE, "filled": recorded_proof.typed, "TMP": tmp_path}
    if name == "screens":
        names |= vars(importlib.import_module("tests.doors.tui"))
    if name == "trainer":
        request.getfixturevalue("cpus")
        names |= vars(importlib.import_module("tests.doors.trainer"))
        names |= {module: importlib.import_module(module) for module in ("numpy", "subprocess", "tensorflow")}

    def answer(question: str) -> Iterator[str]:
        try:
            code = compile(question, name, "eval")
        except SyntaxError:
            exec(question, names)
            return
        try:
            said = shown(eval(code, names))
        except Exception as fault:  # noqa: BLE001 - it is the answer
            said = f"{type(fault).__name__}: {fault}"
        yield from said.replace(sys.executable, "PYTHON").splitlines()

    golden.answers(f"rules/{name}.txt", answer)
