"""What a proof makes of what it finds: slow and deterministic trainings, one pass, a profile, an early end."""

from __future__ import annotations

import io
import json
import subprocess
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.options import Options
from gputui.engine.profile import reports
from gputui.engine.profile.reports import ProfileError, ProfileReport
from gputui.engine.profile.xprof_tables import InputStage, InputTime, Operation, Shares
from gputui.engine.proof import proof_start, request, trial_diagnosis
from gputui.engine.proof.folder import Proof
from gputui.engine.proof.markdown import as_markdown
from gputui.engine.proof.request import ProofError
from gputui.engine.runs import Run
from gputui.engine.trials import proof_sentences
from gputui.engine.trials.comparing import BaselineFailed, Stopped
from gputui.engine.trials.record import Record
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.commands import diagnose
from gputui.tui.commands import proof as proof_command
from gputui.tui.drawing import proof as drawing
from gputui.tui.drawing import proof_comparisons
from gputui.tui.drawing.rows import plain
from gputui.tui.printing import proof as proof_tables

from tests.support import recorded
from tests.support.proving import Planted, Proving, proving
from tests.support.typed import typed

MONITORED = """\
schema_version: 1
description: 'mine: model.fit in train.py, looked at by Monitor'
precision: {policy: float32}
compile: {xla: false, steps_per_execution: 1}
train: {epochs: 3}
input: {batch_size: 64}
"""
REPORT = ProfileReport(
    path=Path("/somewhere/profile"),
    device="CPU",
    steps=18,
    step_ms=12.34,
    shares=Shares(input=0.81, compute=0.14, host=0.05),
    compute_16bit=None,
    operations_on="CPU",
    operations=(Operation("model/conv|1", "Conv2D", 30.0, 0.6), Operation("model/dense", "MatMul", 20.0, 0.4)),
    slowest_stage=InputStage("load", "Map", 180.0, 0.91, 10.0),
    input_time=InputTime(180.0, 0.0, None, 3.0),
    peak_memory_bytes=2**20,
)


def proved(path: Path, asked: request.Request, figures: Any) -> Proving:
    """A proof to whatever end, its state as its process would write it."""
    made = proving(path / "proof", asked, figures)
    try:
        made.prover.prove()
        made.record.state = "done"
    except Stopped:
        made.record.state = "stopped"
    except BaselineFailed as fault:
        made.record.state, made.record.error = "failed", str(fault)
    made.record.write("ended")
    return made


def shown(told: dict[str, Any]) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        proof_tables.show_trials(typed(Record, told))
        proof_tables.show_result(typed(Record, told))
    return out.getvalue()


def head(told: dict[str, Any]) -> str:
    return "\n".join(plain(row) for row in drawing.head(typed(Record, told), told["started_t"], 118, PLAIN))


def loop(*settings: str, **more: Any) -> request.Request:
    return request.of_preset("loop", "input-heavy", list(settings), **more)


def of_preset(*settings: str, **more: Any) -> request.Request:
    return request.of_preset("diagnosis", "input-heavy", list(settings), ablation_repeats=1, **more)


def noisy(speed: float, before: int, wait: float | None = 0.8, **more: Any) -> Planted:
    return Planted(speed * (1 + 0.004 * (before % 3)), wait, **more)


# ---- how long a step takes ----------------------------------------------------------------------


def test_a_training_of_slow_steps_is_diagnosed(tmp_path: Path) -> None:
    """At 32 samples a batch this is 0.32 s a step: 5 s hold only 15 of them."""
    told = proved(tmp_path, loop(), lambda o, n: noisy(400.0 if o.input.cache == "memory" else 100.0, n)).written
    assert told["diagnosis"]["verdict"] == "input_bound"
    assert told["changes_kept"] == {"input.cache": "memory"}


def test_where_steps_are_too_slow_for_a_verdict_it_says_so_and_what_to_do(tmp_path: Path) -> None:
    made = proved(tmp_path, loop(), lambda o, n: Planted(5.0, 0.8))  # 6.4 s a step
    told = made.written
    assert told["comparisons"] == []
    assert told["ended_because"].startswith("No verdict: 9 steps in 57.6 s measured")
    assert "measure longer: --seconds 17" in told["ended_because"]
    for text in (shown(told), as_markdown(typed(Record, told)), head(told)):
        assert "nothing was found" not in text
        assert "is undecided" in text
        assert "--seconds 17" in text
    (tmp_path / "more").mkdir()
    alone = proved(tmp_path / "more", of_preset(), lambda o, n: Planted(5.0, 0.8)).written
    assert "--seconds 17" in alone["ended_because"]


# ---- what is known when the diagnosis is renewed ---------------------------------------------------


def without_parts(options: Options, before: int) -> Planted:
    """With deterministic operations the parts of a step are not told: only the ablation says what the input costs."""
    speed = 20_000.0 if options.input.one_batch else 4000.0 if options.input.cache == "memory" else 1000.0
    return noisy(speed, before, None, python_share=None)


def test_remedies_of_the_first_diagnosis_are_tried_where_a_later_one_tells_nothing(tmp_path: Path) -> None:
    told = proved(tmp_path, loop("deterministic=true", ablation_repeats=1), without_parts).written
    assert told["diagnosis"]["verdict"] == "input_bound"
    tried = [(one["changes"], one["decision"]) for one in told["comparisons"]]
    assert tried == [
        ({"input.cache": "memory"}, "kept"),
        ({"input.parallel_calls": "auto"}, "rejected"),
        ({"input.prefetch": "auto"}, "rejected"),
    ]
    assert [bool(one["expected_gain"]) for one in told["comparisons"]] == [True, False, False]
    assert told["final_verdict"]["verdict"] == "undecided"
    assert told["ended_because"].startswith("No verdict: train.deterministic hides")


def test_the_exchange_between_devices_is_known_until_it_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = ProfileReport(**(vars(REPORT) | {"shares": Shares(input=0.1, communication=0.4)}))
    monkeypatch.setattr(reports, "read", lambda run: report)

    def figures(options: Options, before: int) -> Planted:
        return noisy(1300.0 if options.compile.xla is True else 1000.0, before, 0.0)

    told = proved(tmp_path, loop("cache=memory", "batch_size=512", profile=True), figures).written
    assert told["diagnosis"]["verdict"] == "communication_bound"
    assert told["changes_kept"] == {"compile.xla": True, "input.drop_remainder": True}
    assert told["final_verdict"]["verdict"] == "communication_bound"


@pytest.mark.parametrize(
    ("settings", "proposed"),
    [
        (("epochs=1",), False),
        (("epochs=2",), True),
        (("epochs=9", "steps_per_epoch=3"), False),
        (("epochs=9", "steps_per_epoch=30"), True),
    ],
)
def test_a_cache_is_proposed_for_what_the_training_itself_goes_over_twice(
    tmp_path: Path, settings: tuple[str, ...], proposed: bool
) -> None:
    """A trial goes over its data again and again. Here a pass is 1,000 samples, 31 steps."""
    told = proved(tmp_path, loop(*settings), lambda o, n: noisy(1000.0, n)).written
    tried = [one["changes"] for one in told["comparisons"]]
    assert ({"input.cache": "memory"} in tried) == proposed
    assert {"input.prefetch": "auto"} in tried


# ---- an end before its time ------------------------------------------------------------------------


def test_what_is_kept_is_diagnosed_by_its_trial_of_median_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds: list[float] = []
    diagnosed: list[str] = []

    def figures(options: Options, before: int) -> Planted:
        if options.input.cache != "memory":
            return Planted(1000.0, 0.8)
        speeds.append(4000.0 + {0: 9.0, 1: 5.0, 2: 7.0}.get(len(speeds), 0.0))
        return Planted(speeds[-1], 0.3)

    def of_trial(run: Run, *given: Any) -> dict[str, Any]:
        diagnosed.append(run.id)
        return as_it_is(run, *given)

    as_it_is = trial_diagnosis.of_trial
    monkeypatch.setattr(trial_diagnosis, "of_trial", of_trial)
    made = proving(tmp_path / "proof", loop(), figures)
    made.prover.prove()
    kept = next(each for each in made.record.comparisons if each.decision == "kept")
    assert diagnosed[1] == kept.good("b")[2].run


def test_no_figures_stand_for_a_change_that_could_not_be_measured(tmp_path: Path) -> None:
    asked = request.of_change("quickstart", ["steps_per_execution=16"])
    told = proved(
        tmp_path, asked, lambda o, n: Planted(outcome="oom" if o.compile.steps_per_execution == 16 else "ok")
    ).written
    assert told["before"]["samples_per_second"] == pytest.approx(1000, rel=0.01)
    assert told["after"] is None
    row = next(line for line in shown(told).splitlines() if line.startswith("samples/s"))
    assert row.split() == ["samples/s", "1,000", "-"]
    assert "| samples/s | 1,000 | - |" in as_markdown(typed(Record, told))
    assert "->" not in head(told)


def test_a_change_that_fails_after_its_first_pair_has_no_gain(tmp_path: Path) -> None:
    tried: list[int] = []

    def trial(o: Options, _n: int) -> Planted:
        changed = o.compile.steps_per_execution == 16
        tried.extend([1] if changed else [])
        return Planted(outcome="oom" if changed and len(tried) > 1 else "ok")

    told = proved(tmp_path, request.of_change("quickstart", ["steps_per_execution=16"]), trial).written
    (row,) = told["comparisons"]
    assert (row["decision"], row["gain"], row["spread"]) == ("failed", None, None)
    assert len(row["trials"]) > 2


@pytest.mark.parametrize(
    ("stop_at", "said"),
    [
        (1, "stopped before the measurement of any change was complete"),
        (8, "stopped: so far nothing was proved to make it faster (1 change tried)"),
    ],
)
def test_a_stopped_loop_counts_only_what_was_decided(tmp_path: Path, stop_at: int, said: str) -> None:
    def figures(options: Options, before: int) -> Planted:
        if before == stop_at:
            made.bench.stop.ask()
        return noisy(1000.0, before, outcome="stopped" if before == stop_at else "ok")

    made = proving(tmp_path / "proof", loop(), figures)
    with pytest.raises(Stopped):
        made.prover.prove()
    made.record.state = "stopped"
    made.record.write("ended")
    assert proof_sentences.conclusion(typed(Record, made.written)) == said


def test_a_loop_without_time_or_without_anything_to_try_says_so(tmp_path: Path) -> None:
    told = proved(tmp_path, loop(limit_seconds=30.0), lambda o, n: noisy(1000.0, n)).written
    assert proof_sentences.conclusion(typed(Record, told)) == "the time budget allowed no change to be measured"
    (tmp_path / "more").mkdir()
    settings = ("xla=true", "precision.policy=mixed_bfloat16")
    told = proved(tmp_path / "more", loop(*settings), lambda o, n: Planted()).written
    assert proof_sentences.conclusion(typed(Record, told)) == "nothing was found to make it faster (no change to try)"
    assert "as it is" in shown(told)


@pytest.mark.parametrize(
    ("kind", "ended", "code"),
    [
        ("ab", "oom", 3),
        ("ab", "error", 1),
        ("baseline", "oom", 3),
        ("baseline", "crashed", 1),
        ("diagnosis", "oom", 3),
        ("loop", "oom", 0),
    ],
)
def test_the_exit_code_is_that_of_the_trial_that_decided(tmp_path: Path, kind: str, ended: str, code: int) -> None:
    class NoPresses:
        count = 0

    def figures(options: Options, before: int) -> Planted:
        changed = options.compile.steps_per_execution == 16 or options.input.cache == "memory"
        dies = changed if kind in ("ab", "loop") else True
        return noisy(1000.0, before, outcome=ended if dies else "ok")

    change = request.of_change("quickstart", ["steps_per_execution=16"])
    asked = {"loop": loop(), "diagnosis": of_preset()}.get(kind, change)
    told = proved(tmp_path, asked, figures).written
    assert proof_command._code(typed(Record, told), NoPresses()) == code  # type: ignore[arg-type]


# ---- a change ---------------------------------------------------------------------------------------


def test_a_slower_change_is_said_to_be_so_with_what_it_learns_and_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def told(name: str, *changes: str) -> str:
        (tmp_path / name).mkdir()
        asked = request.of_change("quickstart", list(changes))
        proved(tmp_path / name, asked, lambda o, n: Planted(1000 / o.workload.width, loss=o.workload.width / 10))
        measured = Proof(tmp_path / name / "proof"), subprocess.Popen(["true"])
        with monkeypatch.context() as patched, measured[1]:
            patched.setattr(proof_start, "begin", lambda *_: measured)
            assert proof_command.run_proof(asked, as_json=False, anyway=True) == 0
        return str(capsys.readouterr().out)

    slower = told("slower", "width=8")
    assert "width=8.0 makes the training 0.12" in slower
    assert "another model or other data is learnt; loss after" in slower
    assert " without, 0.8 with" in slower
    assert "improved.yaml" not in slower
    faster = told("faster", "width=0.5")
    assert "width=0.5 makes the training 2.00 times as fast" in faster
    assert "-o improved.yaml saves the improved preset" in faster


# ---- a diagnosis of a preset ------------------------------------------------------------------------


def test_a_diagnosis_says_its_own_method_and_what_to_try(tmp_path: Path) -> None:
    told = proved(tmp_path, of_preset(), lambda o, n: Planted(5000.0 if o.input.one_batch else 1000.0, 0.8, 0.16))
    text = as_markdown(typed(Record, told.written))
    assert "1 pair of trials, with its input and on one repeated batch" in text
    assert "spreads of the pairs" not in text
    assert "| `cache=memory` | each epoch reads" in text
    assert "Also found: python overhead." in text
    above = head(told.written)
    assert "1 pair of trials of 5 s" in above
    assert "also python overhead" in above
    assert "to try cache=memory; parallel_calls=auto; prefetch=auto" in above
    assert "costs 80 % of a step's time" in shown(told.written)


# ---- the profile -------------------------------------------------------------------------------------


def test_the_profile_is_part_of_the_proof_and_of_all_its_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "read", lambda run: REPORT)
    made = proved(tmp_path, of_preset(profile=True), lambda o, n: Planted(5000.0 if o.input.one_batch else 1000.0, 0.8))
    told = made.written
    assert proof_sentences.profile_of(typed(Record, told)) == REPORT
    assert made.bench.asked[-1].run.profile == "30-49"
    text = as_markdown(typed(Record, told))
    assert "a step of 12.3 ms on the CPU: waiting for input 81 %, computing 14 %, Python, outside the graph 5 %" in text
    assert "slowest input stage: load, 91 % of the input's own time" in text
    assert "| Conv2D | model/conv\\|1 | 30 | 60 % |" in text
    assert "| 03-p | profiled |" in text
    printed = shown(told)
    assert [line for line in printed.splitlines() if line.startswith("03-p") and "profiled" in line]
    assert "profile of 18 steps on the CPU, 12.3 ms each, read by XProf" in printed
    assert "slowest input stage: load (Map), 91 % of the input's own time" in printed
    row = proof_comparisons.compared(typed(Record, told))[1]
    assert (proof_comparisons.changes(row), row.decision) == ("a profile of some steps", "measured")
    detail = "\n".join(plain(line) for line in proof_comparisons.detail(row, 118, 9, PLAIN))
    for word in ("waiting for input 81 %", "slowest input stage: load", "Conv2D 60 %, MatMul 40 %", "profiled"):
        assert word in detail, word


def test_where_there_is_no_profile_every_view_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(run: Run) -> ProfileReport:
        raise ProfileError("XProf is not\ninstalled|here")

    monkeypatch.setattr(reports, "read", read)
    told = proved(tmp_path, of_preset(profile=True), lambda o, n: Planted(1000.0, 0.8)).written
    assert (told["state"], told["profile"]) == ("done", None)
    detail = "\n".join(
        plain(row) for row in proof_comparisons.detail(proof_comparisons.compared(typed(Record, told))[1], 78, 9, PLAIN)
    )
    for text in (as_markdown(typed(Record, told)).replace("\\", ""), shown(told), detail):
        assert "no profile: XProf is not installed|here" in text
    assert proof_comparisons.compared(typed(Record, told))[1].decision == "failed"


def test_a_trial_that_dies_while_it_is_profiled_is_a_row(tmp_path: Path) -> None:
    told = proved(
        tmp_path, of_preset(profile=True), lambda o, n: Planted(1000.0, 0.8, outcome="ok" if n < 2 else "oom")
    ).written
    assert told["state"] == "done"
    assert told["profile_missing"] == "the profiled trial failed: oom: planted"
    assert told["diagnosis"]["verdict"] == "input_bound"
    assert "oom: planted" in shown(told)


@pytest.mark.parametrize("fault", [KeyError("stepTimeMs"), json.JSONDecodeError("no", "", 0), TypeError("None")])
def test_what_xprof_should_not_have_answered_is_no_fault_of_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def ask(files: Any) -> Any:
        raise fault

    monkeypatch.setattr(reports, "_ask_xprof", ask)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(reports, "_files", lambda run, options: [Path("a.xplane.pb")])
    with pytest.raises(ProfileError, match=f"unexpected answer .{type(fault).__name__}"):
        reports.read(Run(tmp_path))
    told = proved(tmp_path, of_preset(profile=True), lambda o, n: Planted(1000.0, 0.8)).written
    assert told["state"] == "done"
    assert "unexpected answer" in told["profile_missing"]


def test_a_runs_diagnosis_as_json_holds_its_profile(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    run = recorded.write(home, name="20260921-100000-mine", seconds=30, gpus=0)

    def printed() -> dict[str, Any]:
        diagnose._show_run(run, as_json=True)
        return dict(json.loads(capsys.readouterr().out))

    assert (printed()["profile"], printed()["profile_missing"]) == (None, "")
    run.file("profile").mkdir()
    assert "no profile" in printed()["profile_missing"]
    monkeypatch.setattr(reports, "read", lambda run: REPORT)
    told = printed()
    assert told["profile"]["shares"]["input"] == 0.81
    assert reports.from_plain(told["profile"]) == REPORT
    assert set(told["profile"]) == set(asdict(REPORT))


# ---- a fit of the user's own script -------------------------------------------------------------------


def test_a_fit_that_gputui_cannot_start_is_not_measured_as_something_else(home: Path, capsys: Any) -> None:
    from gputui.tui import cli

    run = recorded.write(home, name="20260921-100000-mine", seconds=40, gpus=0)
    run.file("preset.yaml").write_text(MONITORED)
    with pytest.raises(ProofError, match="gputui init"):
        request.of_run(run)
    assert cli.run(["diagnose", run.id, "--apply"]) == 2
    told = capsys.readouterr().err.strip()
    assert "fit of your own script" in told
    assert len(told.splitlines()) == 1
    assert not (home / "proofs").exists()
    assert cli.run(["diagnose", run.id]) == 0
    assert "--apply" not in capsys.readouterr().out


def test_a_run_that_is_too_short_for_a_verdict_says_what_measures_it_for_longer(home: Path, capsys: Any) -> None:
    from gputui.tui import cli

    run = recorded.write(home, seconds=1, gpus=0)
    assert cli.run(["diagnose", run.id]) == 0
    told = capsys.readouterr().out
    assert "No verdict: the run ended before its first step was measured" in told
    assert f"gputui diagnose {run.name} --apply measures" in told
