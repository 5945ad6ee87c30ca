"""What is printed of proofs, whole: their list, and the result of each kind while it goes on and at its end."""

from __future__ import annotations

import time
from typing import Any

import pytest
from gputui.engine.trials.record import Record
from gputui.tui.printing import proof

from tests.support.typed import typed

Printed = pytest.CaptureFixture[str]
NOON = time.mktime((2026, 9, 21, 12, 30, 0, 0, 0, -1))


def record(**fields: Any) -> Record:
    return typed(Record, {"id": "p", "kind": "ab", "state": "done", "preset_name": "cnn", "repeats": 3} | fields)


def words(capsys: Printed) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_the_list_says_what_a_running_proof_does_and_how_the_others_ended(capsys: Printed) -> None:
    going = record(id="one", state="running", doing="pair 2 of 3", started_t=NOON, seconds=61.0)
    ended = record(id="two", state="failed", error="the preset was deleted", started_t=NOON + 60, seconds=5.0)
    proof.show_list([going, ended], {"two": 2048})
    assert words(capsys) == [
        "proof kind state started time size result", "one ab running 2026-09-21 12:30 1:01 - pair 2 of 3",
        "two ab failed 2026-09-21 12:31 5.0 s 2.0 KiB the proof failed: the preset was deleted",
    ]  # fmt: skip
