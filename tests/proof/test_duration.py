"""What a measurement is expected to take: as earlier ones took, or by an assumption that is named as one."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from gputui.engine import plan, presets
from gputui.engine.proof import duration, folder, request
from gputui.engine.runs import run_cluster
from gputui.engine.trials.record import UNREAD, Comparison
from gputui.engine.trials.search_record import Limits
from gputui.engine.trials.trial import Trial
from gputui.engine.tune import tune_request
from gputui.tui.commands.proof import budget

from tests.support import recorded
from tests.support.recorded_proof import PROOF, write_proof
from tests.support.recorded_search import write_search


def test_the_time_is_that_of_earlier_measurements_of_the_preset_or_is_called_assumed(home: Path) -> None:
    def said() -> str:
        return budget(request.of_change("input-heavy", ["steps_per_execution=16"]))

    assert duration.sure_trials(request.of_change("quickstart", ["steps_per_execution=16"], repeats=4)) == 8
    start = "6 trials of about 10 s (assumed: input-heavy has not been trained here lately): about 1:02"
    assert said().startswith(start)
    assert "longer where 20 steps take more than 5 s" in said(), "the time of a step is not known"
    recorded.write(home, name="20260921-100000-other", seconds=30, gpus=0)  # 12 s, half of it imports
    by_others = "assumed by the starts of other presets: input-heavy has not been trained here lately"
    assert f"of about 12 s ({by_others})" in said()
    run = recorded.write(home, name="20260921-110000-input-heavy", seconds=30, gpus=0)
    assert f"(by the start and the steps of {run.id})" in said()
    write_proof(home)  # each of its trials took 12.4 s, with 5 s measured
    assert said().startswith(f"6 trials of about 12 s (as in {PROOF['id']}): about 1:1")
    assert "longer where" not in said()
    slow = copy.deepcopy(PROOF["comparisons"])
    slow[0]["trials"][0]["seconds"] = 32.4
    write_proof(home, "20261126-150000-input-heavy", comparisons=slow)
    assert duration.trial_times("input-heavy").first == pytest.approx(20.0, abs=4.0), "the import of TensorFlow"
    assert said().startswith("6 trials of about 12 s (as in 20261126-150000-input-heavy): about 1:3"), said()
    shutil.rmtree(home / "proofs" / "20261126-150000-input-heavy")
    plan = tune_request.plan_of(Limits(minutes=2), "input-heavy").in_words()
    assert plan.endswith(f"(trials of 9.4 s, as in {PROOF['id']})"), "2 s are measured in place of 5 s"


def test_the_times_of_a_search_come_from_its_trials(home: Path) -> None:
    search = write_search(home)  # trials of 12.4 s before the pairs, with 2 s measured
    times = duration.trial_times("cnn")
    assert times.source == f"as in {search.id}"
    assert times.seconds(2.0) == pytest.approx(12.4, abs=1.0)


@pytest.mark.parametrize(
    ("step", "measured", "seconds"),
    [(0.0, 5.0, 4.0 + 5.0), (0.01, 5.0, 4.0 + 5 * 0.01 + 5.0), (1.0, 5.0, 4.0 + 5 * 1.0 + 20.0)],
)
def test_a_trial_takes_its_start_its_warm_up_and_its_steps(step: float, measured: float, seconds: float) -> None:
    """At least 20 steps are measured, and a few more warm up."""
    assert plan.LEAST_STEPS == 20
    warm = plan.WARMUP_STEPS * step
    expected = seconds - 5 * step + warm
    assert duration.TrialTimes(4.0, step, "").seconds(measured) == pytest.approx(expected)


def test_times_of_another_machine_and_of_profiled_trials_do_not_count(home: Path) -> None:
    write_search(home, "20261126-150000-cnn", host="node7")
    assert duration.trial_times("cnn").source == "assumed: cnn has not been trained here lately"
    write_search(home, "20261126-140000-cnn")
    assert duration.trial_times("cnn").source == "as in 20261126-140000-cnn"
    rows = ("a", "ok", 40.0), ("b", "ok", 8.0), ("b", "oom", 2.0)
    trials = [Trial(side=side, repeat=1, run=f"0{n}-{side}", outcome=outcome, seconds=seconds)
              for n, (side, outcome, seconds) in enumerate(rows)]  # fmt: skip
    profiled = Trial(side="p", repeat=1, run="09-p", outcome="ok", seconds=100.0)
    record = replace(UNREAD, comparisons=[Comparison(changes={}, trials=trials)], profile_trial=profiled)
    assert duration.remaining_seconds(record, 2, before_any=14.0) == 16.0


def test_the_start_of_a_run_is_without_its_import_and_not_below_zero(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded.write(home, name="20260921-110000-cnn", seconds=30, gpus=0)  # 12 s, of which 6.1 import
    times = duration.trial_times("cnn")
    assert (times.start, times.first) == pytest.approx((5.9 + 1.5, 6.1))
    result = json.loads(run.file("result.json").read_text())
    run.file("result.json").write_text(json.dumps(result | {"startup_seconds": 4.0}))
    times = duration.trial_times("cnn")
    assert (times.start, times.first) == pytest.approx((1.5, 4.0)), "it was forked, or resumed"
    monkeypatch.setattr(run_cluster, "of_run", lambda _run: object())
    assert duration.trial_times("cnn").source.startswith("assumed: "), "its workers have waited for each other"


@pytest.mark.parametrize(
    ("kind", "words"),
    [("loop", "diagnose --apply"), ("diagnosis", "diagnose"), ("rate", "tune --learning-rate-test"), ("tune", "tune")],
)
def test_the_command_that_measures_the_same_names_the_file_of_the_preset(kind: str, words: str, tmp_path: Path) -> None:
    given = presets.defaults()
    assert request.of_opened(kind, given, None).command == f"gputui {words} --preset {given.name} ..."
    source = tmp_path / "mine.yaml"
    assert request.of_opened(kind, given, source).command == f"gputui {words} --preset {source} ..."


def test_a_proof_that_cannot_start_leaves_no_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(proof: folder.Proof, *_more: object) -> None:
        assert proof.path.is_dir()
        raise request.ProofError("no GPU is free")

    monkeypatch.setattr(folder, "start", refuse)
    with pytest.raises(request.ProofError, match="no GPU is free"):
        folder.launch(request.of_opened("ab", presets.defaults(), None))
    assert folder.proofs() == []
    assert list((home / "proofs").iterdir()) == []


@pytest.mark.parametrize(
    ("seconds", "expected"), [((), 14.0), ((100.0,), 50.0), ((12.0,), 12.0), ((100.0, 8.0), 8.0), ((99, 8, 9, 30), 9)]
)
def test_the_first_trial_which_imports_tensorflow_is_not_taken_for_the_others(
    seconds: tuple[float, ...], expected: float
) -> None:
    trials = [Trial(side="ab"[n % 2], repeat=1, run=f"{n + 1:02}-x", outcome="ok", seconds=each)
              for n, each in enumerate(seconds)]  # fmt: skip
    record = replace(UNREAD, comparisons=[Comparison(changes={}, trials=trials)])
    assert duration.remaining_seconds(record, 3, before_any=14.0) == 3 * expected
