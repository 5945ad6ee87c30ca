"""What the loop of a built training decides, without a step: when it stops or pauses, what it saves and measures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gputui.engine.runs import Run, part_of_sweep
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.trainer import assembly
from gputui.engine.trainer.checkpoint.checkpoints import Checkpoints, ClusterCheckpoints, NotWritten
from gputui.engine.trainer.cluster import tensorflow_cluster
from gputui.engine.trainer.cluster.exchange import Wishes
from gputui.engine.trainer.common.stopping import StopRequested, StopSwitch
from gputui.engine.trainer.fit import micro_batches, train_function
from gputui.engine.trainer.measure.run_report import RunReport
from gputui.engine.trainer.setup import devices as device_setup
from gputui.engine.trainer.setup.devices import Devices

from tests.support.training import Build, Training, options

TINY = ("model=mlp", "width=0.05", "optimizer=sgd", "batch_size=8", "epochs=4", "steps_per_epoch=3", "run.keep=5")


class Begun(Exception):
    """Ends a training before its first step. It has the number of steps that are left out of the figures."""


def begun(training: Training, resume_at: int | None = None) -> int:
    """Begin the training, which ends at once. Returns the steps that are left out."""
    loop: Any = training.loop

    def begin(warmup: int, *_: Any) -> Any:
        raise Begun(warmup)

    real, loop.built.report.speed.begin = loop.built.report.speed.begin, begin
    try:
        with pytest.raises(Begun) as raised:
            loop.run(resume_at)
    finally:
        loop.built.report.speed.begin = real
    return int(raised.value.args[0])


@pytest.mark.parametrize(
    ("settings", "resume_at", "left_out"),
    [
        (("steps_per_epoch=10",), None, 8),
        (("steps_per_epoch=100",), None, 20),
        (("steps_per_epoch=10",), 35, 1),
        (("steps_per_epoch=10",), 20, 4),
        (("steps_per_epoch=10", "cache=memory"), None, 8),
        (("steps_per_epoch=10", "measure_seconds=5"), None, 8),
        (("steps_per_epoch=10", "measure_seconds=5", "cache=memory"), None, 203),
        (("steps_per_epoch=10", "measure_seconds=5", "cache=memory", "one_batch=true"), None, 8),
    ],
)
def test_the_first_steps_are_left_out_and_with_a_cache_all_that_fill_it(
    settings: tuple[str, ...], resume_at: int | None, left_out: int, build: Build
) -> None:
    assert begun(build(*TINY, *settings), resume_at) == left_out


# ---- stops and pauses --------------------------------------------------------------------------


def trial(training: Training, pause_after: int | None) -> None:
    content = part_of_sweep.content("a sweep", pause_after, {}, 1)
    training.run.file(part_of_sweep.FILE).write_text(content)


@pytest.fixture
def stopping(build: Build, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whether an evaluation is stopped, of the run itself or of a callback, after so many steps."""
    monkeypatch.setattr(train_function, "testing", lambda *_: Ran())
    monkeypatch.setattr(train_function, "testing_one", lambda *_: lambda batch: {})

    def stops(step: int, of_run: bool, *settings: str, pause_after: int | None = None, in_sweep: bool = False) -> bool:
        training = build(*TINY, *settings)
        if in_sweep:
            trial(training, pause_after)
        begun(training)
        loop = training.loop
        loop.step, loop.built.stop.at_once = step, False
        if of_run:
            loop.evaluation_begins()
        loop.built.stop.request("stopped")
        try:
            loop.built.model.test_function(iter([1]))
        except StopRequested:
            return True
        return False

    return stops


class Ran:
    """A test function that does nothing."""

    def __call__(self, iterator: Any, count: Any) -> tuple[dict[str, Any], int]:
        return {}, 0

    def get_concrete_function(self, *_: Any) -> Any: ...


def test_an_evaluation_stops_at_once_unless_a_resumed_run_could_not_repeat_it(stopping: Any) -> None:
    saves = ("checkpoint=epoch",)
    assert stopping(3, True)
    assert stopping(3, False)
    assert stopping(3, True, *saves)
    assert not stopping(3, False, *saves), "callbacks have done a part of their changes"
    assert not stopping(3, False, "checkpoint=2")


def test_the_evaluation_by_which_trials_are_compared_is_not_stopped(stopping: Any) -> None:
    saves = ("checkpoint=epoch",)
    assert not stopping(6, True, *saves, in_sweep=True, pause_after=2)
    assert stopping(3, True, *saves, in_sweep=True, pause_after=2)
    assert not stopping(12, True, *saves, in_sweep=True)
    assert not stopping(12, True, *saves, in_sweep=True, pause_after=2)
    assert stopping(6, True, in_sweep=True, pause_after=2), "without checkpoints it cannot go on"


def test_a_trial_pauses_at_the_end_of_its_epoch_and_not_if_it_ends_there(build: Build) -> None:
    for pause_after, epoch, stopped, pauses in (
        (2, 1, False, False), (2, 2, False, True), (2, 3, False, True), (4, 4, False, False), (2, 2, True, False),
        (None, 3, False, False),
    ):  # fmt: skip
        training = build(*TINY)
        trial(training, pause_after)
        begun(training)
        loop = training.loop
        loop.step, loop.built.model.stop_training = 3 * epoch, stopped
        loop.built.stop.at_once = False
        loop.epoch_ends(epoch - 1, {"loss": 1.0})
        assert loop.built.stop.reason == ("stopped" if pauses else ""), (pause_after, epoch, stopped)


def test_no_stop_comes_between_the_callbacks_that_begin_a_step_and_the_step(build: Build) -> None:
    loop = build(*TINY).loop
    loop.built.stop.at_once = False
    loop.leave_if_it_is_time()
    loop.built.stop.request("stopped")
    loop.leave_if_it_is_time()
    other = build(*TINY).loop
    other.built.stop.reason = "stopped"
    with pytest.raises(StopRequested):
        other.leave_if_it_is_time()


class Agreeing:
    """Stands for the agreement of several workers: `answer` is what they wish."""

    asked_by: int | None = None

    def __init__(self, answer: Any = None) -> None:
        self.wishes, self.answer, self.calls = Wishes(), answer or Wishes(), list[str]()

    def before_execution(self) -> Wishes:
        self.calls.append("before")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    now = before_execution

    def soon(self) -> None:
        self.calls.append("soon")


def test_workers_end_together_and_do_what_one_of_them_wishes(build: Build) -> None:
    training = build(*TINY)
    begun(training)
    loop: Any = training.loop
    model = loop.built.model
    agreement: Any = Agreeing()
    loop.agreement = agreement
    checked: list[int] = []
    loop.watch.check_weights = checked.append
    model.stop_training = True  # by figures of this worker alone
    loop.step = 1
    loop.execution_ends()
    assert (model.stop_training, agreement.wishes.end) == (False, True)
    assert loop.end_due()[0], "also in a checkpoint"
    loop.watch.health.wants_check = True
    agreement.answer = Wishes(end=True, check_weights=True)
    loop.leave_if_it_is_time()
    assert (model.stop_training, checked, loop.watch.health.wants_check) == (True, [1], False)
    assert agreement.wishes.check_weights, "this worker asks for it, too"
    loop.epoch_begins()
    loop.evaluation_begins()
    assert agreement.calls == ["before", "soon", "soon"]
    agreement.answer, agreement.wishes = Wishes(), Wishes()
    loop.step = 3
    loop.epoch_ends(0, {"loss": 1.0})
    assert agreement.wishes.end, "a callback has ended the training at the end of the epoch"
    model.stop_training, agreement.wishes = False, Wishes(end=True)
    loop.step = 6
    loop.epoch_ends(1, {"loss": 1.0})
    assert agreement.wishes.end, "a callback has ended it at its last batch, and no worker has heard of that yet"


@pytest.mark.parametrize(
    ("request_", "asked_by", "told"),
    [
        (StopRequested("stopped"), 1, ["worker 1 (b:2) stops, as its own run says, and all stop together"]),
        (StopRequested("stopped"), None, []),
        (StopRequested("engine", "worker 1 (b:2)"), 1, []),
    ],
)
def test_the_worker_that_was_asked_to_stop_is_named(
    request_: StopRequested, asked_by: int | None, told: list[str], build: Build
) -> None:
    training = build(*TINY)
    agreement: Any = Agreeing(request_)
    agreement.asked_by = asked_by
    training.loop.agreement = agreement
    named: Any = SimpleNamespace(cluster=SimpleNamespace(named=lambda index: f"worker {index} (b:2)"))
    object.__setattr__(training.loop.built, "joined", named)
    with pytest.raises(StopRequested):
        training.loop.leave_if_it_is_time()
    assert [(event["kind"], event["message"]) for event in training.events("warning")] == [
        ("peer_stopped", text) for text in told
    ]


def test_a_checkpoint_is_restored_again_on_all_workers_if_one_needs_it(build: Build) -> None:
    training = build(*TINY)
    loop: Any = training.loop
    restored: list[int] = []
    loop.built.checkpoints.restore = restored.append
    loop.step = 5
    for needed in (False, True):
        loop.restore_again(needed)
    assert restored == [5]
    for others, expected in (([0.0, 1.0], [5, 5]), ([0.0, 0.0], [5, 5])):
        exchange: Any = SimpleNamespace(rows=lambda mine, others=others: np.array([others, [mine[0], 0.0]]))
        object.__setattr__(loop.built, "joined", SimpleNamespace(exchange=exchange))
        loop.restore_again(False)
        assert restored == expected


# ---- checkpoints -------------------------------------------------------------------------------


def test_checkpoints_come_within_an_epoch_before_the_next_step_and_at_its_end_after_the_evaluation(
    build: Build,
) -> None:
    training = build(*TINY, "checkpoint=2")
    begun(training)
    loop: Any = training.loop
    saved, checked = list[int](), list[int]()
    loop.built.checkpoints.save = saved.append
    loop.watch.health.check = lambda step, *_: checked.append(step)
    for step in range(1, 7):
        loop.step = step
        loop._saver.execution_ran(step, 1)
        loop.execution_ends()
        if step % 3 == 0:
            assert step not in saved, "the evaluation comes first"
            loop.epoch_ends(step // 3 - 1, {"loss": 1.0})
    assert saved == [2, 4, 6]
    assert set(checked) >= {2, 4, 6}, "no weights that are not finite"


def test_only_a_checkpoint_that_was_written_removes_superseded_models(build: Build) -> None:
    training = build(*TINY, "checkpoint=2")
    loop: Any = training.loop
    done: list[Any] = []
    refuses = [True]

    def save(step: int) -> None:
        if refuses[0]:
            raise NotWritten("no room")
        done.append(step)

    loop.built.checkpoints.save = save
    loop.rules.checkpoint_written = lambda: done.append("others removed")
    loop.step = 5
    loop.save()
    assert done == []
    refuses[0] = False
    loop.save()
    assert done == [5, "others removed"]
    begun(training, resume_at=6)
    loop.save()
    assert len(done) == 2, "the state is not that of the step before it is restored"


def test_a_model_that_is_stopped_in_its_evaluation_has_the_figures_of_its_epoch(build: Build) -> None:
    training = build(*TINY, "checkpoint=off")
    begun(training)
    loop: Any = training.loop
    built = loop.built
    built.checkpoints.save = lambda step: pytest.fail("checkpoints are off")
    loop.step = 6
    figures = {"loss": 2.5, "accuracy": 0.5}
    loop._evaluation.epoch_metrics = figures
    loop.leave(figures)
    (epoch,) = training.events("epoch")
    assert (epoch["epoch"], epoch["step"], epoch["metrics"]) == (2, 6, figures)
    progress = training.events("progress")[-1]
    assert (progress["epoch"], progress["step"], progress["loss"], progress["metrics"]) == (
        2,
        6,
        2.5,
        {"accuracy": 0.5},
    )
    loop.epoch_ends(1, {"loss": 1.0, "val_loss": 3.0, "pair": [1.0, 2.0]})
    epoch = training.events("epoch")[-1]
    assert (epoch["epoch"], epoch["step"]) == (2, 6)
    assert epoch["metrics"] == {"loss": 1.0, "val_loss": 3.0, "pair_0": 1.0, "pair_1": 2.0}
    assert training.events("progress")[-1]["metrics"] == {"pair_0": 1.0, "pair_1": 2.0}
    assert loop._evaluation.epoch_metrics is None


def test_the_loss_of_a_pulse_is_looked_at_between_two_checks(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    training = build(*TINY, "nan_check_steps=1000")
    begun(training)
    loop: Any = training.loop
    monkeypatch.setattr(loop.data, "pipeline_iterator", lambda iterator: iterator)
    monkeypatch.setattr(loop.parts, "wait_for_device", lambda: {"loss": float("nan"), "accuracy": 0.25})
    loop.watch.check_weights(1)
    loop.watch.execution_ran(2, 1e12, iter(()))
    ((kind, message),) = [(event["kind"], event["message"]) for event in training.events("warning")]
    assert (kind, message.split(" with ")[0]) == ("loss_restarted", "the running loss was NaN at step 2")
    (progress,) = training.events("progress")
    assert (progress["step"], progress["loss"], progress["metrics"]) == (2, None, {"accuracy": 0.25})


def test_progress_is_of_the_epoch_of_its_last_step_and_without_figures_of_the_last_look(build: Build) -> None:
    training = build(*TINY)
    begun(training)
    for step, figures in ((3, {"loss": 3.0, "accuracy": 0.5}), (4, {"loss": 4.0}), (12, None)):
        training.loop.watch.training_ends(step, figures)
    told = [(event["epoch"], event["step"], event["loss"], event["metrics"]) for event in training.events("progress")]
    assert told == [(1, 3, 3.0, {"accuracy": 0.5}), (2, 4, 4.0, {}), (4, 12, None, {})]


# ---- how it is assembled -----------------------------------------------------------------------


def test_the_workers_meet_before_the_devices_are_opened_and_signals_are_heard_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    run = Run(tmp_path)
    report, stop = RunReport(run, EventWriter(run.file("events.jsonl"), run.id)), StopSwitch()
    monkeypatch.setattr(stop, "listen_again", lambda: calls.append("signals"))
    gpus: Any = (SimpleNamespace(uuid="GPU-1"), SimpleNamespace(uuid=None))
    found = Devices("GPU", ("a",), gpus=gpus)
    joined = SimpleNamespace(hellos=[1, 2])
    with_seed = options("strategy.kind=multi_worker", "seed=99")

    def meet(given: Any, of: Run, tell: Any, check: Any) -> Any:
        tell("waiting for worker 1")
        check()
        calls.append(("meet", given.train.seed, of.path))
        return with_seed, joined

    def noted(name: str, returned: Any) -> Any:
        def note(*given: Any) -> Any:
            calls.append((name, *given))
            return returned

        return note

    monkeypatch.setattr(tensorflow_cluster, "meet", meet)
    monkeypatch.setattr(device_setup, "configure", noted("devices", found))
    monkeypatch.setattr(assembly, "build", noted("build", "the loop"))
    training: Any = assembly.assemble(options("strategy.kind=multi_worker"), report, stop)
    assert calls == [
        ("meet", 7, tmp_path), ("devices", with_seed, joined), "signals",
        ("build", with_seed, found, report, stop, joined),
    ]  # fmt: skip
    assert training.loop == "the loop"
    assert training.versions.keys() == {"gputui", "python", "tensorflow", "keras"}
    assert report.gpus == {"GPU-1"}
    told = map(json.loads, run.file("events.jsonl").read_text().splitlines())
    details = [event["detail"] for event in told if event["type"] == "phase"]
    assert details == ["waiting for worker 1", "connecting 2 workers"]
    calls.clear()
    alone = options()
    assembly.assemble(alone, report, stop)
    assert calls == [("devices", alone, None), "signals", ("build", alone, found, report, stop, None)]
    stop.reason = "stopped"
    with pytest.raises(StopRequested):
        assembly.assemble(options("strategy.kind=multi_worker"), report, stop)
    report.writer.close()


def test_a_model_is_compiled_as_the_options_say_and_its_state_is_in_its_checkpoints(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("steps_per_execution=2", "schedule=cosine", "learning_rate=0.5", "policy=mixed_float16", "keep=7")
    tests: list[Any] = []
    testing, testing_one = train_function.testing, train_function.testing_one

    def noted(function: Any) -> Any:
        def note(*given: Any) -> Any:
            tests.append(given[1:])
            return function(*given)

        return note

    monkeypatch.setattr(train_function, "testing", noted(testing))
    monkeypatch.setattr(train_function, "testing_one", noted(testing_one))
    built = build(*TINY, *settings, "micro_batches=3", "cast=device").loop.built
    assert tests == [(1 / 16, 3), (3,)], "in parts, too"
    model = built.model
    assert (model.steps_per_execution, model.jit_compile) == (2, False)
    assert [type(metric).__name__ for metric in model._compile_metrics.metrics] == ["SparseCategoricalAccuracy"]
    assert model.loss.from_logits
    assert float(model.optimizer.learning_rate) == 0.5
    assert type(model.optimizer).__name__ == "LossScaleOptimizer"
    schedule = model.optimizer.inner_optimizer._learning_rate
    assert schedule.decay_steps == 12
    groups = [entry.group for entry in built.checkpoints.state._entries()]
    assert (groups.count("model"), groups.count("metrics")) == (len(model.variables), 4)
    assert groups.count("optimizer") >= 4
    assert type(built.checkpoints) is Checkpoints
    phases = [(event["phase"], event["detail"]) for event in _events(built.report.run, "phase")]
    assert phases == [("building", "data"), ("building", "model")]


def test_the_learning_rate_is_that_of_all_replicas(build: Build) -> None:
    scaled = ("strategy.kind=mirrored", "learning_rate_scaling=linear", "learning_rate=0.25", "schedule=step")
    schedule = build(*TINY, *scaled, "decay_steps=2").loop.built.model.optimizer._learning_rate
    assert (schedule.rate, schedule.decay_steps) == (0.5, 2)


def _events(run: Run, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, run.file("events.jsonl").read_text().splitlines())
    return [event for event in lines if event["type"] == kind]


def test_a_worker_has_its_share_of_the_data_other_random_numbers_and_the_checkpoints_of_all(
    tmp_path: Path, cpus: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart: list[Any] = []
    monkeypatch.setattr(tensorflow_cluster, "draw_apart", lambda model, joined: apart.append((model, joined)))
    monkeypatch.setattr(device_setup, "build_strategy", lambda *_: None)
    monkeypatch.setattr(micro_batches, "require_divisible", lambda given, model, replicas: apart.append(replicas))
    cluster = SimpleNamespace(workers=("a:1",), index=0, is_chief=True)
    joined: Any = SimpleNamespace(cluster=cluster, exchange=SimpleNamespace(index=0))
    run = Run(tmp_path)
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    loop = assembly.build(options(*TINY, "strategy.kind=multi_worker"), cpus, report, StopSwitch(), joined)
    report.writer.close()
    share = loop.built.pipeline.share
    assert share is not None
    assert (share.workers, share.index, loop.built.joined) == (1, 0, joined)
    assert apart == [(loop.built.model, joined), 1]
    assert type(loop.built.checkpoints) is ClusterCheckpoints
    assert loop.agreement is not None
    assert loop.exchange_timer is not None
    assert loop.watch.health.together
