"""What each trial trains, and how trials are counted by a proof that is resumed or goes on elsewhere."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.job.visible_devices import VARIABLE
from gputui.engine.leases import free_gpus, lease
from gputui.engine.notify import notice, sending
from gputui.engine.options import Options
from gputui.engine.presets import Preset
from gputui.engine.process.fork_client import ForkServer
from gputui.engine.proof import folder, process, proof_start, request
from gputui.engine.proof.markdown import as_markdown
from gputui.engine.runs import Run, create_at
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.system.identity import Process
from gputui.engine.trials import comparing, record, trial_preset, trial_runner
from gputui.engine.trials.record import Learning, Point, Record, elapsed_of, medians
from gputui.engine.trials.trial import Trial
from gputui.engine.trials.trial_preset import STEPS
from gputui.engine.trials.trial_runner import Stop, TrialRunner

from tests.support.proving import HERE, Planted, PlantedBench, as_text, leave, progress, started
from tests.support.recorded_proof import write_proof
from tests.support.typed import typed

# A preset in which every option that a trial sets has another value.
GIVEN = [
    "epochs=3", "steps_per_epoch=20", "seed=5", "schedule=cosine", "early_stop=loss", "early_stop_patience=2",
    "early_stop_min_delta=0.5", "keep_best=val_loss", "keep_best_count=3", "run.checkpoint=epoch", "on_oom=accumulate",
    "save_model=true", "profile=5-9", "max_minutes=90", "measure_seconds=9", "follow=[tensorboard]",
    "notify.command=echo", "notify.url=https://example.org", "notify.format=slack", "notify.when=end",
]  # fmt: skip
QUIET: dict[str, Any] = {
    "run.checkpoint": "off", "run.on_oom": "stop", "run.save_model": False, "run.follow": [], "run.keep_best": "off",
    "run.keep_best_count": 1, "train.early_stop": "off", "train.early_stop_patience": 5,
    "train.early_stop_min_delta": 0.0, "notify.command": None, "notify.url": None, "notify.format": None,
    "notify.when": "never",
}  # fmt: skip


def flat(preset: Preset) -> dict[str, Any]:
    groups = asdict(preset.options).items()
    return {f"{group}.{name}": value for group, options in groups for name, value in options.items()}


def changed(before: Preset, after: Preset) -> dict[str, Any]:
    """The options in which two presets differ, with their values in the second one."""
    old = flat(before)
    return {key: value for key, value in flat(after).items() if old[key] != value}


def test_a_trial_changes_only_its_length_and_leaves_nothing() -> None:
    given = presets.defaults(GIVEN)
    quiet = {key: value for key, value in QUIET.items() if flat(given)[key] != value}
    assert len(quiet) >= 12
    assert changed(given, trial_preset.as_trial(given, 11, 6.0, HERE)) == quiet | {
        "train.epochs": 1, "train.steps_per_epoch": STEPS, "train.decay_steps": 60, "train.seed": 11,
        "run.profile": "off", "run.max_minutes": pytest.approx(16.2), "run.measure_seconds": 6.0,
    }  # fmt: skip
    profiled = trial_preset.as_trial(given, 11, 6.0, HERE, profile="30-49", most_seconds=90.0).options.run
    assert (profiled.profile, profiled.max_minutes) == ("30-49", 1.5)
    probe = trial_preset.as_trial(given, 11, trial_preset.PROBE_SECONDS, HERE).options
    assert probe.train.steps_per_epoch == 30
    together = presets.defaults([*GIVEN, "steps_per_execution=4"])
    probe = trial_preset.as_trial(together, 11, trial_preset.PROBE_SECONDS, HERE).options
    assert probe.train.steps_per_epoch == 120, "30 executions"


def test_a_training_for_its_loss_changes_only_its_length_and_leaves_nothing() -> None:
    given = presets.defaults(GIVEN)
    quiet = {key: value for key, value in QUIET.items() if flat(given)[key] != value}
    made = trial_preset.as_training(given, 12, (2, None), HERE, 90.0)
    assert changed(given, made) == quiet | {
        "train.epochs": 2, "train.steps_per_epoch": None, "train.decay_steps": 60, "train.seed": 12,
        "run.profile": "off", "run.max_minutes": 1.5, "run.measure_seconds": None,
    }  # fmt: skip
    assert trial_preset.as_training(given, 12, (1, 7), HERE, 90.0).options.train.steps_per_epoch == 7


@pytest.mark.parametrize(("batch", "drops", "steps"), [(30, False, 8), (30, True, 6), (300, False, 2), (300, True, 2)])
def test_a_schedule_that_is_as_long_as_the_training_counts_whole_batches_and_at_least_one(
    batch: int, drops: bool, steps: int
) -> None:
    """Two passes over 100 samples."""
    given = ["schedule=cosine", "data=synthetic", "samples=100", "validation_split=0", "epochs=2"]
    options = presets.defaults([*given, f"batch_size={batch}", f"drop_remainder={str(drops).lower()}"]).options
    assert trial_preset.decay_steps(options, HERE) == steps


def test_a_resumed_proof_numbers_its_trials_after_those_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "02-b").mkdir()  # the first one was deleted

    def figures(options: Options, before: int) -> Planted:
        return Planted()

    bench = PlantedBench(tmp_path, figures)
    rows = [bench.measure(presets.defaults(), "a", 2), bench.learn(presets.defaults(), "b", 3, (1, 5), 60.0)]
    assert [(row.run, row.side, row.repeat) for row in rows] == [("03-a", "a", 2), ("04-b", "b", 3)]
    assert [options.train.seed for options in bench.asked] == [7, 9], "a pair for the loss has a seed of its own"
    assert [options.run.measure_seconds for options in bench.asked] == [5.0, None]
    assert bench.run_of(rows[1]).path == tmp_path / "04-b"


def test_a_trial_names_who_trained_beside_it_at_its_beginning_or_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_self: ForkServer, preset: Preset, path: Path, _paths_from: Path) -> tuple[Run, Any]:
        run = create_at(path, as_text(preset))
        leave(run, preset.options, Planted())
        return run, lambda: False

    monkeypatch.setattr(ForkServer, "start", start)
    told: list[str] = []
    for first, last in (("a", ""), ("", "b"), ("a", "b"), ("", "")):
        answers = [first, last]

        def beside(_options: Options, given: list[str] = answers) -> str:
            return given.pop(0)

        folder_of = tmp_path / f"{first}-{last}"
        with TrialRunner(folder_of, folder_of, 1, 5.0, HERE, Stop(), beside) as bench:
            row = bench.measure(presets.defaults(), "a", 1)
        assert (row.run, row.outcome, row.seconds > 0) == ("01-a", "ok", True)
        told.append(row.disturbed)
    assert told == ["a", "b", "a", ""]


@pytest.mark.parametrize(("hot", "words"), [(1, "its GPU was slowed down (hardware thermal)"), (0, "")])
def test_heat_in_a_tenth_of_the_readings_is_a_disturbance(tmp_path: Path, hot: int, words: str) -> None:
    """A tenth of ten readings, and a tenth of eleven, which is less."""
    for readings, said in ((10, words), (11, "")):
        lines = ['{"t": 1, "type": "started", "gpus": ["GPU-a"], "devices": ["/device:GPU:0"]}',
                 '{"t": 1, "type": "phase", "phase": "training"}']  # fmt: skip
        for number in range(readings):
            throttle = '["hardware thermal"]' if number < hot else "[]"
            gpu = f'{{"uuid": "GPU-a", "busy": 1.0, "throttle": {throttle}}}'
            lines.append(f'{{"t": {2 + number}, "type": "gpu", "gpus": [{gpu}]}}')
        Run(tmp_path).file("events.jsonl").write_text("\n".join(lines) + "\n")
        assert trial_runner.disturbed(Run(tmp_path)) == said


def test_the_losses_of_a_run_are_over_the_samples_of_its_latest_start(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    options = presets.defaults().options
    writer = EventWriter(tmp_path / "r" / "events.jsonl", "r")
    for batch, step, loss in ((64, 1, 2.0), (16, 6, 1.0)):  # its memory ran out, so that its batch is smaller
        writer.emit(started(options, batch))
        writer.emit(replace(progress(step, loss, Planted()), samples=step * batch))
        writer.emit(replace(progress(step + 1, loss, Planted()), samples=(step + 1) * batch, loss=None))
    writer.close()
    assert comparing.losses(read_events(tmp_path / "r")) == [(64.0, 2.0), (96.0, 1.0)]


def test_both_sides_are_compared_by_their_medians_after_the_samples_that_all_have_seen(tmp_path: Path) -> None:
    options = presets.defaults().options
    rows: list[Trial] = []

    def ran(side: str, *reports: tuple[int, float]) -> None:
        run = f"{len(rows) + 1:02}-{side}"
        (tmp_path / run).mkdir()
        writer = EventWriter(tmp_path / run / "events.jsonl", run)
        writer.emit(started(options, 10))
        for step, loss in reports:
            writer.emit(replace(progress(step, loss, Planted()), samples=10 * step))
        writer.close()
        rows.append(Trial(side=side, repeat=len(rows), run=run, outcome="ok"))

    assert comparing.compare("n", rows, tmp_path) == Learning(note="n")
    for end in (1.0, 1.5, 5.0):
        ran("a", (1, 2.0), (11, end))
        ran("b", (1, 2.0), (6, end / 2), (21, 0.1))
    ran("b", (1, 2.0), (21, 0.0))
    found = comparing.compare("n", rows, tmp_path)
    assert (found.note, found.samples) == ("n", 110)
    assert [row.loss_at_samples for row in rows[::2][:3]] == pytest.approx([1.0, 1.5, 5.0])
    b = [0.5 - 0.4 / 3, 0.75 - 0.65 / 3, 2.5 - 2.4 / 3, 1.0]
    assert [row.loss_at_samples for row in (*rows[1::2], rows[-1])] == pytest.approx(b)
    assert found.loss_a == pytest.approx(1.5)
    assert found.loss_b == pytest.approx((b[1] + b[3]) / 2)
    ran("a")
    assert comparing.compare("n", rows, tmp_path) == Learning(note="n"), "one has reported no loss"


@pytest.mark.parametrize(
    ("place", "elapsed"), [({}, 200.0), ({"host": "node7", "boot_id": "b", "pid_namespace": "1"}, 500.0)]
)
def test_the_time_of_a_proof_elsewhere_is_that_of_the_wall_clocks(
    monkeypatch: pytest.MonkeyPatch, place: dict[str, str], elapsed: float
) -> None:
    made = typed(Record, {"kind": "ab", "started_t": time.time() - 500.0, "started_mark": 100.0})
    if not place:
        made.set_process(Process.current())
    for name, value in place.items():
        setattr(made, name, value)
    monkeypatch.setattr(record, "steady", lambda: 300.0)
    assert elapsed_of(made) == pytest.approx(elapsed, abs=60)


def test_a_proof_that_is_resumed_twice_keeps_the_trials_of_both_times(home: Path) -> None:
    asked = request.of_opened("tune", presets.defaults(), None)
    rows = [{"side": "a", "repeat": 1, "run": f"0{n}-a", "outcome": "ok"} for n in range(1, 4)]
    proof = write_proof(home, "20261127-t", kind="tune", state="stopped", pid=1, comparisons=[],
                        baseline_trials=rows[2:], earlier=rows[:2], seconds=262.0)  # fmt: skip
    again = folder.empty_record(proof.path, asked)
    assert [trial.run for trial in process._go_on(proof.path, again)] == ["01-a", "02-a", "03-a"]
    assert [trial.run for trial in again.all_trials] == ["01-a", "02-a", "03-a"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"state": "failed", "error": "no disk"}, {"outcome": "failed", "failed": True, "error": "no disk"}),
        ({"state": "stopped"}, {"outcome": "stopped", "result": "stopped before the measurement of any change was "
         "complete"}),
        ({"state": "done", "changes_kept": {"compile.xla": True}, "gain_total": 1.5},
         {"outcome": "done", "result": "1.50 times as fast with xla=true"}),
    ],
)  # fmt: skip
def test_the_notice_of_a_proof_has_its_result_or_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], told: dict[str, Any]
) -> None:
    made: list[object] = []

    def send(find: Any, make: Any) -> list[str]:
        made.append(make())
        return []

    monkeypatch.setattr(sending, "send_to", send)
    data = typed(Record, {"kind": "loop", "id": "p", "preset_name": "cnn", "seconds": 9.0, **fields})
    data.path = tmp_path / "p" / "proof.json"
    process._notify(request.of_opened("loop", presets.defaults(), None), data)
    whole: dict[str, Any] = {"kind": "loop", "id": "p", "title": "cnn", "seconds": 9.0, "folder": str(tmp_path / "p")}
    assert made == [notice.Notice(**whole | told)]


def test_the_report_begins_with_the_result_and_the_disturbed_trials() -> None:
    rows = [{"run": str(n), "outcome": "ok", "side": "a", "disturbed": reason} for n, reason in enumerate(("", "heat"))]
    report = as_markdown(typed(Record, {"kind": "loop", "state": "done", "repeats": 3, "baseline_trials": rows}))
    assert report.splitlines()[2] == (
        "**Nothing was found to make it faster (no change to try); 1 of 2 trials was disturbed by other programs.**"
    )


def test_a_median_counts_also_what_is_zero_and_a_ratio_only_successful_trials() -> None:
    waits = (0.0, 0.0, 0.3, None)
    rows = [Trial(side="a", repeat=n, run=str(n), outcome="ok", input_wait=wait) for n, wait in enumerate(waits)]
    assert medians(rows)["input_wait"] == 0.0
    assert medians(rows[3:])["input_wait"] is None

    def point(replicas: int, *trials: tuple[int, str, float | None]) -> Point:
        made = [Trial(side="a", repeat=repeat, run=f"{replicas} {repeat}", outcome=outcome, samples_per_second=speed)
                for repeat, outcome, speed in trials]  # fmt: skip
        return Point(replicas=replicas, changes={}, trials=made)

    one = point(1, (1, "ok", 100.0), (2, "slower", 50.0), (3, "ok", 110.0), (4, "ok", 100.0))
    two = point(2, (1, "ok", 190.0), (2, "ok", 200.0), (3, "oom", 500.0), (4, "ok", None), (5, "ok", 900.0))
    assert two.ratios(one) == [1.9]
    assert (one.number, two.number, replace(two, copies=3).number) == (1, 2, 6)


def test_the_newest_proof_that_can_be_resumed_is_meant(home: Path) -> None:
    for number, (kind, state) in enumerate(
        (("tune", "stopped"), ("ab", "stopped"), ("tune", "done"), ("tune", "done"))
    ):
        proof = write_proof(home, f"2026112{number}-t", kind=kind, state=state)
        (proof.path / "request.json").write_text(request.of_opened(kind, presets.defaults(), None).to_json())
        os.utime(proof.path / "request.json", (number, number))

    def latest(kind: str, *passed_over: str) -> str:
        return proof_start.latest_to_resume(lambda asked: asked.kind == kind, passed_over, "there is none").id

    assert latest("tune", "done") == "20261120-t"
    assert latest("tune") == "20261123-t"
    assert latest("tune", "done", "stopped") == "20261123-t", "it is then refused with the reason"
    with pytest.raises(request.ProofError, match="there is none"):
        latest("sweep")


def test_the_record_of_a_diagnosis_has_its_pairs_with_and_without_input(tmp_path: Path) -> None:
    asked = request.of_opened("diagnosis", presets.defaults(), None, ablation_repeats=2, repeats=5, limit_seconds=60.0)
    made = folder.empty_record(tmp_path / "p", asked)
    assert (made.id, made.kind, made.repeats, made.limit_seconds, made.state) == ("p", "diagnosis", 2, 60.0, "running")
    assert (made.preset_before, made.path) == (asked.preset, tmp_path / "p" / "proof.json")
    assert folder.empty_record(tmp_path / "p", replace(asked, kind="loop")).repeats == 5


def test_all_trials_of_a_proof_are_listed_once_in_the_order_of_their_start() -> None:
    def rows(*numbers: int) -> list[dict[str, Any]]:
        return [{"side": "s", "repeat": 1, "run": f"{number}-s", "outcome": "ok"} for number in numbers]

    data = typed(Record, {
        "kind": "loop", "baseline_trials": rows(1), "ablation": {"trials": rows(2, 3)}, "profile_trial": rows(4)[0],
        "comparisons": [{"changes": {}, "trials": rows(1, 5)}, {"changes": {}, "trials": rows(10)}],
        "search": {"candidates": [{"trials": rows(6)}], "losses": [{"settings": {}, "trials": rows(7)}]},
        "scaling": {"keep": "global", "points": [{"replicas": 1, "changes": {}, "trials": rows(8)}]},
        "rate": {"settings": {}, "before": 0.1, "ramp": rows(9), "trials": rows(11)},
        "earlier": rows(5, 12, 100, 99),
    })  # fmt: skip
    assert [trial.run for trial in data.trials] == [f"{n}-s" for n in (1, 2, 3, 4, 6, 7, 8, 9, 11, 5, 10)]
    assert [trial.run for trial in data.searched] == ["6-s", "7-s", "8-s", "9-s", "11-s"]
    assert [trial.run for trial in data.all_trials] == [f"{n}-s" for n in (*range(1, 13), 99, 100)]


def test_a_record_keeps_its_words_and_stores_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder.empty_record(tmp_path, request.of_opened("ab", presets.defaults(), None))
    made.started_mark = 100.0
    monkeypatch.setattr(record, "steady", lambda: 142.5)
    made.put("the first")
    made.put()
    plain = json.loads((tmp_path / "proof.json").read_text())
    assert (plain["doing"], plain["seconds"], "path" in plain) == ("the first", 42.5, False)
    made.put("")
    assert folder.read_record(tmp_path) == made
    assert made.doing == ""


@pytest.mark.parametrize(("visible", "trains_on"), [("free:1", "GPU-7"), ("all", "3")])
def test_all_trials_train_on_the_gpus_that_were_chosen_for_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, trains_on: str
) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    monkeypatch.setattr(signal, "signal", lambda *_given: None)
    monkeypatch.setattr(lease, "inherited", lambda _given: [SimpleNamespace(name="GPU-7")])
    monkeypatch.setattr(free_gpus, "give_back", lambda _leases: [])
    asked = request.of_opened("ab", presets.defaults([f"device.visible={visible}"]), None)
    (tmp_path / "request.json").write_text(asked.to_json())
    seen: list[str] = []
    assert process.main(tmp_path, lambda _site: seen.append(os.environ[VARIABLE])) == 0
    assert seen == [trains_on]
    assert folder.read_record(tmp_path).state == "done"
