"""The stages of the input pipeline: their names whatever TensorFlow makes of them, and the slow one found."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from gputui.engine.runs import events
from gputui.engine.trainer.data import pipeline as pipelines
from gputui.engine.trainer.data import stages as stage_files
from gputui.engine.trainer.data.pipeline import Pipeline
from gputui.engine.trainer.data.source import Source
from gputui.engine.trainer.data.stages import SOURCE, Naming, Stage, StageMeter, StageWatch, Tally, Timed
from gputui.engine.trainer.measure.step_parts import GraphClock

from tests.support.cases import all_hold
from tests.support.combinations import any_three
from tests.support.front_door import until
from tests.support.planted import SLEEP, gated, slow_load, slow_read
from tests.support.training import Build, options

pytestmark = pytest.mark.usefixtures("cpus")

DATA = ("data=synthetic", "shape=[8, 8, 1]", "samples=200", "validation_split=0", "batch_size=8", "shuffle=16")


def piped(*settings: str, replicas: int = 1, plant: Callable[[Source], Source] | None = None) -> Pipeline:
    pipe = pipelines.build(options(*DATA, *settings), replicas)
    return dataclasses.replace(pipe, source=plant(pipe.source)) if plant else pipe


def measured(pipe: Pipeline, batches: int = 30, looks: int = 5, declared: Any = None) -> tuple[list[Timed], Any]:
    """The stages after so many batches, looked at so many times on the way."""
    meter = StageMeter(pipe.stages() if declared is None else declared, pipe.replicas)
    iterator = iter(pipe.stream())
    for number in range(batches * pipe.replicas):
        next(iterator)
        if (number + 1) % (batches * pipe.replicas // looks) == 0:
            assert meter.read(iterator)
    return meter.take()


def slowest(stages: list[Timed]) -> Timed:
    return max(stages, key=lambda stage: stage.ms_per_batch)


# ---- the slow one is found --------------------------------------------------------------------

WAYS = list(itertools.product(("off", "auto"), ("off", "auto")))


def of(name: str, stages: list[Timed]) -> Timed:
    (found,) = (stage for stage in stages if stage.name == name)
    return found


@pytest.mark.parametrize(("calls", "prefetch"), WAYS)
@pytest.mark.parametrize(("plant", "name"), [(slow_load, "load"), (slow_read, SOURCE)], ids=["load", "read"])
def test_a_stage_that_sleeps_has_its_time(
    plant: Callable[[Source], Source], name: str, calls: str, prefetch: str
) -> None:
    """That it is the slowest, and has no more than its own time, is measured in tests/end_to_end/test_cases.py."""
    stages, _ = measured(piped(f"parallel_calls={calls}", f"prefetch={prefetch}", plant=plant), batches=10)
    assert of(name, stages).ms_per_batch >= 8 * 1000 * SLEEP


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("ahead", ["off", "auto"])
def test_the_slowest_stage_is_a_heavy_augmentation(ahead: str) -> None:
    settings = ("shape=[64, 64, 3]", "augment=heavy", f"parallel_calls={ahead}", f"prefetch={ahead}")
    # Loaded into memory first, so that making the images costs nothing later.
    stages, _ = measured(piped(*settings, "cache=memory", "batch_size=32"), batches=20)
    assert slowest(stages).name == "augment"


def test_the_slow_stage_of_a_global_batch_is_found_for_several_replicas_too() -> None:
    stages, _ = measured(piped("parallel_calls=off", replicas=2, plant=slow_load), batches=12, looks=4)
    assert of("load", stages).ms_per_batch >= 16 * 1000 * SLEEP
    assert "split" in [stage.name for stage in stages]


def test_parallelism_is_told_where_calls_run_at_once() -> None:
    by_name = {stage.name: stage for stage in measured(piped("parallel_calls=3", "augment=light"))[0]}
    assert by_name["augment"].parallelism == 3
    assert by_name["shuffle"].parallelism is None


# ---- names ------------------------------------------------------------------------------------

FORMS = any_three(
    ("data=synthetic", "data=digits"), ("off", "auto"), ("off", "memory"), ("off", "light"), ("off", "16"), (1, 2)
)


def test_every_declared_stage_is_found_in_its_order_and_nothing_else() -> None:
    with all_hold() as cases:
        for form in FORMS:
            with cases.case(" ".join(map(str, form))):
                _stages_are_the_declared_ones(*form)


def _stages_are_the_declared_ones(data: str, calls: str, cache: str, augment: str, shuffle: str, replicas: int) -> None:
    settings = (data, f"parallel_calls={calls}", f"cache={cache}", f"augment={augment}", f"shuffle={shuffle}")
    pipe = piped(*settings, "samples=1024", replicas=replicas)  # more than the pipeline reads ahead
    meter = StageMeter(pipe.stages(), replicas)
    iterator = iter(pipe.stream())
    names: set[str] = set()
    for _ in range(6 * replicas):  # less than a pass: with a cache, while it is filled
        next(iterator)
        meter.read(iterator)
        names |= {stage.name for stage in meter.take()[0]}
    declared = list(dict.fromkeys(stage.name for stage in pipe.stages()))
    if data == "data=synthetic" and cache == "off" and calls != "off":
        declared.remove("batch")  # TensorFlow makes one operation of it and load
    assert names == set(declared)
    told = [stage.name for stage in meter.take()[0]]
    assert told == [name for name in declared if name in told]


def test_a_filled_cache_leaves_nothing_of_what_lies_behind_it() -> None:
    pipe = piped("cache=memory", "shuffle=off", plant=slow_load)
    meter = StageMeter(pipe.stages(), 1)
    iterator = iter(pipe.stream())
    for _ in range(5):
        next(iterator)
    meter.read(iterator)
    assert "load" in [stage.name for stage in meter.take()[0]]
    for _ in range(2 * pipe.batches_per_pass):
        next(iterator)
    for _ in range(10):
        next(iterator)
        meter.read(iterator)
    names = [stage.name for stage in meter.take()[0]]
    assert "cache" in names
    assert not {"load", SOURCE} & set(names)


def test_one_batch_has_no_stages_before_it() -> None:
    stages, _ = measured(piped("one_batch=true", plant=slow_load))
    assert [stage.name for stage in stages] == ["one batch", "prefetch"]


def test_a_pipeline_that_declares_nothing_is_told_by_its_operations_numbered_from_the_source() -> None:
    def sleep(number: Any) -> Any:
        time.sleep(SLEEP)
        return number

    def slow(number: Any) -> Any:
        return tf.py_function(sleep, [number], tf.int64)

    batches = tf.data.Dataset.range(1000).map(lambda n: n + 1).shuffle(8).map(slow).batch(4).map(lambda n: n * 2)
    iterator = iter(batches)
    meter = StageMeter((), 1)
    for _ in range(10):
        next(iterator)
    assert meter.read(iterator)
    stages, _ = meter.take()
    names = [stage.name for stage in stages]
    assert names[0] == "Range"
    assert names.index("Map 1") < names.index("Shuffle") < names.index("Map 2")
    found = next(stage for stage in stages if stage.name in ("Map 2", "MapAndBatch"))
    assert found.ms_per_batch >= 4 * 1000 * SLEEP


def test_what_tensorflow_fuses_carries_the_name_of_the_work() -> None:
    tallies = {
        ((0, "Root"),): Tally(3, 1.0, None, 1e6, 10),
        ((0, "Root"), (0, "MapAndBatch")): Tally(4, 8.0, 2, 50e6, 10),
        ((0, "Root"), (0, "MapAndBatch"), (0, "Range")): Tally(3, 0.0, None, 1e6, 100),
    }
    declared = (Stage(SOURCE, ""), Stage("load", "Map"), Stage("batch", "Batch"))
    read, load = Naming(tallies, declared, 1).stages()
    assert (read.name, read.op, load.name, load.op, load.parallelism) == (SOURCE, "Range", "load", "MapAndBatch", 2)
    assert (read.ms_per_batch, load.ms_per_batch) == pytest.approx((0.08, 5.0))


def test_the_time_of_a_stage_is_that_of_all_its_operations() -> None:
    root, load = (0, "Root"), (0, "ParallelMapV2")
    tallies = {
        (root,): Tally(3, 1.0, None, 1e6, 10),
        (root, load): Tally(3, 1.0, 2, 50e6, 10),
        (root, load, (0, "Interleave")): Tally(3, 1.0, None, 30e6, 10),
        (root, load, (0, "Interleave"), (0, "TFRecord")): Tally(3, 1.0, None, 20e6, 10),
    }
    read, load_stage = Naming(tallies, (Stage(SOURCE, ""), Stage("load", "Map")), 1).stages()
    assert (read.name, read.op, load_stage.name) == (SOURCE, "Interleave", "load")
    assert (read.ms_per_batch, load_stage.ms_per_batch) == pytest.approx((5.0, 5.0))


# ---- the buffer -------------------------------------------------------------------------------


def test_the_buffer_is_empty_where_the_pipeline_is_slow_and_full_where_it_is_ahead() -> None:
    permits = threading.Semaphore(0)
    pipe = piped("prefetch=2", "parallel_calls=off", "shuffle=off", plant=lambda source: gated(source, permits))
    meter = StageMeter(pipe.stages(), 1)
    iterator = iter(pipe.stream())
    for _ in range(5):
        permits.release(8)  # for the batch that is taken
        next(iterator)
        meter.read(iterator)
    assert meter.take()[1] == 0.0
    permits.release(8 * 200)

    def fill() -> float | None:
        meter.read(iterator)
        return meter.take()[1]

    until(lambda: fill() == 1.0)
    assert measured(piped("prefetch=off"))[1] is None


def test_there_is_no_model_of_what_is_no_iterator_of_tensorflow() -> None:
    assert not StageMeter((), 1).read(iter(()))
    settings = tf.data.Options()
    settings.autotune.enabled = False
    iterator = iter(tf.data.Dataset.range(3).with_options(settings))
    next(iterator)
    assert not StageMeter((), 1).read(iterator)


# ---- when it is said --------------------------------------------------------------------------


class FakeMeter(StageMeter):
    """Counts its looks."""

    def __init__(self, there: bool = True) -> None:
        super().__init__((), 1)
        self.there, self.looks = there, 0

    def read(self, iterator: Any) -> bool:
        self.looks += 1
        return self.there

    def take(self) -> tuple[list[Timed], float | None]:
        return [Timed("load", "Map", 2.0, None)], 0.5


def said_at(meter: FakeMeter, monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[float]:
    """When events came, in seconds since the first pulse; a pulse each 10 ms."""
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    said: list[float] = []

    def emit(event: events.Event) -> None:
        assert isinstance(event, events.InputStages)
        assert event.stages == [{"name": "load", "op": "Map", "ms_per_batch": 2.0, "parallelism": None}]
        assert event.buffer_fill == 0.5
        said.append(now - 100)

    watch = StageWatch(meter, emit)
    while now < 100 + seconds:
        watch.pulse(None)
        now += 0.01
    return said


def test_stages_are_said_after_a_second_then_every_two_then_every_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = FakeMeter()
    said = said_at(meter, monkeypatch, 45)
    assert said == pytest.approx([1, 3, 5, 7, 9, 11, 21, 31, 41], abs=0.3)
    assert 86 <= meter.looks <= 90, "every half a second"


def test_stages_that_were_not_known_when_they_were_due_are_said_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now, known, said = [100.0], list[Timed](), list[events.Event]()
    meter = FakeMeter()
    monkeypatch.setattr(meter, "take", lambda: (known, None))
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    watch = StageWatch(meter, said.append)
    for now[0] in (100.0, 101.5):
        watch.pulse(None)
    watch.finish()
    assert said == []
    known.append(Timed("load", "Map", 2.0, 3))
    watch.finish()
    watch.finish()
    (event,) = said
    assert isinstance(event, events.InputStages)
    assert (event.stages, event.buffer_fill) == (
        [{"name": "load", "op": "Map", "ms_per_batch": 2.0, "parallelism": 3}], None,
    )  # fmt: skip


@pytest.mark.parametrize(("cost", "seconds"), [(0.0, 0.5), (0.0025, 0.5), (0.005, 1.0), (0.1, 2.0)])
def test_looking_takes_at_most_a_two_hundredth_of_the_time(
    cost: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, looks = [100.0], list[float]()

    class Costly(FakeMeter):
        def read(self, iterator: Any) -> bool:
            looks.append(now[0])
            now[0] += cost if len(looks) > 1 else 30.0  # the first one imports what it needs
            return True

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    watch = StageWatch(Costly(), lambda event: None)
    watch.finish()  # nothing was seen
    for now[0] in (100.0, 101.0):
        watch.pulse(None)
    assert looks == [100.0, 101.0]
    for now[0] in (101.0 + seconds - 0.01, 101.0 + seconds + 0.01):
        watch.pulse(None)
    assert looks[2:] == [101.0 + seconds + 0.01]


# ---- the model of TensorFlow, as a table -------------------------------------------------------


def node(name: str, time_: int, elements: int, *inputs: int, kind: int = 3, ratio: float = 1.0, **more: Any) -> Any:
    """A node of TensorFlow's model; `more` are its parameters, and `buffered`."""
    buffered = more.pop("buffered", 0)
    parameters = [SimpleNamespace(name=key, state_value=value) for key, value in more.items()]
    return SimpleNamespace(
        name=name, processing_time=time_, num_elements=elements, inputs=inputs, node_class=kind, ratio=ratio,
        parameters=parameters, buffered_elements=buffered,
    )  # fmt: skip


def read_models(
    monkeypatch: pytest.MonkeyPatch, *models: dict[int, Any], declared: Any = (), replicas: int = 1, **functions: Any
) -> list[tuple[dict[str, float], float | None]]:
    """After each of the models: the ms of each stage by its name, and the fill of the buffer."""
    meter, told = StageMeter(declared, replicas, functions), []
    for model in models:
        proto = SimpleNamespace(nodes=model, output=1)
        monkeypatch.setattr(tf.data.experimental, "get_model_proto", lambda _, proto=proto: proto)
        assert meter.read(None)
        stages, fill = meter.take()
        told.append(({stage.name: stage.ms_per_batch for stage in stages}, fill))
    return told


def test_what_was_counted_before_counts_half(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(time_: int, elements: int) -> dict[int, Any]:
        return {1: node("Root", 0, 0, 2), 2: node("Map", time_, elements, parallelism=3.0)}

    told = read_models(monkeypatch, model(8_000_000, 4), model(14_000_000, 6), model(5_000_000, 1))
    assert [stages["Map"] for stages, _ in told] == pytest.approx([2.0, 10 / 4, 10 / 3])


@pytest.mark.parametrize(
    ("buffers", "fill"),
    [(((2, 4),), 0.5), (((9, 4),), 1.0), (((0, 0),), None), (((1, 4), (2, 4)), 0.375)],
)
def test_the_fill_of_a_buffer_is_at_most_1(
    buffers: tuple[tuple[int, int], ...], fill: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = range(2, 2 + len(buffers))
    parts = {
        n: node("Prefetch", 0, 1, buffered=b, buffer_size=float(s)) for n, (b, s) in zip(numbers, buffers, strict=True)
    }
    assert read_models(monkeypatch, {1: node("Root", 0, 0, *numbers)} | parts)[0][1] == fill
    other = {1: node("Root", 0, 0, 2), 2: node("Shuffle", 0, 1, buffered=2, buffer_size=4.0)}
    assert read_models(monkeypatch, other)[0][1] is None


def test_times_are_those_of_a_global_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two replicas; a FlatMap takes its elements from data sets that the elements of its first input make."""
    model = {
        1: node("Root", 0, 0, 2),
        2: node("FlatMap", 4_000_000, 4, 3, 4, 5, kind=1),
        3: node("Map", 6_000_000, 2, 6),  # one element for two of the end
        4: node("Batch", 3_000_000, 3, 7, ratio=8.0),  # two data sets, one after the other
        5: node("Batch", 1_000_000, 1, 7, ratio=8.0),
        6: node("Range", 500_000, 5, ratio=0.0),
        7: node("Shuffle", 16_000_000, 16, kind=4),
    }
    ((stages, _),) = read_models(monkeypatch, model, replicas=2)
    assert stages == pytest.approx({
        "Range": 0.1, "Map": 3.0, "Shuffle": 16.0, "Batch": 2.0, "FlatMap": 2.0,
    })  # fmt: skip
    assert list(stages) == ["Shuffle", "Batch", "Range", "Map", "FlatMap"]


def test_names_that_occur_twice_are_numbered_and_functions_of_the_user_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = {
        1: node("Root", 0, 0, 2),
        2: node("ParallelMapV2", 2_000_000, 1, 3),
        3: node("ParallelMapV2", 1_000_000, 1, 4),
        4: node("TensorSlice", 1_000_000, 2),
    }
    ((stages, _),) = read_models(monkeypatch, model, Map=["f (a.py:1)", "g (a.py:2)"])
    assert stages == pytest.approx({"TensorSlice": 0.5, "Map 1 of f (a.py:1)": 1.0, "Map 2 of g (a.py:2)": 2.0})
    ((stages, _),) = read_models(monkeypatch, model, Map=["f (a.py:1)"])
    assert list(stages) == ["TensorSlice", "Map 1", "Map 2"]


def test_a_declared_stage_that_splits_makes_each_of_its_elements_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = (Stage(SOURCE, ""), Stage("load", "Map"), Stage("batch", "Batch"), Stage("split", "FlatMap", splits=2))
    model = {
        1: node("Root", 0, 0, 2),
        2: node("FlatMap", 4_000_000, 8, 3, kind=1),
        3: node("Batch", 4_000_000, 4, 4, ratio=16.0),
        4: node("Map", 64_000_000, 64, 5),
        5: node("TensorSliceImpl", 640, 64, 6),
        6: node("Range", 64_000_000, 64),
    }
    ((stages, _),) = read_models(monkeypatch, model, declared=declared, replicas=2)
    assert stages == pytest.approx({SOURCE: 16.0, "load": 16.0 + 0.00016, "batch": 1.0, "split": 1.0}, rel=1e-9)


def test_without_a_model_nothing_is_said_and_it_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = FakeMeter(there=False)
    assert said_at(meter, monkeypatch, 5) == []
    assert meter.looks == 1


def test_a_training_says_its_stages_while_it_runs(build: Build) -> None:
    """Over replicas, whose iterator is not that of the pipeline."""
    settings = (
        "model=mlp",
        "width=0.05",
        "optimizer=sgd",
        "strategy.kind=mirrored",
        "steps_per_epoch=100000",
        "epochs=1",
    )
    training = build(*DATA, *settings, "measure_seconds=1.5")
    pipe = training.pipeline
    training.loop.built.pipeline = dataclasses.replace(pipe, source=slow_load(pipe.source))
    told = training.train().events("input_stages")
    assert told
    (stage,) = (stage for stage in told[-1]["stages"] if stage["name"] == "load")
    assert stage["ms_per_batch"] >= pipe.global_batch_size * 1000 * SLEEP
    assert told[-1]["buffer_fill"] is not None


def test_a_training_that_is_over_within_a_second_says_its_stages_at_its_end(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_files, "FIRST_SECONDS", 3600.0)  # within that, however long it takes here
    training = build(*DATA, "model=mlp", "width=0.05", "optimizer=sgd", "steps_per_epoch=20", "epochs=1").train()
    (told,) = training.events("input_stages")
    assert "load" in [stage["name"] for stage in told["stages"]]


def test_the_clock_of_the_graph_counts_nothing_where_it_may_not() -> None:
    clock = GraphClock(deterministic=True)
    iterator = iter(tf.data.Dataset.range(3))
    assert clock.first(iterator)[1:] == ((), ())
    clock.end((), ())
    assert clock.take() == (0.0, 0.0)
