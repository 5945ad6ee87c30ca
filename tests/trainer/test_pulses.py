"""When a training reports its progress and memory, the loss of its last steps, and which steps a profile has."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import pytest
import tensorflow as tf
from gputui.engine.runs import Run, events
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.trainer.measure import communication, progress_reports
from gputui.engine.trainer.measure.communication import ExchangeTimer, transfer_seconds
from gputui.engine.trainer.measure.profile import Profiler
from gputui.engine.trainer.measure.progress_reports import LossWindow, Pulses, peak_bytes
from gputui.engine.trainer.measure.run_figures import Moment
from gputui.engine.trainer.measure.run_report import RunReport
from gputui.engine.trainer.measure.step_clock import Spent

MOMENT = Moment(epoch=1, step=1, spent=Spent(0.0), metrics={})
GPU, CPU = "/device:GPU:1", "/device:CPU:0"


class Told:
    """Stands for the report of a run: what it was given, `elapsed` seconds after the start."""

    def __init__(self) -> None:
        self.elapsed, self.told = 0.0, list[Any]()

    def pulse(self, moment: Moment) -> None:
        self.told.append(moment)

    def memory(self, devices: Any, first_step: bool = False) -> None:
        self.told.append((devices, first_step))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Devices of which TensorFlow counts the memory; the list is of those whose peaks were reset."""
    peaks, reset = {"GPU:1": (30, 70), "CPU:0": (5, 0)}, list[str]()

    def counted(name: str) -> dict[str, int]:
        if name not in peaks:
            raise ValueError(f"no counts of {name}")
        return dict(zip(("current", "peak"), peaks[name], strict=True))

    monkeypatch.setattr(tf.config.experimental, "get_memory_info", counted)
    monkeypatch.setattr(tf.config.experimental, "reset_memory_stats", reset.append)
    return reset


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("elapsed", "slows_down", "seconds"), [(59.9, True, 0.25), (60.0, True, 1.0), (9999.0, False, 0.25)]
)
def test_pulses_come_four_times_a_second_and_after_a_minute_once(
    elapsed: float, slows_down: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    report: Any = Told()
    report.elapsed = elapsed
    monkeypatch.setattr(progress_reports, "time", SimpleNamespace(perf_counter=lambda: 1000.0))
    pulses = Pulses(report, [], slows_down)
    assert pulses.due(0.0)
    pulses.pulse(MOMENT)
    assert [pulses.due(1000.0 + later) for later in (0.0, seconds - 0.01, seconds)] == [False, False, True]
    always = Pulses(report, [], slows_down, always=True)
    always.pulse(MOMENT)
    assert always.due(1000.0)


def test_memory_is_reported_once_a_second_and_at_an_end(memory: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    report: Any = Told()
    now = [50.0]
    monkeypatch.setattr(progress_reports, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    pulses = Pulses(report, [CPU, GPU], slows_down=True)
    of_gpu = {"GPU:1": {"current_bytes": 30, "peak_bytes": 70}}
    for now[0], told in ((50.0, [MOMENT, (of_gpu, False)]), (50.99, [MOMENT]), (51.0, [MOMENT, (of_gpu, False)])):
        report.told.clear()
        pulses.pulse(MOMENT)
        assert report.told == told
    report.told.clear()
    pulses.out_of_turn(MOMENT)
    pulses.first_step_done()
    assert report.told == [MOMENT, (of_gpu, False), (of_gpu, True)]
    assert memory == ["GPU:1"]


@pytest.mark.usefixtures("memory")
def test_devices_without_counts_have_no_memory() -> None:
    counted = {"current_bytes": 30, "peak_bytes": 70}
    assert peak_bytes(["/device:GPU:0", CPU, GPU]) == {"GPU:1": counted}
    assert peak_bytes([]) == {}


# ---- the loss of the last steps ----------------------------------------------------------------


class Running:
    """A model whose loss Keras keeps as a mean."""

    def __init__(self) -> None:
        self.loss = keras.metrics.Mean(name="loss")
        self.metrics = [keras.metrics.Mean(name="mae"), self.loss]
        self.window = LossWindow(self)

    def trains(self, *losses: float) -> None:
        for loss in losses:
            self.loss.update_state(loss)


def test_a_window_is_the_steps_since_the_last_reading() -> None:
    model = Running()
    model.window.begin(within_epoch=False)
    assert model.window.take() is None, "no step"
    model.trains(4.0)
    assert model.window.take() == 4.0
    assert model.window.take() is None
    model.trains(1.0, 2.0)
    assert model.window.take() == 1.5
    model.trains(5.0)
    assert model.window.end_epoch() == 5.0
    model.loss.reset_state()  # as Keras does before an epoch
    model.trains(7.0, 8.0, 9.0, 10.0)
    assert model.window.take() == 8.5
    model.loss.reset_state()
    model.trains(3.0)
    assert model.window.take() == 3.0


def test_steps_of_an_evaluation_or_of_an_earlier_process_are_in_no_window() -> None:
    model = Running()
    model.window.begin(within_epoch=True)
    model.trains(4.0)
    assert model.window.take() is None, "the sums hold steps of the checkpoint"
    model.trains(2.0)
    model.window.evaluation_begins()
    model.trains(100.0)
    assert model.window.end_epoch() == 2.0
    model.loss.reset_state()
    model.trains(6.0)
    assert model.window.take() == 6.0
    model.window.evaluation_begins()  # no step since
    model.trains(100.0)
    assert model.window.take() is None
    model.trains(1.0)
    assert model.window.take() == 1.0
    other: Any = SimpleNamespace(metrics=[keras.metrics.Sum(name="loss"), keras.metrics.Mean(name="mae")])
    assert LossWindow(other).take() is None


# ---- a profile ---------------------------------------------------------------------------------


@pytest.fixture
def report(tmp_path: Path) -> RunReport:
    run = Run(tmp_path)
    return RunReport(run, EventWriter(run.file("events.jsonl"), run.id))


NO_LAYERS: Any = SimpleNamespace(_flatten_layers=list)


@pytest.mark.parametrize(
    ("number", "count", "begins"),
    [(1, 2, False), (1, 3, True), (3, 1, True), (5, 4, True), (6, 1, False), (1, 9, True)],
)
def test_a_profile_is_of_the_executions_that_hold_its_steps(
    number: int, count: int, begins: bool, report: RunReport
) -> None:
    profiler = Profiler(report, (3, 5), NO_LAYERS)
    assert profiler.begins(number, count) is begins
    assert not profiler.ends(5)
    profiler.running = True
    assert not profiler.begins(number, count)
    assert [profiler.ends(step) for step in (4, 5, 6)] == [False, True, True]
    assert not Profiler(report, None, NO_LAYERS).begins(number, count)


@pytest.mark.parametrize("refuses", ["start", "stop"])
def test_a_disk_that_refuses_a_profile_costs_the_profile_alone(
    refuses: str, report: RunReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("start", "stop"):
        monkeypatch.setattr(tf.profiler.experimental, name, refuse if name == refuses else lambda *_: None)
    profiler = Profiler(report, (3, 5), NO_LAYERS)
    profiler.start()
    assert profiler.running is (refuses == "stop")
    profiler.close()
    assert not profiler.running
    assert not profiler.begins(3, 1)
    (event,) = map(json.loads, report.run.file("events.jsonl").read_text().splitlines())
    message = f"no space left on device: {report.run.file('profile')}: there is no profile"
    assert (event["type"], event["kind"], event["message"].lower(), event["option"]) == (
        "warning", "profile", message.lower(), "run.profile",
    )  # fmt: skip


def test_the_last_step_of_a_profile_ends_before_it_is_written(
    report: RunReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    class Marker:
        def __init__(self, name: str, step_num: int, _r: int) -> None:
            self.number = step_num

        def __enter__(self) -> None:
            told.append(self.number)

        def __exit__(self, *_: object) -> None:
            told.append(-self.number)

    monkeypatch.setattr(tf.profiler.experimental, "Trace", Marker)
    monkeypatch.setattr(tf.profiler.experimental, "start", lambda folder: told.append("start"))
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: told.append("stop"))
    profiler = Profiler(report, (3, 5), NO_LAYERS)
    profiler.start()
    profiler.begin_step(3)
    profiler.begin_step(4)
    profiler.close()
    profiler.close()
    assert told == ["start", 3, -3, 4, -4, "stop"]


def test_another_failure_of_a_profile_is_no_refusal(report: RunReport, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise tf.errors.AlreadyExistsError(None, None, "Another profiler is running.")

    monkeypatch.setattr(tf.profiler.experimental, "start", fail)
    with pytest.raises(tf.errors.AlreadyExistsError):
        Profiler(report, (3, 5), NO_LAYERS).start()


# ---- communication -----------------------------------------------------------------------------


class Readings:
    """Stands for the module `time`: its readings are so far apart."""

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.now = list(seconds), 10.0

    def perf_counter(self) -> float:
        self.now += self.seconds.pop(0) if self.seconds else 0.0
        return self.now


def test_the_exchange_is_timed_after_the_warm_up_and_each_time_the_steps_have_doubled(
    report: RunReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])
    exchange: Any = SimpleNamespace(wait=lambda: None)
    timer = ExchangeTimer(model, exchange, report)
    assert not timer.due(10**6), "before the training begins"
    timer.begin(1000, 20)
    assert [timer.due(step) for step in (1019, 1020)] == [False, True]
    monkeypatch.setattr(communication, "time", Readings(0, 50, 0, 0.003, 0, 0.001, 0, 0.002))
    timer.measure(1020)
    assert [timer.due(step) for step in (1119, 1120)] == [False, True]
    (event,) = map(json.loads, report.run.file("events.jsonl").read_text().splitlines())
    assert (event["type"], event["bytes"], event["step"]) == (events.GradientExchange.type, 4 * (3 * 5 + 5), 1020)
    assert event["ms"] == report.speed.exchange_ms == pytest.approx(2.0)
    timer.measure(1150)
    assert [timer.due(step) for step in (1299, 1300)] == [False, True]
    for other in (keras.Sequential([keras.Input((3,)), keras.layers.Embedding(9, 2)]), keras.Sequential()):
        without = ExchangeTimer(other, exchange, report)
        without.begin(0, 0)
        assert not without.due(10**6)


def test_the_copy_of_a_batch_is_the_median_without_the_time_of_reading_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    zeros = tf.zeros

    def noted(shape: list[int], dtype: Any) -> Any:
        sizes.extend(shape)
        return zeros(shape, dtype)

    monkeypatch.setattr(tf, "zeros", noted)
    spec = {"x": tf.TensorSpec((None, 4, 2), tf.float32), "y": tf.TensorSpec((None,), tf.uint8)}
    #           begin, copied, read back
    first, others = [0.0, 900.0, 0.0], [0, 0.010, 0.001, 0, 0.050, 0.004, 0, 0.011, 0.002, 0, 0.012, 0.003, 0, 9, 0.009]
    monkeypatch.setattr(communication, "time", Readings(*first, *others, *[0.0] * 18))
    assert transfer_seconds(spec, 6, ["/CPU:0", "/CPU:0"]) == pytest.approx(0.012 - 0.003)
    assert sorted(sizes) == [6, 6 * 4 * 2 * 4]
    monkeypatch.setattr(communication, "time", Readings(*[0.0] * 18, *first, *others))
    assert transfer_seconds(spec, 6, ["/CPU:0", "/CPU:0"]) == pytest.approx(0.012 - 0.003), "of the slower one"
    monkeypatch.setattr(communication, "time", Readings(*[0.0, 0.001, 0.5] * 6))
    assert transfer_seconds(spec, 6, ["/CPU:0"]) == 0.0, "clocks are not exact"

    def refuse(*_: Any) -> None:
        raise tf.errors.InternalError(None, None, "Dst tensor is not initialized.")

    monkeypatch.setattr(tf, "identity", refuse)
    assert transfer_seconds(spec, 6, ["/CPU:0"]) is None, "without memory for a copy the training goes on"


@pytest.mark.parametrize("shape", [None, (), (None, None), (None, 3, None)])
def test_a_batch_of_no_fixed_size_has_no_time_of_a_copy(shape: Any) -> None:
    spec = (tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec(shape, tf.float32))
    assert transfer_seconds(spec, 6, ["/CPU:0"]) is None
    assert transfer_seconds(spec[0], 6, []) is None
