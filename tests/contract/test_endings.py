"""How runs are said to have ended whose trainers left no result, and failures that are known by their texts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tests.contract.conftest import Answer
from tests.doors.engine import RESUMED, Ceilings, Ending, Evidence, classify, known_failures, with_hint
from tests.doors.trainer import LOST, TrainerError, session

LIMITS = {each.name for each in fields(Ceilings)}


def end(returncode: int, log: Sequence[str] = (), **more: Any) -> Ending:
    return classify(Evidence(returncode=returncode, log_tail=log, batch_size=64, **more))


def ended(words: Sequence[str], log: Sequence[str]) -> Iterator[str]:
    """Of the return codes among the words, by what else they say."""
    codes = [int(word) for word in words if re.fullmatch(r"-?\d+", word)]
    known: dict[str, Any] = dict(word.split("=", 1) for word in words if "=" in word)
    for name, value in known.items():
        if re.fullmatch(r"[\d.]+", value):
            known[name] = float(value) if "." in value else int(value)
    known |= {name: [known[name]] for name in ("lost_gpus", "driver_errors") if name in known}
    known["ceilings"] = Ceilings(**{name: known.pop(name) for name in LIMITS & known.keys()})
    ends = [end(code, log, **known) for code in codes]
    if {"saved", "unsaved"} & set(words):
        ends = [with_hint(each, is_saved="saved" in words) for each in ends]
    told = [f"{each.outcome}, {each.kind}: {each.message}\n  {each.hint}" for each in ends]
    yield from (told[:1] if len(set(told)) == 1 else map("{}: {}".format, codes, told))


def raised(name: str, text: str, folder: Path) -> Iterator[str]:
    """An exception of TensorFlow in the training, the same from a line of the user's code, and one that is not its."""
    fault: Exception = type(name, (Exception,), {"__module__": "tensorflow.python.framework.errors_impl"})(text)
    theirs = TrainerError("user_code", "train.py:7: it failed here", "-")
    for phase, found, cause in (
        ("training", fault, None), ("building", theirs, fault), ("building", theirs, ValueError(text)),
    ):  # fmt: skip
        found.__cause__ = cause
        outcome, error = session._failed(found, phase, 64, folder)
        yield f"{phase}: {outcome}, {error['kind']}: {error['message']}\n  {error['hint']}"


def test_how_a_run_ends(played: Callable[[str, Answer], None], tmp_path: Path) -> None:
    lost = f"gputui: {LOST.format(worker='worker 3 (gpu7:12003)')}"
    named: dict[str, Sequence[str]] = {"LOST": [lost], "RESUMED": [RESUMED]}

    def told(words: Sequence[str]) -> Iterator[str]:
        verb, *more = shlex.split(words[0])
        lines = [line for word in words[1:] for line in named.get(word, (word,))]
        text = "\n".join(lines)
        if verb == "named":
            named[more[0]] = lines
        elif verb == "end":
            yield from ended(more, lines)
        elif verb == "raised":
            yield from raised(more[0], text, tmp_path)
        else:
            by_log = known_failures.in_log(lines)
            found = {"in an exception": known_failures.in_exception(text), "in a log": by_log}
            said = {how: f"{each.kind.name}\n  {each.hint}" if each else "unknown" for how, each in found.items()}
            differ = verb == "text" and len(set(said.values())) > 1
            yield from map("{}: {}".format, *zip(*said.items(), strict=True)) if differ else [said["in a log"]]

    def answer(words: Sequence[str]) -> Iterator[str]:
        for said in told(words):
            yield from re.sub(r"(TensorFlow|convolution with cuDNN) \d[.\d]*", r"\1 N", said).rstrip().splitlines()

    played("endings.txt", answer)


def test_every_ending_is_plain_short_text() -> None:
    for returncode in range(-64, 256):
        for because in ("", "stop", "timeout", "hang"):
            ending = end(returncode, stopped_because=because)
            assert ending.outcome in ("ok", "oom", "error", "stopped", "timeout", "crashed")
            assert ending.message
            assert "\n" not in ending.message + ending.hint
