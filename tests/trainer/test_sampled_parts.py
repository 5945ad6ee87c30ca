"""How executions that take made-up times are divided: what is counted, and what a GPU's samples stand for."""

from __future__ import annotations

import importlib
import itertools
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.trainer.measure import step_parts
from gputui.engine.trainer.measure.run_figures import Moment, Speed
from gputui.engine.trainer.measure.step_clock import Spent
from gputui.engine.trainer.measure.step_parts import (
    SAMPLE_AFTER,
    GraphClock,
    SampledParts,
    StepParts,
    step_parts_for,
)

from benchmarks.gpu_report.steps import CLOCK_OFF

STEP_SECONDS, WAIT_SECONDS, CALL_SECONDS, PYTHON_SECONDS = 2.0, 0.5, 0.001, 3.0


class Time:
    """Stands for the module; moves on only where it is told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.wall_ahead = self.interrupted_seconds = 0.0

    def perf_counter(self) -> float:
        return self.now

    def time(self) -> float:
        self.now, self.interrupted_seconds = self.now + self.interrupted_seconds, 0.0
        return self.now + self.wall_ahead

    monotonic = perf_counter


class Graph:
    """Stands for the clock in the graph, which counts where a graph with it has run."""

    counts = True

    def __init__(self, now: Time) -> None:
        self.zero, self.sums = now.time(), (0.0, 0.0)

    def ran(self, waited: float, began: float) -> None:
        self.sums = self.sums[0] + waited, self.sums[1] + began - self.zero

    def take(self) -> tuple[float, float]:
        sums, self.sums = self.sums, (0.0, 0.0)
        return sums


class Played:
    """Executions of one step each, with a pulse after some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = Time()
        self.time.wall_ahead = 5_000_000.0  # the two clocks have nothing in common
        monkeypatch.setattr(step_parts, "time", self.time)
        self.graph = Graph(self.time)
        monkeypatch.setattr(step_parts, "GraphClock", lambda **settings: self.graph)
        self.parts = SampledParts()
        self.samples: list[int] = []  # numbers of the executions with the clock in their graph
        self.number = 0

    def execution(self, waits: float = WAIT_SECONDS, pulse: bool = False) -> None:
        self.parts.before()
        self._run(waits)
        if pulse:
            self.parts.pulse()

    def apart(self, waits: float) -> None:
        with self.parts.left_out():
            self._run(waits)

    def _run(self, waits: float) -> None:
        self.number += 1
        has_clock = self.parts.sample_is_due
        self.parts.begins()
        self.time.now += CALL_SECONDS
        if has_clock:
            self.samples.append(self.number)
            self.graph.ran(waits, self.time.time())
        self.time.now += waits + STEP_SECONDS
        self.parts.after(1, {}, 8)

    def input_seconds(self) -> float:
        return self._totals()[0]

    def graph_seconds(self) -> float:
        return self._totals()[1]

    def _totals(self) -> tuple[float, float]:
        seconds, graph = self.parts.totals()
        assert seconds is not None
        assert graph is not None
        return seconds, graph


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


@pytest.mark.parametrize("every", [1, 2, 5])
def test_samples_are_taken_however_often_there_is_a_pulse(played: Played, every: int) -> None:
    for number in range(1, 41):
        assert played.parts.totals() == (None, None) or played.samples, number
        played.execution(pulse=number % every == 0)
    assert played.samples[0] == every + SAMPLE_AFTER + 1
    assert len(played.samples) >= 40 // (every + SAMPLE_AFTER + 1)
    before = played.input_seconds()
    for _ in range(10):
        played.execution(pulse=played.number % every == 0)
    assert played.input_seconds() - before == pytest.approx(10 * WAIT_SECONDS)


def test_what_steps_wait_for_is_that_of_the_last_sample(played: Played) -> None:
    for _ in range(10):
        played.execution(pulse=True)
    for _ in range(SAMPLE_AFTER + 1):
        played.execution(waits=0.1, pulse=True)
    before, ran = played.input_seconds(), played.graph_seconds()
    played.execution(waits=0.1, pulse=True)
    assert played.input_seconds() - before == pytest.approx(0.1)
    assert played.graph_seconds() - ran == pytest.approx(0.1 + STEP_SECONDS), "without the dispatch of the call"
    before, ran = played.input_seconds(), played.graph_seconds()
    played.parts.begins()
    played.time.now += 6.0
    played.parts.after(3, {}, 24)
    assert played.input_seconds() - before == pytest.approx(3 * 0.1), "of each of its three steps"
    assert played.graph_seconds() - ran == pytest.approx(6.0 - CALL_SECONDS)
    with played.parts.not_python():
        played.time.now += 5.0
    assert played.graph_seconds() - ran == pytest.approx(11.0 - CALL_SECONDS)


def test_a_sample_begins_with_an_idle_device_and_after_one_that_cannot_be_others_follow(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(played.parts, "wait_for_device", lambda: waited.append(played.number + 1))
    ran = played.graph.ran
    monkeypatch.setattr(played.graph, "ran", lambda waits, began: ran(waits, began - 60.0))
    for _ in range(SAMPLE_AFTER + 2):
        played.execution(pulse=True)
    assert played.samples == waited == [SAMPLE_AFTER + 2]
    assert played.parts.totals() == (None, None), "it has begun before it was called"
    monkeypatch.setattr(played.graph, "ran", ran)
    for _ in range(2 * SAMPLE_AFTER + 2):
        played.execution(pulse=True)
    assert len(played.samples) > 1
    assert played.samples == waited
    assert played.input_seconds() > 0


def test_an_execution_apart_is_no_sample_and_the_next_one_comes_as_long_after_it(played: Played) -> None:
    played.execution(pulse=True)
    for _ in range(SAMPLE_AFTER):
        played.execution(pulse=True)
    assert played.parts.sample_is_due
    played.apart(waits=60.0)  # as the one that traces the graph with the clock
    assert not played.parts.sample_is_due
    assert played.parts.totals() == (None, None)
    played.samples.clear()
    for _ in range(SAMPLE_AFTER):
        played.execution(pulse=True)
    assert not played.samples
    played.execution(pulse=True)
    assert played.samples == [played.number]
    assert played.input_seconds() == pytest.approx(WAIT_SECONDS)


def test_a_wall_clock_that_was_set_before_a_sample_spoils_no_sample_and_one_during_it_does(played: Played) -> None:
    for waits, set_by, known in ((WAIT_SECONDS, 3600.0, WAIT_SECONDS), (0.1, 0.0, 0.1), (0.2, -3600.0, 0.2)):
        played.time.wall_ahead += set_by
        for _ in range(SAMPLE_AFTER + 2):
            played.execution(waits, pulse=True)
        before = played.input_seconds()
        played.execution(pulse=True)
        assert played.input_seconds() - before == pytest.approx(known)
    ran = played.graph.ran

    def while_it_is_set(waited: float, began: float) -> None:
        ran(waited, began)
        played.time.wall_ahead += 60.0

    played.graph.ran = while_it_is_set  # type: ignore[method-assign]
    for _ in range(SAMPLE_AFTER + 2):
        played.execution(0.3, pulse=True)
    before = played.input_seconds()
    played.execution(pulse=True)
    assert played.input_seconds() - before == pytest.approx(0.2), "that of the sample before it"


def test_the_shares_of_a_training_are_those_since_the_first_reading() -> None:
    def moment(spent: Spent) -> Moment:
        return Moment(epoch=1, step=round(spent.measured), spent=spent, metrics={})

    early = Speed()
    for spent in (Spent(2.0, 1.0, 1.5), Spent(4.0, 2.0, 3.0)):
        assert early.progress(moment(spent)).input_wait is None, "the warm-up is not over"
    speed = Speed()
    speed.begin_measuring(Spent(0.0))
    readings = Spent(4.0), Spent(10.0, 3.0, 9.0), Spent(20.0, 5.0, 18.0), Spent(30.0, 8.0, 27.0)
    found: list[Any] = [(speed.progress(moment(spent)).input_wait, speed.shares()) for spent in readings]
    assert found[:2] == [(None, (None, None))] * 2
    assert found[2] == (pytest.approx(0.2), (pytest.approx(0.2), pytest.approx(0.1)))
    assert found[3] == (pytest.approx(0.3), (pytest.approx(0.25), pytest.approx(0.1)))


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 0.3, -0.3])
@pytest.mark.parametrize("within_a_step", [False, True])
def test_a_wall_clock_that_is_set_moves_no_share(
    seconds: float, within_a_step: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Time()
    monkeypatch.setattr(step_parts, "time", now)
    graph = Graph(now)
    parts = StepParts(graph)  # type: ignore[arg-type]
    for number in range(1, 21):
        parts.begins()
        now.now += CALL_SECONDS
        graph.ran(WAIT_SECONDS, now.time())
        now.now += WAIT_SECONDS + STEP_SECONDS
        now.wall_ahead += seconds if within_a_step and number == 9 else 0.0
        parts.after(1, {}, 8)
        now.now += PYTHON_SECONDS
        now.wall_ahead += seconds if not within_a_step and number == 9 else 0.0
        if number % 5 == 0:
            parts.totals()
    waited, ran = parts.totals()
    assert waited == pytest.approx(20 * WAIT_SECONDS)
    assert ran == pytest.approx(20 * (WAIT_SECONDS + STEP_SECONDS), rel=0.01)


class OnCpu:
    """Executions on a CPU, each of which has the clock in its graph."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = Time()
        monkeypatch.setattr(step_parts, "time", self.time)
        self.graph = Graph(self.time)
        self.parts = StepParts(self.graph)  # type: ignore[arg-type]

    def execution(self, waits: float = WAIT_SECONDS, tells: float | None = None, begins_later: float = 0.0) -> None:
        self.parts.begins()
        self.time.now += CALL_SECONDS
        self.graph.ran(waits if tells is None else tells, self.time.time() + begins_later)
        self.time.now += waits + STEP_SECONDS
        self.parts.after(1, {}, 8)
        self.time.now += PYTHON_SECONDS


def test_an_execution_that_is_left_out_takes_no_time_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = OnCpu(monkeypatch)
    for _ in range(3):
        cpu.execution()
    with cpu.parts.left_out():
        cpu.execution(waits=60.0)
    cpu.execution()
    with cpu.parts.not_python():
        cpu.time.now += 5.0
    assert cpu.parts.totals() == pytest.approx((4 * WAIT_SECONDS, 4 * (WAIT_SECONDS + STEP_SECONDS) + 5.0))


@pytest.mark.parametrize("tells", [-0.1, 99.0])
def test_a_reading_that_cannot_be_is_no_wait(tells: float, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = OnCpu(monkeypatch)
    cpu.execution(tells=tells)
    assert cpu.parts.totals() == pytest.approx((0.0, WAIT_SECONDS + STEP_SECONDS))
    cpu.execution(begins_later=99.0)
    assert cpu.parts.totals() == pytest.approx((WAIT_SECONDS, WAIT_SECONDS + STEP_SECONDS)), "nor time of the graph"
    cpu.execution(begins_later=-99.0)
    whole = CALL_SECONDS + WAIT_SECONDS + STEP_SECONDS
    assert cpu.parts.totals() == pytest.approx((2 * WAIT_SECONDS, WAIT_SECONDS + STEP_SECONDS + whole)), (
        "at most the call"
    )


@pytest.mark.usefixtures("cpus")
@pytest.mark.parametrize(("deterministic", "first_only"), [(False, False), (False, True), (True, False)])
def test_the_clock_of_a_graph_adds_up_waits_and_beginnings_until_they_are_taken(
    deterministic: bool, first_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    clock = GraphClock(deterministic, first_only)
    clock.zero = 1000.0
    readings = itertools.chain([1001.0, 1001.25, 1002.0, 1002.5, 1010.0, 1010.125, 1020.0, 1021.0])
    monkeypatch.setattr(tf, "timestamp", lambda: tf.constant(next(readings), tf.float64))
    iterator = iter(tf.data.Dataset.range(4).map(lambda number: (number, number)))
    seen = []
    for _ in range(2):
        data, begun, waited = clock.first(iterator)
        more, waited = clock.next(iterator, waited)
        clock.end(begun, waited)
        seen += [int(data[0]), int(more[1])]
    assert seen == [0, 1, 2, 3]
    of_all, of_first = (0.25 + 0.5 + 0.125 + 1.0, 1.0 + 10.0), (0.25 + 0.5, 1.0 + 2.0)
    assert clock.take() == ((0.0, 0.0) if deterministic else of_first if first_only else of_all)
    assert clock.take() == (0.0, 0.0)
    assert clock.counts is not deterministic
    assert len(clock.variables) == 1


@pytest.mark.usefixtures("cpus")
def test_in_a_graph_a_wait_reaches_from_the_request_for_a_batch_to_its_arrival() -> None:
    import tensorflow as tf

    slept: list[float] = []

    def sleep(number: Any) -> Any:
        began = time.time()
        time.sleep(0.02)
        slept.append(time.time() - began)
        return number

    settings = tf.data.Options()
    settings.autotune.enabled = settings.experimental_optimization.inject_prefetch = False
    batches = tf.data.Dataset.range(9).map(lambda number: tf.py_function(sleep, [number], tf.int64))
    clock, iterator = GraphClock(deterministic=False), iter(batches.with_options(settings))

    def execution() -> Any:
        first, begun, waited = clock.first(iterator)
        second, waited = clock.next(iterator, waited)
        clock.end(begun, waited)
        return first + second

    traced: Any = tf.function(execution)
    assert [int(traced()) for _ in range(2)] == [1, 5]
    waited, _ = clock.take()
    assert waited >= sum(slept[:4])


@pytest.mark.usefixtures("cpus")
def test_only_a_gpu_is_sampled_and_only_without_deterministic_operations() -> None:
    found = {
        (deterministic, on_gpu): (type(parts := step_parts_for(deterministic, on_gpu)), parts.clock.counts)
        for deterministic in (False, True)
        for on_gpu in (False, True)
    }
    assert found == {
        (False, False): (StepParts, True), (False, True): (SampledParts, True), (True, False): (StepParts, False),
        (True, True): (StepParts, False),
    }  # fmt: skip
    assert step_parts_for(True, True).totals() == (None, None)


def test_an_interruption_between_two_clocks_is_no_clock_that_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    now = Time()
    monkeypatch.setattr(step_parts, "time", now)
    before = step_parts.wall_ahead()
    now.interrupted_seconds = 0.2
    assert step_parts.wall_ahead() == before
    assert not now.interrupted_seconds


def test_the_report_of_a_gpu_can_leave_the_clock_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, step_parts.__name__)
    exec(CLOCK_OFF, {})
    without = importlib.import_module(step_parts.__name__)
    monkeypatch.setattr(without, "GraphClock", lambda deterministic, **_: SimpleNamespace(counts=not deterministic))
    for on_gpu in (False, True):
        parts = without.step_parts_for(False, on_gpu)
        assert (parts.samples, parts.clock.counts, parts.totals()) == (False, False, (None, None))
