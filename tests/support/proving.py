"""A bench whose trials train nothing: each leaves the run folder of a training with the figures that a test plants."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest

from tests.doors.engine import (
    LEAST_REPORTS,
    SCHEMA_VERSION,
    EventWriter,
    Judge,
    Machine,
    Measurement,
    Options,
    Preset,
    Run,
    Searcher,
    Stop,
    Trial,
    TrialRunner,
    checks,
    create_at,
    events,
    folder,
    outcome,
    plan,
)
from tests.doors.engine import proof_request_Request as Request

HERE = Machine(gpus=(), no_gpu_reason="none planted", cpus=2, memory_bytes=16 * 2**30)
VERSIONS = {"python": "3.11", "tensorflow": "2.21", "keras": "3.15"}


@dataclass
class Planted:
    """The figures of one trial; `loss` is that at its end, falling from 2 on a straight line."""

    samples_per_second: float = 1000.0
    input_wait: float | None = 0.0
    python_share: float | None = 0.0
    outcome: events.Outcome = "ok"
    error: str = "planted"
    loss: float = 1.0
    seconds: float = 5.0
    peak_memory_bytes: int | None = None
    ramp: Sequence[float | None] = ()  # the losses of a ramp of the learning rate, step by step, 100 in a second
    kind: str = ""  # of the error, if it is not the outcome
    inapplicable: Mapping[str, str] = field(default_factory=dict)
    compute_capability: tuple[int, int] | None = None  # of a GPU that trains


Figures = Callable[[Options, int], Planted]  # of the options of a trial, and how many trials there were before


@dataclass
class PlantedBench(TrialRunner):
    """Trials take no time, but say that they have; `asked` remembers the settings of each.

    `passes` is told the seconds of each, which `seconds_of` says of how many trials there were before.
    """

    def __init__(self, folder: Path, figures: Figures) -> None:
        super().__init__(folder, folder, seed=7, seconds=5.0, machine=HERE, stop=Stop())
        self.figures = figures
        self.asked: list[Options] = []
        self.seconds_of: Callable[[int], float] = lambda before: 10.0
        self.passes: Callable[[float], None] = lambda seconds: None

    def _carried_out(
        self, prepare: Callable[[], Preset], side: str, repeat: int, judge: Judge | None = None, timed: bool = True
    ) -> Trial:
        trial = prepare()
        planted = self.figures(trial.options, len(self.asked))
        self.asked.append(trial.options)
        with self._starting:
            self._last += 1
            run = create_at(self.folder / f"{self._last:02}-{side}", as_text(trial))
        slower = planted.outcome == "ok" and judge is not None and judge([planted.samples_per_second] * LEAST_REPORTS)
        if trial.options.run.measure_seconds is None:
            leave_learnt(run, trial.options, planted)
        else:
            leave(run, trial.options, replace(planted, outcome="stopped") if slower else planted)
        row = outcome(run, side, repeat, asked=self.stop.count > 0, slower=slower, timed=timed)
        row.seconds = self.seconds_of(len(self.asked) - 1)
        self.passes(row.seconds)
        return row


def as_text(preset: Preset) -> str:
    """What its `to_yaml` says, as JSON, which is YAML: in a tenth of the time."""
    return json.dumps({"schema_version": SCHEMA_VERSION, "description": preset.description} | asdict(preset.options))


def leave_learnt(run: Run, options: Options, planted: Planted) -> None:
    """The events and the result of a training for its loss, which is planted for its validation."""
    batch = options.input.batch_size
    writer = EventWriter(run.file("events.jsonl"), run.id)
    writer.emit(replace(started(options, batch), inapplicable=planted.inapplicable))
    if options.train.schedule != "ramp":
        writer.emit(progress(1, 2.5, planted))
    for step, value in enumerate(planted.ramp, 1):
        writer.emit(replace(progress(step, 1.0, planted), window_loss=value), t=1000 + step / 100)
    ended = options.train.epochs if planted.outcome == "ok" else 1
    for epoch in range(1, ended + 1):
        now = 2.5 + (planted.loss - 2.5) * epoch / options.train.epochs
        writer.emit(events.EpochEnd(epoch=epoch, step=epoch, metrics={"loss": now / 2, "val_loss": now}, seconds=1.0))
    kind = planted.kind or planted.outcome
    error = None if planted.outcome == "ok" else {"kind": kind, "message": planted.error, "hint": ""}
    summary = events.Summary(outcome=planted.outcome, global_batch_size=batch, error=error)
    writer.emit(events.Finished(outcome=planted.outcome, summary=asdict(summary)))
    writer.close()
    run.file("result.json").write_text(json.dumps(events.plain(asdict(summary))))


def leave(run: Run, options: Options, planted: Planted) -> None:
    """The events and the result of a trial."""
    batch = options.input.batch_size * checks.replicas(options, HERE)
    seconds = plan.expected_seconds(planted.seconds, batch / planted.samples_per_second)
    capability = planted.compute_capability
    steps = round(planted.samples_per_second * seconds / batch)
    writer = EventWriter(run.file("events.jsonl"), run.id)
    writer.emit(replace(started(options, batch), inapplicable=planted.inapplicable, compute_capability=capability))
    for part in (0, 1, 2):
        loss = 2 + (planted.loss - 2) * part / 2
        writer.emit(replace(progress(step := max(1, steps * part // 2), loss, planted), samples=step * batch))
    good = planted.outcome == "ok"
    step_ms, peak = 1000 * batch / planted.samples_per_second, planted.peak_memory_bytes
    summary = events.Summary(
        outcome=planted.outcome, samples_per_second=planted.samples_per_second,
        step_ms={"p50": step_ms, "p95": 1.1 * step_ms}, measured_steps=steps, measured_seconds=steps * step_ms / 1000,
        global_batch_size=batch, input_wait=planted.input_wait, python_share=planted.python_share,
        peak_memory_bytes=peak and peak // 8, peak_process_bytes=peak,
        error=None if good else {"kind": planted.outcome, "message": f"{planted.error}\nand more", "hint": ""},
    )  # fmt: skip
    writer.emit(events.Finished(outcome=planted.outcome, summary=asdict(summary)))
    writer.close()
    if planted.outcome != "crashed":
        run.file("result.json").write_text(json.dumps(events.plain(asdict(summary))))


def started(options: Options, batch: int) -> events.Started:
    steps = options.train.steps_per_epoch or 0
    return events.Started(
        pid=1, versions=VERSIONS, devices=["/device:CPU:0"], options=asdict(options), actual={},
        replicas=checks.replicas(options, HERE), global_batch_size=batch, steps_per_epoch=steps, epochs=1, steps=steps,
        train_samples=1000, validation_samples=100, cpus=2, sample_bytes=1000,
    )  # fmt: skip


def progress(step: int, loss: float, planted: Planted) -> events.Progress:
    return events.Progress(
        epoch=1, epochs=1, step=step, steps=10**9, samples_per_second=planted.samples_per_second, step_ms_p50=1.0,
        step_ms_p95=1.0, input_wait=planted.input_wait, loss=loss, metrics={}, eta_seconds=1.0,
        python_share=planted.python_share,
    )  # fmt: skip


@pytest.fixture
def forked_trials(forked_trainers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials of what a command of this test measures are forked as its runs are, by no process of the proof."""
    monkeypatch.setenv("GPUTUI_WARM", "0")


def searching(
    path: Path, asked: Request, figures: Figures, known: Iterable[Trial] = ()
) -> tuple[Searcher, PlantedBench]:
    """Everything of a search but its process."""
    path.mkdir(exist_ok=True)
    bench = PlantedBench(path / "trials", figures)
    return Searcher(Measurement(asked, folder.empty_record(path, asked), bench, HERE, known)), bench
