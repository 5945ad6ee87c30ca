"""The command line: what reaches a command, and its exit code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import Limits, Machine, Proof, folder, this_machine
from tests.doors.engine import proof_request as request
from tests.doors.tui import FollowOptions, measuring
from tests.doors.tui import tui_cli as cli
from tests.support import recorded
from tests.support.recorded_proof import trials, write_proof

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


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement that begins has ended. Nothing is drawn, and nothing waits."""

    def begin(*_given: Any) -> tuple[Proof, Any]:
        return folder.find("latest"), SimpleNamespace(poll=lambda: 0)

    monkeypatch.setattr(this_machine, "read", lambda: HERE)
    monkeypatch.setattr("gputui.tui.commands.measuring.proof_start.begin", begin)
    monkeypatch.setattr(measuring, "budget", lambda _: "a while")
    monkeypatch.setattr("gputui.tui.commands.measuring.proof_tables.show_answer", lambda *_: None)
    monkeypatch.setattr(measuring, "ProofLines", lambda *_: SimpleNamespace(show=lambda _: None, close=lambda: None))
    monkeypatch.setattr(request, "remarks", lambda *_: [])


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


@pytest.mark.usefixtures("done")
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
    fields: dict[str, Any], presses: int, code: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(home, **fields)
    pressed = SimpleNamespace(count=presses, ask=lambda *_: None, rounds=lambda *_: ())
    monkeypatch.setattr(measuring, "Presses", lambda *_: pressed)
    assert measuring.measure(asked(), FollowOptions(anyway=True)) == code
