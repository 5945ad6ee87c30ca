"""What commands print and return in states that a real training seldom reaches, in this process, to the letter."""

from __future__ import annotations

import json
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import doctor
from gputui.engine.doctor import Finding
from gputui.engine.follow import start
from gputui.engine.follow.place import Place
from gputui.engine.follow.start import FollowerState
from gputui.engine.process import resuming
from gputui.engine.proof import request
from gputui.engine.runs import ASKED_BY_PERSON, Run
from gputui.engine.trials.record import Record
from gputui.tui import cli
from gputui.tui.base.errors import OutputFault
from gputui.tui.commands import follow, proof, train
from gputui.tui.commands.proof import budget

from tests.support import recorded
from tests.support.recorded_proof import write_proof

Printed = pytest.CaptureFixture[str]


def printed(capsys: Printed, *words: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it prints on stdout and on stderr."""
    capsys.readouterr()
    code = cli.run(words)
    return code, *capsys.readouterr()


@pytest.fixture
def run(home: Path) -> Run:
    return recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)


# ---- requests to stop -----------------------------------------------------------------------------


def test_a_scheduler_asks_once_and_a_person_as_often_as_ctrl_c_is_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    now, at_a_terminal = [1000.0], [True]
    monkeypatch.setattr("gputui.tui.commands.train._at_a_terminal", lambda: at_a_terminal[0])
    monkeypatch.setattr("gputui.tui.commands.train.time.monotonic", lambda: now[0])
    again = "; press Ctrl-C again to end it at once"
    presses = train.Presses("SIGUSR2")
    assert (presses.count, presses.more) == (0, "")
    for at, count in ((1000.0, 1), (1000.29, 1), (1000.31, 2), (1000.6, 2), (1000.62, 3)):  # 0.3 s apart at least
        now[0] = at
        signal.raise_signal(signal.SIGINT)
        assert (presses.count, presses.more) == (count, again), at
    signal.raise_signal(signal.SIGTERM)
    assert presses.asked == [ASKED_BY_PERSON] * 3, "of a scheduler only the first request counts"
    for number in (signal.SIGTERM, signal.SIGUSR2):
        presses = train.Presses("SIGUSR2")
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGTERM)
        assert (presses.asked, presses.more) == ([(number,)], ""), "nobody at a keyboard"
        signal.raise_signal(signal.SIGINT)
        assert (presses.count, presses.more) == (2, again)
    at_a_terminal[0] = False
    presses = train.Presses()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    assert presses.asked == [(signal.SIGTERM,)], "a launcher has sent it, and may repeat it"


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
    assert train.code_of(run, outcome) == code


# ---- followers ------------------------------------------------------------------------------------


class Follower:
    """A follower that ends with a code after some looks at it."""

    def __init__(self, looks: int, code: int) -> None:
        self.looks, self.returncode, self.is_terminated, self.starts = looks, code, False, 0

    def poll(self) -> int | None:
        self.looks -= 1
        return None if self.looks > 0 else self.returncode

    def terminate(self) -> None:
        self.is_terminated = True


@pytest.fixture
def followers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Follower]:
    made: dict[str, Follower] = {}

    def begin(_folder: Path, target: str) -> Follower:
        made[target].starts += 1
        return made[target]

    monkeypatch.setattr(follow, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(start, "missing", lambda targets: [])
    monkeypatch.setattr(start, "start", begin)
    return made


def test_the_end_of_each_follower_and_each_change_of_its_problem_is_printed(
    run: Run, followers: dict[str, Follower], monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    problems = iter(["", "refused", "refused", "", "no route"])
    states = {
        "mlflow": lambda: FollowerState("mlflow", True, Place(number=3, problem=next(problems, ""))),
        "prometheus": lambda: FollowerState("prometheus", False, Place(number=1, state="done", where="a.prom")),
    }
    followers |= {"mlflow": Follower(6, 1), "prometheus": Follower(1, 0)}
    monkeypatch.setattr(start, "state", lambda folder, target: states[target]())
    code, out, err = printed(capsys, "follow", run.id, "--to", "mlflow", "--to", "prometheus", "--to", "mlflow")
    assert (code, out.splitlines(), err.splitlines()) == (
        1,
        ["prometheus: done, 1 row written to a.prom", "mlflow: follows, 3 rows written"],
        ["mlflow: waits: refused", "mlflow: follows", "mlflow: waits: no route"],
    )
    assert [each.starts for each in followers.values()] == [1, 1], "also if a target is named twice"
    followers |= {"mlflow": Follower(1, 1), "prometheus": Follower(3, 0)}
    ended = {target: FollowerState(target, False, Place(state="done")) for target in followers}
    with monkeypatch.context() as patched:
        patched.setattr(start, "state", lambda folder, target: ended[target])
        assert printed(capsys, "follow", run.id, "--to", "mlflow", "--to", "prometheus")[0] == 1, "the first has failed"
    followers["mlflow"] = Follower(2, 0)
    alive = iter([True, True, True, False])  # another follower of the target goes on after this one has ended
    monkeypatch.setattr(start, "state", lambda folder, target: FollowerState(target, next(alive), Place(state="done")))
    assert printed(capsys, "follow", run.id, "--to", "mlflow") == (0, "mlflow: done, 0 rows written\n", "")
    assert next(alive, None) is None


def test_ctrl_c_ends_the_followers_which_go_on_later_and_detached_ones_are_left_alone(
    run: Run, followers: dict[str, Follower], monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    followers |= {"mlflow": Follower(9, 0), "wandb": Follower(9, 0)}

    def pressed(*_given: Any) -> FollowerState:
        raise KeyboardInterrupt

    monkeypatch.setattr(start, "state", pressed)
    words = ("follow", run.id, "--to", "mlflow", "--to", "wandb")
    name = run.name
    assert printed(capsys, *words, "--detach") == (
        0, f"{name} is followed in the background; gputui follow {name} shows how far it is\n", "",
    )  # fmt: skip
    assert not any(follower.is_terminated for follower in followers.values())
    assert printed(capsys, *words) == (130, "", f"gputui follow {name} --to mlflow --to wandb goes on from here\n")
    assert all(follower.is_terminated for follower in followers.values())


def test_followers_are_listed_and_all_libraries_that_are_missing_are_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    none = f"{run.name} has no followers; --to tensorboard starts one, and gputui follow --help lists others\n"
    assert printed(capsys, "follow", run.id) == (2, "", none)
    states = [
        FollowerState("mlflow", True, Place(number=1200, problem="refused", where="http://a")),
        FollowerState("wandb", False, Place(number=1, state="done")),
    ]
    monkeypatch.setattr(start, "states", lambda folder: states if folder == run.path else [])
    lines = "mlflow: waits: refused, 1,200 rows written to http://a\nwandb: done, 1 row written\n"
    assert printed(capsys, "follow", run.id) == (0, lines, "")
    monkeypatch.setattr(start, "missing", lambda targets: [f"{target} is not installed; add it" for target in targets])
    assert printed(capsys, "follow", run.id, "--to", "wandb", "--to", "mlflow") == (
        2, "", "wandb is not installed; add it\nmlflow is not installed; add it\n",
    )  # fmt: skip


# ---- the doctor in a terminal ---------------------------------------------------------------------


def test_the_doctor_prints_a_table_in_a_terminal_and_plain_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    found = [Finding("warning", "packages", "cuDNN is\x1b old", "pip install it"), Finding("ok", "GPU 0", "H100")]
    monkeypatch.setattr(doctor, "examine", lambda *_: found)
    for name, value in (("COLUMNS", "100"), ("TERM", "xterm-256color"), ("COLORTERM", ""), ("LINES", "40")):
        monkeypatch.setenv(name, value)
    code, out, _ = printed(capsys, "doctor")
    assert (code, out.splitlines()[:3]) == (0, [
        "warning  packages    cuDNN is? old",
        f"{'':21}pip install it",
        "note     terminal    the output is not a terminal",
    ])  # fmt: skip
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    raw = printed(capsys, "doctor")[1]
    assert re.search(r"\x1b\[33m\S+ warning\x1b", raw), "in yellow"
    assert re.search(r"\x1b\[32m\S+ ok *\x1b", raw), "in green"
    assert re.search(r"\x1b\[2mpip install it\x1b", raw), "the remedy is dim"
    plain = re.sub(r"\x1b\[[\d;]*m", "", raw)
    lines = [line.rstrip() for line in plain.splitlines()]
    signs = [line.split()[0] for line in lines[:2]]
    assert [" ".join(line.split()[1:]) for line in lines[:4]] == [
        "warning packages cuDNN is? old", "install it", "ok GPU 0 H100", "ok terminal 100 x 40 characters, 256 colours",
    ]  # fmt: skip
    assert signs[1] == "pip"
    assert lines[1].index("pip") == lines[0].index("cuDNN"), "the remedy is below what it mends"


# ---- proofs ---------------------------------------------------------------------------------------


def asked(kind: str, **more: Any) -> request.Request:
    return request.of_preset(kind, "quickstart", [], **more)


def test_what_a_measurement_costs_is_said_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = SimpleNamespace(first=10.0, step=0.5, source="as in earlier trials", seconds=lambda measured: 12.0)
    monkeypatch.setattr("gputui.engine.proof.duration.times_of", lambda _: times)
    monkeypatch.setattr("gputui.engine.proof.duration.sure_trials", lambda _: 6)
    assert budget(asked("ab")) == "6 trials of about 12 s (as in earlier trials): about 1:22 minutes"
    loop = (
        "at first 6 trials of about 12 s (as in earlier trials): about 1:22 minutes; 8 trials (1:36 minutes) for each"
    )
    assert budget(asked("loop", repeats=4)) == f"{loop} further remedy"
    limit = "none is begun that would end after 1:00:00"
    assert budget(asked("loop", repeats=4, limit_seconds=3600)) == f"{loop} further remedy; {limit}"
    times.step = 0.0
    assert budget(asked("ab", measure_seconds=2.5)) == (
        "6 trials of about 12 s (as in earlier trials): about 1:22 minutes (longer where 20 steps take more than 2.5 s)"
    )
    monkeypatch.setattr("gputui.engine.proof.duration.sure_trials", lambda _: 1)
    times.step, times.seconds = 0.5, lambda measured: 49.9
    assert budget(asked("ab")).endswith("1 trial of about 50 s (as in earlier trials): about 59.9 s")


def test_without_proofs_the_commands_that_make_them_are_named(capsys: Printed, home: Path) -> None:
    made = "no proofs so far; gputui ab, diagnose --apply, tune, fit-batch, scaling and sweep make them\n"
    assert printed(capsys, "proof") == (0, made, "")
    assert printed(capsys, "proof", "--json") == (0, "", "")
    assert printed(capsys, "runs") == (0, "No runs so far; gputui --preset quickstart makes the first.\n", "")
    damaged = write_proof(home, "20260921-1")
    (damaged.path / "proof.json").write_text("{")
    code, _, err = printed(capsys, "proof")
    assert (code, err) == (0, f"left out, as proof.json is damaged: {damaged.id}\n")
    assert printed(capsys, "proof", damaged.id)[::2] == (2, f"{damaged.path}/proof.json cannot be read\n")


def test_a_proof_as_json_is_its_record_without_secrets(home: Path, capsys: Printed) -> None:
    secret = "train: {epochs: 2}\nnotify:\n  url: https://x/SECRET\nrun: {}\n"
    made = write_proof(home, preset_before=secret, preset_after=secret)
    code, out, err = printed(capsys, "proof", made.id, "--json")
    kept = "train: {epochs: 2}\nrun: {}\n"
    assert (code, err) == (0, "")
    assert json.loads(out) == made.data | {"preset_before": kept, "preset_after": kept}
    listed = json.loads(printed(capsys, "proof", "--json")[1])
    heads = ("kind", "state", "preset_name", "started_t", "seconds", "gain_total", "changes_kept", "error")
    assert {name: listed[name] for name in heads} == {name: made.data.get(name) for name in heads}
    assert set(listed) == {"id", "path", "bytes", *heads}


class Process:
    """A proof's process that has ended."""

    returncode = 0

    def poll(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("kind", "output", "words"),
    [
        ("loop", None, "gputui proof ID -o improved.yaml saves the improved preset"),
        ("loop", "b.yaml", "b.yaml is saved; gputui --preset b.yaml trains with it"),
        ("ab", "b.yaml", "b.yaml is not written: nothing was proved to be faster"),
        ("rate", "b.yaml", "b.yaml is not written: no other rate was proved to learn better"),
        ("sweep", "b.yaml", "b.yaml is not written: the sweep has not ended with a best setting"),
        ("scaling", "b.yaml", "b.yaml is not written: no number of runs on one GPU was proved to pay"),
        ("ab", None, None),
    ],
)
def test_what_is_said_of_the_preset_at_the_end_of_a_measurement(
    kind: str, output: str | None, words: str | None, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = (
        {} if kind == "loop" else {"comparisons": [], "changes_kept": {}, "gain_total": None, "preset_after": None}
    )
    done = write_proof(home, kind=kind, **found)
    (done.path / "request.json").write_text(asked("ab").to_json())
    name = {"sweep": "sweep", "rate": "range test"}.get(kind, "proof")
    monkeypatch.setattr("gputui.tui.commands.proof.proof_start.begin", lambda *_: (done, Process()))
    monkeypatch.setattr("gputui.tui.commands.proof.proof_start.wait", lambda *_: pytest.fail("it need not wait"))
    monkeypatch.setattr("gputui.tui.commands.proof.budget", lambda _: "a while")
    monkeypatch.setattr("gputui.tui.commands.proof.proof_tables.show_result", lambda *_, **__: print("the result"))
    monkeypatch.setattr("gputui.tui.commands.proof._view", lambda: Nothing())
    monkeypatch.setattr("gputui.tui.commands.proof.as_markdown", lambda data: "# the report\n")
    monkeypatch.setattr(request, "remarks", lambda *_: ["the CPU is shared"])
    last = [] if words is None else [words.replace("ID", done.id)]
    for as_json, report in ((False, False), (True, False), (False, True)):
        (tmp_path / "b.yaml").unlink(missing_ok=True)
        capsys.readouterr()
        of_kind = asked(kind if kind in ("loop", "ab") else "ab")
        proof.run_proof(replace(of_kind, kind=kind), anyway=True, as_json=as_json, report=report, output=output)
        said = capsys.readouterr()
        out, err = said.out.splitlines(), said.err.splitlines()
        if not (as_json or report):
            assert (out, err) == ([f"{name} {done.id}: a while", "the result", *last], ["the CPU is shared"])
        else:
            assert err == ["the CPU is shared", *last], "standard output has the record or the report alone"
            assert out == ["# the report"] if report else json.loads(said.out)["id"] == done.id
        assert (tmp_path / "b.yaml").exists() is (kind == "loop" and output is not None)


class Nothing:
    """A view of a measurement that shows nothing."""

    def show(self, _data: Record) -> None:
        pass

    def close(self) -> None:
        pass


# ---- a diagnosis ----------------------------------------------------------------------------------

REMEDY = [{"changes": {"input.cache": "memory"}}]
BY_HAND: list[dict[str, Any]] = [{"changes": {}}]
LONGER = "gputui diagnose {} --apply measures the same training for longer, and tries what could help"


@pytest.mark.parametrize(
    ("found", "outcome", "can_be_trained", "last"),
    [
        ({"remedies": REMEDY}, "ok", True, "gputui diagnose {} --apply measures them, and keeps what helps"),
        ({"remedies": [*BY_HAND, *REMEDY]}, "ok", True,
         "gputui diagnose {} --apply measures them, and keeps what helps"),
        ({"remedies": REMEDY}, "ok", False, "the next step"),
        ({"remedies": BY_HAND}, "ok", True, "the next step"),
        ({"verdict": "undecided", "evidence": []}, "ok", True, LONGER),
        ({"verdict": "undecided", "evidence": []}, "ok", False, "the next step"),
        ({"verdict": "undecided", "evidence": [1]}, "ok", True, "the next step"),
        ({"verdict": "undecided", "evidence": []}, "stopped", True, "the next step"),
        ({"verdict": "undecided", "evidence": []}, "oom", True, "out of memory at batch size 512: the trainer ended"),
        ({"evidence": []}, "oom", True, "the next step"),
    ],
)  # fmt: skip
def test_what_can_be_done_next_is_said_below_a_diagnosis(
    found: dict[str, Any], outcome: Any, can_be_trained: bool, last: str, home: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
) -> None:  # fmt: skip
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13, outcome=outcome)
    findings = {"verdict": "input_bound", "evidence": [1], "remedies": []} | found
    monkeypatch.setattr("gputui.tui.commands.diagnose.asdict", lambda _: findings)
    monkeypatch.setattr("gputui.tui.commands.diagnose.diagnosis_tables.show", lambda _: print("the diagnosis"))
    monkeypatch.setattr("gputui.tui.commands.diagnose.next_step", lambda _: "the next step")
    monkeypatch.setattr(request, "can_be_trained", lambda _: can_be_trained)
    code, out, err = printed(capsys, "diagnose", run.id)
    lines = out.splitlines()
    assert (code, err, lines[:2]) == (0, "", ["the diagnosis", ""])
    assert lines[2].startswith(last.format(run.name))
    told = printed(capsys, "diagnose", run.id, "--json")[1]
    assert json.loads(told) == findings | {"profile": None, "profile_missing": ""}
    run.file("profile").mkdir()
    monkeypatch.setattr("gputui.tui.commands.diagnose.next_step", lambda _: "")
    missing = f"{run.name} has no profile"
    lines = printed(capsys, "diagnose", run.id)[1].splitlines()
    assert lines[:3] == ["the diagnosis", "", missing]
    how = "train with --set run.profile=50-69 --set compile.steps_per_execution=1 to get one"
    told = printed(capsys, "diagnose", run.id, "--json")[1]
    assert json.loads(told)["profile_missing"] == f"{missing} {how}"
    assert len(lines) == (4 if last == "the next step" else 6 if outcome != "oom" else len(lines))


def test_a_run_on_several_machines_is_tried_by_hand(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr("gputui.tui.commands.diagnose.run_cluster.of_run", lambda _: object())
    monkeypatch.setattr("gputui.tui.commands.diagnose.diagnosis_tables.show", lambda _: None)
    monkeypatch.setattr("gputui.tui.commands.diagnose.next_step", lambda _: "the next step")
    monkeypatch.setattr(request, "can_be_trained", lambda _: True)
    by_hand = f"start all workers with one of them (--set), and compare the runs: gputui compare {run.name} NEW_RUN"
    for found, line in (({"verdict": "input_bound", "remedies": REMEDY}, by_hand),
                        ({"verdict": "undecided", "remedies": []}, "the next step")):  # fmt: skip
        monkeypatch.setattr("gputui.tui.commands.diagnose.asdict", lambda _, found=found: {"evidence": [], **found})
        assert printed(capsys, "diagnose", run.id) == (0, f"\n{line}\n", "")


# ---- while a measurement goes on ------------------------------------------------------------------


def test_each_press_is_passed_on_once_and_again_until_the_measurement_can_be_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    made = write_proof(home)
    presses = SimpleNamespace(count=0, asked=[(15,), (2,)], more="; again")
    steps = iter([0, 1, 1, 1, 2, 2, None])
    sent: list[Any] = []
    can = iter([False, True, True])

    class Going:
        def poll(self) -> int | None:
            count = next(steps)
            presses.count = presses.count if count is None else count
            return 0 if count is None else None

    def ask(_proof: Any, numbers: Any) -> bool:
        sent.append(numbers)
        return next(can)

    monkeypatch.setattr(proof, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(proof, "_ask_to_stop", ask)
    proof._follow(made, Going(), presses, True)  # type: ignore[arg-type]
    assert sent == [(15,), (15,), (2,)], "the first was not taken at once"
    assert capsys.readouterr().err == "stopping; again\nstopping; again\n"


def test_a_measurement_is_shown_as_it_is_read_and_once_more_at_its_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, shown = write_proof(home, state="running"), list[str]()
    steps = iter(["failed", "{", "stopped", None])

    class Going:
        def poll(self) -> int | None:
            step = next(steps)
            (made.path / "proof.json").write_text(
                json.dumps(made_of | {"state": step or "done"}) if step != "{" else "{"
            )
            return None if step else 0

    made_of = made.data
    view = SimpleNamespace(show=lambda record: shown.append(record.state), close=lambda: shown.append("closed"))
    monkeypatch.setattr(proof, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(proof, "_view", lambda: view)
    proof._follow(made, Going(), SimpleNamespace(count=0), False)  # type: ignore[arg-type]
    assert shown == ["failed", "stopped", "done", "closed"], "nothing of a record that cannot be read"


def test_what_a_search_a_range_test_and_a_sweep_cost_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from gputui.engine.trials.rate_record import RateSettings
    from gputui.engine.trials.search_record import Limits

    plan = SimpleNamespace(in_words=lambda: "what it buys")
    monkeypatch.setattr("gputui.tui.commands.proof.tune_request.plan_of", lambda *_: plan)
    monkeypatch.setattr("gputui.engine.proof.duration.of_request", lambda _: 29.6)
    search = replace(asked("tune"), search=Limits(minutes=3.0))
    assert budget(search) == "what it buys; Ctrl-C ends it, gputui tune --resume goes on with it"
    dry = replace(search, search=Limits(minutes=3.0, dry_run=True))
    assert budget(dry) == "at most 2 trials of about 30 s; a whole search: what it buys"
    for minutes, words in ((0.5, "30.0 s"), (1.0, "1:00 minutes"), (59.9, "59:54 minutes"), (60.0, "1:00:00")):
        rate = replace(asked("rate", repeats=4), rate=RateSettings(steps=300, minutes=minutes))
        assert budget(rate) == f"a ramp of 300 steps, then 8 trainings on new seeds, at most {words}"


def test_a_measurement_goes_on_if_what_is_printed_cannot_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    made, discarded = write_proof(home), list[str]()

    def full(*_given: Any) -> None:
        raise OutputFault(OSError(28, "No space left on device"))

    monkeypatch.setattr("gputui.tui.commands.proof.proof_start.begin", lambda *_: (made, Process()))
    monkeypatch.setattr(request, "remarks", lambda *_: [])
    monkeypatch.setattr(proof, "budget", lambda _: "a while")
    monkeypatch.setattr(proof, "_follow", full)
    monkeypatch.setattr(proof, "discard_output", lambda: discarded.append("discarded"))
    assert proof.run_proof(asked("ab"), as_json=False, anyway=True) == 74
    said = capsys.readouterr()
    assert said.out == f"proof {made.id}: a while\n"
    assert said.err == (
        "standard output cannot be written (No space left on device)\n"
        f"{made.id} goes on; show it with: gputui proof {made.id}\n"
    )
    assert discarded == ["discarded"]
