"""What a command that measures does before it follows the measurement, how it ends, and how it resumes one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Machine
from gputui.engine.proof import folder, request
from gputui.engine.proof.folder import Proof
from gputui.engine.queue import entries
from gputui.engine.trials.rate_record import RateSettings, RateTest
from gputui.engine.trials.search_record import Limits
from gputui.tui import cli
from gputui.tui.base.errors import Refused
from gputui.tui.commands import proof, queue

from tests.support import recorded
from tests.support.queued import no_runner
from tests.support.recorded_proof import trials, write_proof

Printed = pytest.CaptureFixture[str]
HERE, THERE = Machine((), "no NVIDIA driver", 8, 2**34), Machine((), "no NVIDIA driver", 99, 2**34)
NOT_NOW = (
    "--queue measures nothing now: leave out --json, --markdown, --wait and -o; gputui proof ID shows the "
    "result, and -o FILE there saves the improved preset"
)


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
        return SimpleNamespace(count=0, asked=[], more="")

    def wait(asked: request.Request, tell: Callable[[str], None], given_up: Callable[[], bool]) -> None:
        tell("waiting: GPU 0 is in use")
        steps.append(("wait", asked.kind, given_up()))

    def show_result(_data: Any, *, was_followed: bool) -> None:
        print(f"the result, followed: {was_followed}")

    monkeypatch.setattr(this_machine, "read", lambda: HERE)
    monkeypatch.setattr("gputui.tui.commands.proof.proof_start.begin", begin)
    monkeypatch.setattr("gputui.tui.commands.proof.proof_start.wait", wait)
    monkeypatch.setattr(proof, "Presses", presses)
    monkeypatch.setattr(proof, "budget", lambda _: "a while")
    monkeypatch.setattr("gputui.tui.commands.proof.proof_tables.show_result", show_result)
    monkeypatch.setattr(proof, "_view", lambda: SimpleNamespace(show=lambda _: None, close=lambda: None))
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


def said(capsys: Printed) -> tuple[list[str], list[str]]:
    out, err = capsys.readouterr()
    return out.splitlines(), err.splitlines()


# ---- begun ----------------------------------------------------------------------------------------


def test_a_measurement_is_begun_after_the_wait_and_for_the_machine_of_its_trials(
    home: Path, done: list[Any], tmp_path: Path, capsys: Printed
) -> None:
    written = made(home)
    ctrl_c = "Ctrl-C and SIGUSR1 are the measurement's"
    assert proof.run_proof(asked(), as_json=False, anyway=False) == 0
    assert done == [ctrl_c, ("begin", "ab", False, None)]
    assert said(capsys) == ([f"proof {written.id}: a while", "the result, followed: True"], ["8 CPUs"])
    done.clear()
    assert proof.run_proof(asked("loop"), as_json=False, anyway=True, wait=True, trains_on=THERE) == 0
    assert done == [ctrl_c, ("wait", "loop", False), ("begin", "loop", True, THERE)]
    out, err = said(capsys)
    assert (out[0], err) == ("waiting: GPU 0 is in use", ["99 CPUs"])
    proof.run_proof(asked(), as_json=True, anyway=True, wait=True)
    assert said(capsys)[1] == ["waiting: GPU 0 is in use", "8 CPUs"], "standard output has the JSON alone"
    proof.run_proof(asked(), as_json=False, anyway=True, wait=True, report=True)
    out, err = said(capsys)
    assert (out[0][:2], err) == ("# ", ["waiting: GPU 0 is in use", "8 CPUs"]), "or the report alone"
    done.clear()
    (tmp_path / "there.yaml").write_text("")
    with pytest.raises(Exception, match=r"there\.yaml exists"):
        proof.run_proof(asked(), as_json=False, anyway=False, output=str(tmp_path / "there.yaml"))
    assert done == [], "before anything is measured"


def test_a_wait_that_ctrl_c_ends_begins_nothing(home: Path, done: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    written = made(home)
    monkeypatch.setattr(proof, "Presses", lambda *_: SimpleNamespace(count=1, asked=[(2,)], more=""))
    assert proof.run_proof(asked(), as_json=False, anyway=False, wait=True) == 130
    assert proof.go_on(written, pytest.fail, asked, as_json=False, anyway=False, wait=True, output=None) == 130
    assert done == [("wait", "ab", True)] * 2


def test_what_comes_next_after_a_search_depends_on_what_was_saved(
    home: Path, done: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    made(home, "tune")
    saved: list[str] = []
    monkeypatch.setattr(
        "gputui.tui.commands.proof.search_tables.show_next", lambda data, saved: print(f"next, {saved}")
    )
    monkeypatch.setattr("gputui.tui.commands.proof.proof_tables.show_answer", lambda data: print("the answer"))
    monkeypatch.setattr("gputui.tui.commands.proof.improved_preset.save", lambda proof, path: saved.append(str(path)))
    search = replace(asked(), kind="tune")
    for is_better, output, last, files in (
        (True, "a.yaml", ["a.yaml is saved; gputui --preset a.yaml trains with it", "next, True"], ["a.yaml"]),
        (True, None, ["next, False"], []),
        (False, "a.yaml", ["a.yaml is not written: nothing was proved to be faster", "next, False"], []),
    ):
        monkeypatch.setattr(
            "gputui.tui.commands.proof.proof_sentences.to_take", lambda data, found=is_better: {"a": 1} if found else {}
        )
        saved.clear()
        proof.run_proof(search, as_json=False, anyway=True, output=output)
        told = said(capsys)[0][1:]
        assert (told, saved) == (["", "the answer", *last, "", "the result, followed: True"], files)
        proof.run_proof(search, as_json=True, anyway=True, output=output)
        assert "next" not in "".join(said(capsys)[0])


@pytest.mark.parametrize("state", ["stopped", "crashed", "failed", "done"])
def test_a_sweep_that_has_ended_early_names_the_command_that_goes_on(
    home: Path, done: list[Any], capsys: Printed, state: str
) -> None:
    """One that has failed says what is wrong with it."""
    written = made(home, "sweep", state=state)
    proof.run_proof(replace(asked(), kind="sweep"), as_json=False, anyway=True)
    goes_on = f"gputui sweep --resume {written.id} goes on with it" in said(capsys)[0]
    assert goes_on is (state in ("stopped", "crashed"))


WORSE = {"limits": asdict(Limits()), "losses": [{"settings": {}, "decision": "worse"}]}


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [
        ("ab", {"state": "failed"}, "the proof failed"),
        ("tune", {"state": "failed"}, "the search failed"),
        ("tune", {"search": WORSE}, "what is faster learns clearly worse"),
    ],
)
def test_why_no_preset_is_saved(
    home: Path, done: list[Any], capsys: Printed, kind: str, fields: dict[str, Any], why: str
) -> None:
    made(home, kind, **fields)
    proof.run_proof(replace(asked(), kind=kind), as_json=False, anyway=True, output="a.yaml")
    assert f"a.yaml is not written: {why}" in said(capsys)[0]


# ---- resumed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "noun"),
    [("tune", "search"), ("sweep", "sweep"), ("rate", "range test"), ("scaling", "proof"), ("ab", "proof")],
)
def test_a_measurement_that_is_resumed_is_followed_as_a_new_one(
    kind: str, noun: str, home: Path, done: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setattr(
        "gputui.tui.commands.proof.search_tables.show_next", lambda data, saved: print(f"next, {saved}")
    )
    monkeypatch.setattr("gputui.tui.commands.proof.proof_tables.show_answer", lambda data: print("the answer"))
    written = made(home, kind)

    def start() -> Any:
        done.append("started")
        return Process()

    def go_on(**given: Any) -> int:
        usual: dict[str, Any] = {"anyway": False, "as_json": False, "wait": False, "output": None}
        return proof.go_on(written, start, asked, **(usual | given))

    go_on()
    before = ["", "the answer", "next, False", ""] if kind == "tune" else []
    assert said(capsys) == ([f"{noun} {written.id} goes on", *before, "the result, followed: True"], [])
    assert done == ["Ctrl-C and SIGUSR1 are the measurement's", "started"]
    done.clear()
    go_on(wait=True)
    assert done[1:] == [("wait", kind, False), "started"]
    assert said(capsys)[0][0] == "waiting: GPU 0 is in use"
    for form in ("as_json", "report"):
        go_on(wait=True, **{form: True})
        out, err = said(capsys)
        assert (out[0][:1] in ("{", "#"), err) == (True, ["waiting: GPU 0 is in use"]), form


def test_a_resumed_measurement_is_queued_only_alone(
    home: Path, done: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    written = made(home, "tune")
    queued: list[Any] = []

    def add(*given: Any) -> int:
        queued.append(given)
        return 9

    def go_on(**given: Any) -> int:
        usual: dict[str, Any] = {"anyway": False, "as_json": False, "wait": False, "output": None}
        return proof.go_on(written, pytest.fail, asked, **(usual | given))

    monkeypatch.setattr(queue, "add_resumed_proof", add)
    assert go_on(queue=True, after="r1") == 9
    assert queued == [(written, asked(), "r1", False)]
    for given in ({"as_json": True}, {"report": True}, {"wait": True}, {"output": "a.yaml"}):
        with pytest.raises(Refused) as refused:
            go_on(queue=True, **given)
        assert str(refused.value) == NOT_NOW, given
    with pytest.raises(Refused, match=r"^--after RUN needs --queue$"):
        go_on(after="r1")
    (tmp_path / "there.yaml").write_text("")
    with pytest.raises(Exception, match=r"there\.yaml exists"):
        go_on(output=str(tmp_path / "there.yaml"))
    assert (done, len(queued)) == ([], 1)


RESUMED: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {  # module.function that starts it, its arguments
    "tune ID": ("tune.tune_request", (False, None), {}),
    "tune latest --minutes 5 --json --wait -o a.yaml":
        ("tune.tune_request", (False, 5.0), {"as_json": True, "wait": True, "output": "a.yaml"}),
    "fit-batch ID --anyway --queue --after r1":
        ("tune.tune_request", (True, None), {"anyway": True, "queue": True, "after": "r1"}),
    "scaling ID --markdown --anyway": ("scaling.scaling_request", (True,), {"report": True, "anyway": True}),
    "scaling latest --json --wait --queue --after r1":
        ("scaling.scaling_request", (False,), {"as_json": True, "wait": True, "queue": True, "after": "r1"}),
    "sweep ID --minutes 2 -o a.yaml":
        ("sweep.sweep_request", (2.0,), {"output": "a.yaml"}),
    "sweep latest --json": ("sweep.sweep_request", (None,), {"as_json": True}),
}  # fmt: skip


@pytest.mark.parametrize("words", RESUMED)
def test_what_is_given_reaches_the_measurement_that_is_resumed(
    words: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, name, *more = words.split()
    module, arguments, following = RESUMED[words]
    kind = command.replace("fit-batch", "tune")
    written = made(home, kind, state="stopped")
    followed, started = list[Any](), list[Any]()

    def go_on(proof: Proof, start: Callable[[], Any], resumed: Callable[[], Any], **given: Any) -> int:
        followed.append((proof, {name: value for name, value in given.items() if value}))
        start()
        resumed()
        return 8

    monkeypatch.setattr(proof, "go_on", go_on)
    for step in ("resume", "resumed"):
        monkeypatch.setattr(
            f"gputui.tui.commands.{module}.{step}", lambda *given, step=step: started.append((step, *given))
        )
    name = written.id if name == "ID" else name
    assert cli.run([command, f"--resume={name}", *more]) == 8
    assert followed == [(written, following)]
    of_queue = arguments[1:] if kind == "tune" else () if kind == "scaling" else arguments
    assert started == [("resume", written, *arguments), ("resumed", written, *of_queue)]


def test_a_range_test_is_not_resumed(home: Path, capsys: Printed) -> None:
    written = made(home, "rate", state="stopped")
    assert cli.run(["tune", f"--resume={written.id}"]) == 2
    assert said(capsys) == ([], [f"{written.id} is a learning-rate test, which is not resumed: start it again"])


@pytest.mark.parametrize(("command", "kind"), [("tune", "tune"), ("sweep", "sweep"), ("scaling", "scaling")])
def test_the_latest_that_can_go_on_is_resumed_and_with_more_time_the_latest_that_has_ended(
    command: str, kind: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed: list[str] = []

    def go_on(proof: Proof, *_given: Any, **_named: Any) -> int:
        resumed.append(proof.id)
        return 0

    monkeypatch.setattr(proof, "go_on", go_on)
    states = {"20260921-1": "stopped", "20260921-2": "failed", "20260921-3": "done", "20260921-4": "running"}
    for name, state in states.items():
        written = write_proof(home, name, kind=kind, state=state)
        (written.path / "request.json").write_text(asked(kind).to_json())
    prediction = replace(asked("tune"), search=Limits(minutes=3.0, dry_run=True))  # of the memory alone
    for name, other in (("20260921-5", asked()), ("20260921-6", prediction)):
        (write_proof(home, name, kind=other.kind, state="stopped").path / "request.json").write_text(other.to_json())
    monkeypatch.setattr(Proof, "state", property(lambda proof: states.get(proof.id, "stopped")))
    assert cli.run([command, "--resume"]) == 0
    assert resumed == ["20260921-2"]
    if kind != "scaling":
        assert cli.run([command, "--resume", "--minutes", "3"]) == 0
        assert resumed == ["20260921-2", "20260921-3"]
    states |= dict.fromkeys(states, "done")
    assert cli.run([command, "--resume"]) == 0
    assert resumed[-1] == "20260921-4", "it says why it cannot go on"


def test_a_queued_measurement_waits_for_the_one_before_it(
    home: Path, done: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    no_runner(monkeypatch)
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)
    words = ("ab", "--preset", "quickstart", "--set", "steps_per_execution=4", "--queue")
    for after, first in ((["--after", "latest"], run.id), ([], None)):
        assert cli.run([*words, *after]) == 0
        (name,), (remark, place) = said(capsys)
        entry = entries.read(name)
        assert entry is not None
        assert (entry.after, remark) == (first, "8 CPUs")
        assert place.startswith(f"{name}: ") is (entry.name != name)
    assert cli.run([*words, "--after", "nobody"]) == 2
    assert said(capsys) == ([], ["no run called 'nobody'; gputui runs lists them"])
    assert cli.run(["queue", "--json"]) == 0
    row = json.loads(said(capsys)[0][-1])
    assert (row["run"], row["kind"], row["state"], row["needs"], row["after"]) == (
        name,
        "ab",
        "waiting",
        "the CPU",
        None,
    )
    assert cli.run(["queue"]) == 0
    assert f" {entries.name_of(name)} (ab) " in said(capsys)[0][-1]
    assert cli.run([*words, "--after", name]) == 0, "a measurement may come first, too"
    (third,), _ = said(capsys)
    entry = entries.read(third)
    assert entry is not None
    assert entry.after == name


# ---- exit codes -----------------------------------------------------------------------------------

OOM, DAMAGED = trials(("a", 400.0), ("b", None), outcome="oom"), trials(("a", None), ("b", None), outcome="failed")
FAILED = {"decision": "failed", "gain": None, "spread": None, "changes": {"input.batch_size": 256}, "learning": None,
          "reason": "", "expected_gain": None, "step": "device", "verdict_before": "", "why": ""}  # fmt: skip
KEPT = FAILED | {"decision": "kept", "changes": {"compile.xla": True}}


@pytest.mark.parametrize(
    ("fields", "presses", "code"),
    [
        ({}, 0, 0),
        ({}, 1, 130),
        ({"state": "stopped"}, 0, 130),
        ({"state": "failed"}, 0, 1),
        ({"state": "failed", "baseline_trials": OOM}, 0, 3),
        ({"state": "failed", "baseline_trials": OOM[::-1]}, 0, 1),  # the last one decides
        ({"comparisons": [FAILED | {"trials": OOM}]}, 0, 3),
        ({"comparisons": [FAILED | {"trials": DAMAGED}]}, 0, 1),
        ({"comparisons": [KEPT | {"trials": OOM[:1]}, FAILED | {"trials": OOM[1:]}]}, 0, 0),
        ({"kind": "loop", "comparisons": [FAILED | {"trials": OOM}]}, 0, 0),  # another remedy may have helped
        ({"kind": "scaling", "gain_total": 0.0}, 0, 0),
        ({"kind": "scaling", "gain_total": None}, 0, 1),
        ({"gain_total": None}, 0, 0),
    ],
)
def test_the_exit_code_of_a_measurement(
    fields: dict[str, Any], presses: int, code: int, home: Path, done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(home, **fields)
    monkeypatch.setattr(proof, "Presses", lambda *_: SimpleNamespace(count=presses, asked=[(2,)] * presses, more=""))
    assert proof.run_proof(asked(), as_json=False, anyway=True) == code


# ---- a sweep --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("", {}),
        ("--seeds 3 --minutes 9", {"seeds": 3, "minutes": 9.0}),
        ("--sampler grid", {"sampler": "grid", "most_trials": None}),  # a grid has all settings
        ("--sampler random", {}),
        ("--trials 9 --halving 2", {"most_trials": 9, "halve_from": 2}),
        ("--over epochs=5,6", {"over": ("epochs=5,6",)}),
    ],
)
def test_what_is_given_to_a_sweep_takes_the_place_of_the_block_of_its_preset(
    words: str, changed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = tmp_path / "swept.yaml"
    block = "over: {batch_size: [8, 16]}, sampler: random, trials: 7, seeds: 2, minutes: 20"
    preset.write_text(f"extends: quickstart\nsweep: {{{block}}}\n")
    taken: list[Any] = []

    def of_preset(name: str, settings: Any, **options: Any) -> str:
        taken.append((name, tuple(settings), options))
        return "the request"

    monkeypatch.setattr("gputui.tui.commands.sweep.sweep_request.of_preset", of_preset)
    monkeypatch.setattr("gputui.tui.commands.sweep.adding.machine", lambda: THERE)
    followed: list[Any] = []

    def run_proof(*given: Any, **following: Any) -> int:
        followed.append((given, following))
        return 7

    monkeypatch.setattr(proof, "run_proof", run_proof)
    assert cli.run(["sweep", "--preset", str(preset), "--set", "epochs=2", *words.split()]) == 7
    ((name, settings, options),) = taken
    assert (name, settings) == (str(preset), ("epochs=2",))
    assert options == {
        "over": ("batch_size=8,16",), "metric": "val_loss", "seeds": 2, "minutes": 20.0, "sampler": "random",
        "most_trials": 7, "halve_from": None, "proof_seeds": 5, "finalists": 2, "parallel": None, "study": None,
        "study_name": None, "anyway": False,
    } | changed  # fmt: skip
    following = {"as_json": False, "report": False, "output": None, "anyway": False, "trains_on": THERE}
    following |= {"queue": False, "after": None}
    assert followed == [(("the request",), following)]


# ---- a range test ---------------------------------------------------------------------------------


def test_the_chart_of_a_range_test_is_as_wide_as_the_terminal_and_at_most_100_columns(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    losses = [2.0, 1.9, 1.5, 1.0, 0.8, 1.2, 4.0]
    test = RateTest(
        settings=RateSettings(), before=1e-3, rates=[10.0**n for n in range(-6, 1)], losses=losses, smoothed=losses[:6],
        lowest_at=0.01, suggested=1e-3, reason="where the loss falls fastest", decision="undecided",
    )  # fmt: skip
    written = made(home, "rate", rate=asdict(test), state="stopped")
    for columns, width in ((60, 60), (100, 100), (200, 100)):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert cli.run(["proof", written.id]) == 0
        chart = [line for line in said(capsys)[0] if re.search("[\u2800-\u28ff]", line)]
        assert len(chart) > 5
        assert width - 10 < max(map(len, chart)) <= width, columns
