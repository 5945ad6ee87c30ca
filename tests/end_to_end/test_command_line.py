"""The command line: which words do not go together, what reaches a command, and its exit code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import Limits, Machine, Proof, Run, folder, presets, resuming, this_machine
from tests.doors.engine import proof_request as request
from tests.doors.engine import proof_request_Request as Request
from tests.doors.tui import FollowOptions, code_of, measuring
from tests.doors.tui import tui_cli as cli
from tests.doors.tui import tui_cli as command_line
from tests.support import recorded
from tests.support.cases import all_hold
from tests.support.recorded_proof import trials, write_proof

# ---- what is refused ------------------------------------------------------------------------------


# Of each kind of combination one: the words of the command, and what its message names.
REFUSED = """\
--set xla=true: name a preset
--resume-if-any: name a preset
--preset quickstart --dry-run --detach: --dry-run
--preset quickstart --json --detach: --json
resume r1 --json --detach: --detach
--preset quickstart --code new: --code=new
--preset quickstart --queue --wait: --queue
--preset quickstart --after r1: --after
--preset quickstart --worker 1: --cluster
--resume-if-any quickstart: --resume-if-any
--preset quickstart quickstart: name one preset
quickstart --cluster a:1: --cluster
--json runs: 'runs'
history r1 --csv --jsonl: --csv
queue service --install --remove: --install
runs --tag a rm: 'rm'
queue --json pause: --json
resume: --latest
resume latest --latest: --latest
resume r1 --queue --wait: --queue
resume r1 --after r2: --after
watch RUN --replay=nan: --replay
logs -n -1: -n
compare RUN --pin RUN: --pin
compare RUN: two or more runs
compare RUN --baseline RUN: the baseline
tag RUN -d a b: no tag a or b
follow RUN --detach: --detach
diagnose RUN --preset quickstart: name a run
diagnose RUN --set xla=true: --set
diagnose RUN --minutes 3: --minutes
diagnose RUN --profile: --profile
diagnose RUN --repeats 3: --repeats
ab --preset quickstart --set xla=true --queue --json: --queue
ab --preset quickstart --set xla=true --repeats 2: --repeats
tune --preset quickstart --minutes nan: --minutes
scaling: scaling --preset NAME
scaling --resume --replicas 1,2: --resume
scaling --resume: no measurement
scaling --preset quickstart --copies 2 --keep global: --copies
scaling --preset quickstart -o a.yaml: -o
scaling --preset quickstart --copies 2 -o a.yaml: -o
scaling --preset quickstart --replicas 2,1025: --replicas
sweep --resume --seeds 2: --minutes
sweep --resume: no sweep
tune --resume --queue --after RUN: no search
tune --resume --only xla: --minutes
tune --preset quickstart --ramp-steps 9: --ramp-steps
tune --preset quickstart --dry-run -o a.yaml: -o
tune --preset quickstart --learning-rate-test --largest-batch 4: --largest-batch
tune --preset quickstart --learning-rate-test --rates 1e-6: --rates
proof --markdown: name a proof
proof rm -o a.yaml a: --yes
proof a --yes: rm
proof a --json --stop: --json
prepare --preset quickstart -o ready --size 0x24: --size
doctor --python=: --python
lease 0 true: 1@A100
lease 1: name the program
serve --port 1023: --port
runns: the command runs
train quickstart: --preset quickstart
mine.py: workload: {entry: "mine.py:build"}
slow: gputui slow.yml
quickstat: the preset quickstart
run:nobody: no such run"""


def test_what_does_not_go_together_is_refused_with_what_to_give(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)
    (tmp_path / "mine.py").touch()
    (tmp_path / "slow.yml").write_text("train: {epochs: 2}\n")
    (tmp_path / "dir.yml").mkdir()
    before = sorted(home.rglob("*"))
    with all_hold() as cases:
        for line in REFUSED.splitlines():
            words, named = re.split(r": ", line, maxsplit=1)
            with cases.case(words):
                capsys.readouterr()
                code = command_line.run([run.id if word == "RUN" else word for word in words.split()])
                out, err = capsys.readouterr()
                assert (code, out, named in err) == (2, "", True), err
    assert sorted(home.rglob("*")) == before
    assert list(tmp_path.glob("*.yaml")) == []


# ---- what reaches a measurement ------------------------------------------------------------------


MEASURED = """\
ab --preset quickstart --set xla=true --repeats 4 --seconds 2
diagnose --preset quickstart --repeats 4 --seconds 2 --profile --set epochs=3
diagnose --preset quickstart --apply --repeats 4 --minutes 3 -o a.yaml --json --set epochs=9
diagnose latest --apply --wait
tune --preset quickstart --set epochs=9 --repeats 4 --seconds 2 --only input --only xla --leave input.shuffle --wait
tune --preset quickstart --memory-gb 1.5 --largest-batch 64 --learning-rate sqrt --warmup-steps 5 --allow-worse-loss
tune --preset quickstart --learning-rate-test --rates 1e-5:1 --ramp-steps 50 --repeats 4 --set clip_norm=9 -o a.yaml
fit-batch --preset quickstart --set epochs=9 --minutes 2 --queue --after r1
sweep --preset quickstart --over epochs=1,2 --metric loss --seeds 2 --minutes 5 --proof-seeds 3 --finalists 3
sweep --preset quickstart --over epochs=1..9 --sampler random --trials 7 --parallel 2 --json -o a.yaml
scaling --preset quickstart --set logical_devices=4 --replicas 1,2 --keep global --repeats 4 --seconds 2 --minutes 3
scaling --preset quickstart --copies 2,3 --json --wait"""


def test_a_measurement_is_requested_with_what_is_given(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(this_machine, "read", lambda: Machine((), "no NVIDIA driver", 12, 2**34))
    recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)
    lines: list[str] = []
    unsaid, plain = ("preset", "folder", "seed", "source"), presets.resolve("quickstart").changed()

    def measure(asked: Request, how: FollowOptions, trains_on: Machine | None = None) -> int:
        fields = {name: value for name, value in asdict(asked).items() if name not in unsaid and value}
        fields["set"] = {name: new for name, new in asked.baseline().changed().items() if plain.get(name) != new}
        following = asdict(how) | {"trains_on": trains_on is not None}
        lines.append(f"    {fields}\n    {dict(sorted((name, value) for name, value in following.items() if value))}")
        return 7

    for module in ("diagnose", "tune"):
        monkeypatch.setattr(f"gputui.tui.commands.{module}.measure", measure)
    for words in MEASURED.splitlines():
        lines.append(words)
        assert command_line.run(words.split()) == 7, words
    assert "\n".join(lines) == snapshot


# ---- what is not there, and what is there already ------------------------------------------------


LONG = "20260101-000000-a-preset-with-a-long-name-indeed"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    capsys.readouterr()
    code = cli.run(words)
    out, err = capsys.readouterr()
    return code, out, err


# ---- lists in a pipe --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("history", LONG), "out.csv"),
        (("history", LONG, "--tensorboard"), "folder"),
        (("diagnose", "--preset", "quickstart", "--apply"), "out.yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_no_output_is_written_over_a_file_that_is_there(
    words: tuple[str, ...], name: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.write(home, name=LONG)
    there = tmp_path / name
    kept = there / "kept" if name == "folder" else there
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("kept")
    code, out, err = told(capsys, *words, "-o", str(there))
    kind = "folder" if name == "folder" else "file"
    assert err == f"{there} exists, and is not overwritten; name another {kind}, or remove it first\n"
    assert (code, out) == (2, "")
    assert kept.read_text() == "kept"


def test_data_that_is_not_there_is_told_before_anything_is_started(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("workload:\n  data: 'tfrecord:no/*.rec'\n")
    code, _, err = told(capsys, "presets", "check", str(preset))
    assert code == 2
    assert "error: workload.data: no file matches" in err
    for words in (("--preset", str(preset)), ("ab", "--preset", str(preset), "--set", "xla=true")):
        code, out, err = told(capsys, *words)
        assert (code, out) == (2, "")
        assert "workload.data: " in err
    assert not home.exists()


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


Printed = pytest.CaptureFixture[str]


def printed(capsys: Printed, *words: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it prints on stdout and on stderr."""
    capsys.readouterr()
    code = cli.run(words)
    return code, *capsys.readouterr()


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


def test_without_a_terminal_the_command_that_trains_is_named(capsys: Printed, tmp_path: Path) -> None:
    preset = tmp_path / "my own.yaml"
    preset.write_text("train: {epochs: 2}\n")
    code, out, err = printed(capsys, str(preset))
    assert (code, out) == (2, "")
    assert err.endswith(f"(ssh -t gives one); gputui --preset '{preset}' trains without one\n")


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

    def show_result(_data: Any, *, was_followed: bool) -> None:
        print(f"the result, followed: {was_followed}")

    monkeypatch.setattr(this_machine, "read", lambda: HERE)
    monkeypatch.setattr("gputui.tui.commands.measuring.proof_start.begin", begin)
    monkeypatch.setattr("gputui.tui.commands.measuring.proof_start.wait", wait)
    monkeypatch.setattr(measuring, "Presses", presses)
    monkeypatch.setattr(measuring, "budget", lambda _: "a while")
    monkeypatch.setattr("gputui.tui.commands.measuring.proof_tables.show_result", show_result)
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

    monkeypatch.setattr("gputui.tui.commands.tune.measure", measure)
    monkeypatch.setattr("gputui.tui.commands.tune.tune_request.resumed", lambda proof, _minutes: proof.request)
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
