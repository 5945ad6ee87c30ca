"""The command line: what reaches a command, and its exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import Limits, Machine, Proof, Run, folder, resuming, this_machine
from tests.doors.engine import proof_request as request
from tests.doors.tui import FollowOptions, code_of, measuring
from tests.doors.tui import tui_cli as cli
from tests.support import recorded
from tests.support.recorded_proof import trials, write_proof

# ---- exit codes ----------------------------------------------------------------------------------


@pytest.fixture
def run(home: Path) -> Run:
    return recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)


@pytest.mark.parametrize(
    ("outcome", "ended_by", "why_not", "code"),
    [
        ("ok", "SIGTERM", "", 0), ("stopped", "", "", 130), ("stopped", "SIGTERM", "", 75),
        ("timeout", "the time limit", "", 75), ("stopped", "SIGTERM", "it has no checkpoint", 130),
        ("crashed", "SIGTERM", "", 1), ("oom", "SIGTERM", "", 3),
    ],
)  # fmt: skip
def test_the_exit_code_says_if_the_run_can_be_resumed(
    outcome: str, ended_by: str, why_not: str, code: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "status", property(lambda _: {"ended_by": ended_by}))
    monkeypatch.setattr(resuming, "why_not", lambda _: why_not)
    assert code_of(run, outcome) == code


# ---- the form ------------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The states and runs that a screen would open with. The terminal is there unless `instead` is refused."""
    shown: list[Any] = []

    def show(state: Any = None, **more: Any) -> int:
        shown.append((state, more))
        return 5

    monkeypatch.setattr("gputui.tui.cli.show", show)
    return shown


def test_a_run_opens_the_form_with_its_options(home: Path, opened: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputui.tui.cli.need_a_terminal", lambda instead: None)
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13, settings=("batch_size=512",))
    assert cli.run(["run:cnn", "--set", "epochs=7"]) == 5
    ((state, more),) = opened
    assert (state.path, more, state.unsaved()) == (run.file("preset.yaml"), {}, ["train.epochs"])
    assert state.preset.options.input.batch_size == 512


# ---- measurements --------------------------------------------------------------------------------


HERE = Machine((), "no NVIDIA driver", 8, 2**34)


class Process:
    """A measurement's process that has ended."""

    def poll(self) -> int:
        return 0


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is done with a measurement, one entry a step. Nothing is drawn, and nothing waits."""
    steps: list[Any] = []

    def begin(asked: request.Request, anyway: bool, machine: Machine | None) -> tuple[Proof, Process]:
        steps.append(("begin", asked.kind, anyway, machine))
        return folder.find("latest"), Process()

    def presses(stop_signal: str = "none") -> SimpleNamespace:
        steps.append(f"Ctrl-C and {stop_signal} are the measurement's")
        return SimpleNamespace(count=0, ask=lambda *_: None, rounds=lambda *_: ())

    def wait(asked: request.Request, tell: Callable[[str], None], given_up: Callable[[], bool]) -> None:
        tell("waiting: GPU 0 is in use")
        steps.append(("wait", asked.kind, given_up()))

    def show_answer(_data: Any, more: Any) -> None:
        print("the result", *(f"{word}: {text}" for word, text in more), sep="\n")

    monkeypatch.setattr(this_machine, "read", lambda: HERE)
    monkeypatch.setattr("gputui.tui.commands.measuring.proof_start.begin", begin)
    monkeypatch.setattr("gputui.tui.commands.measuring.proof_start.wait", wait)
    monkeypatch.setattr(measuring, "Presses", presses)
    monkeypatch.setattr(measuring, "budget", lambda _: "a while")
    monkeypatch.setattr("gputui.tui.commands.measuring.proof_tables.show_answer", show_answer)
    monkeypatch.setattr(measuring, "ProofLines", lambda *_: SimpleNamespace(show=lambda _: None, close=lambda: None))
    monkeypatch.setattr(request, "remarks", lambda asked, machine: [f"{machine.cpus} CPUs"])
    return steps


def asked(kind: str = "ab") -> request.Request:
    return request.of_preset(kind, "quickstart", ["run.stop_signal=SIGUSR1"])


def made(home: Path, kind: str = "ab", **fields: Any) -> Proof:
    """A measurement with its request, which has kept nothing unless `fields` say so."""
    fields = {"changes_kept": {}, "comparisons": [], "preset_after": None, "kind": kind} | fields
    written = write_proof(home, **fields)
    (written.path / "request.json").write_text(asked(kind).to_json())
    return written


# ---- resumed --------------------------------------------------------------------------------------


def test_the_latest_that_can_go_on_is_resumed_and_with_more_time_the_latest_that_has_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed: list[str] = []

    def measure(_asked: request.Request, _how: Any, proof: Proof) -> int:
        resumed.append(proof.id)
        return 0

    monkeypatch.setattr(measuring, "measure", measure)
    monkeypatch.setattr("gputui.tui.commands.measuring.tune_request.resumed", lambda proof, *_given: proof.request)
    states = {"20260921-1": "stopped", "20260921-2": "failed", "20260921-3": "done", "20260921-4": "running"}
    for name, state in states.items():
        written = write_proof(home, name, kind="tune", state=state)
        (written.path / "request.json").write_text(asked("tune").to_json())
    prediction = replace(asked("tune"), search=Limits(minutes=3.0, dry_run=True))  # of the memory alone
    for name, other in (("20260921-5", asked()), ("20260921-6", prediction)):
        (write_proof(home, name, kind=other.kind, state="stopped").path / "request.json").write_text(other.to_json())
    monkeypatch.setattr(Proof, "state", property(lambda proof: states.get(proof.id, "stopped")))
    assert cli.run(["tune", "--resume"]) == 0
    assert resumed == ["20260921-2"]
    assert cli.run(["tune", "--resume", "--minutes", "3"]) == 0
    assert resumed == ["20260921-2", "20260921-3"]
    states |= dict.fromkeys(states, "done")
    assert cli.run(["tune", "--resume"]) == 0
    assert resumed[-1] == "20260921-4", "it says why it cannot go on"


# ---- exit codes -----------------------------------------------------------------------------------

OOM = trials(("a", 400.0), ("b", None), outcome="oom")
FAILED = {"decision": "failed", "gain": None, "spread": None, "changes": {"input.batch_size": 256}, "learning": None,
          "reason": "", "expected_gain": None, "step": "device", "verdict_before": "", "why": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "presses", "code"),
    [
        ({}, 0, 0),
        ({}, 1, 130),
        ({"state": "stopped"}, 0, 130),
        ({"state": "failed", "baseline_trials": OOM}, 0, 3),
        ({"comparisons": [FAILED | {"trials": OOM}]}, 0, 3),
        ({"kind": "loop", "comparisons": [FAILED | {"trials": OOM}]}, 0, 0),  # another remedy may have helped
        ({"kind": "scaling", "gain_total": None}, 0, 1),
        ({"gain_total": None}, 0, 0),
    ],
)
def test_the_exit_code_of_a_measurement(
    fields: dict[str, Any], presses: int, code: int, home: Path, done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(home, **fields)
    pressed = SimpleNamespace(count=presses, ask=lambda *_: None, rounds=lambda *_: ())
    monkeypatch.setattr(measuring, "Presses", lambda *_: pressed)
    assert measuring.measure(asked(), FollowOptions(anyway=True)) == code
