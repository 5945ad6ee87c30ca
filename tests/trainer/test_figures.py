"""Figures of a run: its report, its memory and profile, and numbers that are not finite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.doors.engine import EventWriter, PhaseName, ProfileError, Run, RunClock, results, steady, xprof_process
from tests.doors.engine import reports_read as read
from tests.doors.trainer import Moment, Plan, RunReport, Spent
from tests.support.front_door import happened
from tests.support.training import Build


def test_busy_and_power_are_means_over_the_gpus_and_the_moments_that_train(tmp_path: Path) -> None:
    run = Run(tmp_path)
    phases: tuple[tuple[PhaseName, float], ...] = (
        ("training", 90.0), ("evaluating", 110.0), ("compiling", 112.0), ("saving", 115.0), ("training", 120.0),
        ("saving", 130.0),
    )  # fmt: skip
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    for phase, t in phases:
        report.writer.clock = RunClock(t, steady())
        report.phase(phase)
    report.gpus, report.training_since = {"GPU-a", "GPU-b"}, 100.0
    readings = (
        (99.0, "GPU-a", 0.1, 70.0),  # before the first step
        (101.0, "GPU-a", 0.8, 300.0), (102.0, "GPU-b", 0.6, None), (103.0, "GPU-b", None, 500.0),
        (104.0, "GPU-c", 1.0, 900.0),  # somebody else's
        (111.0, "GPU-a", 0.0, 60.0), (116.0, "GPU-a", 0.0, 60.0), (131.0, "GPU-a", 0.0, 60.0),  # not while it trains
        (121.0, "GPU-a", 0.7, 400.0),
    )  # fmt: skip
    lines = [
        json.dumps({"t": t, "type": "gpu", "gpus": [{"uuid": uuid, "busy": busy, "power_w": power}]})
        for t, uuid, busy, power in readings
    ]
    run.file("telemetry.jsonl").write_text("\n".join(lines) + "\n")
    report.finish("ok", 0)
    result = run.result or {}
    assert result["gpu_busy_mean"] == pytest.approx(0.7)
    assert result["gpu_power_mean_w"] == pytest.approx(400)


def test_a_warning_is_written_once_for_each_remedy(tmp_path: Path) -> None:
    run = Run(tmp_path)
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    for message, hint in (("two zips", "save it"), ("a table", "use a variable"), ("three zips", "save it")):
        report.warn("data_state", message, hint)
    assert [event["message"] for event in happened(run, "warning")] == ["two zips", "a table"]


def test_the_time_left_includes_what_is_done_between_steps(tmp_path: Path) -> None:
    run = Run(tmp_path)
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    report.speed.plan = Plan(3, 30, 8)
    report.speed.begin_measuring(Spent(0.0), step=5)  # after a warm-up
    report.writer.clock = RunClock(100.0, steady())
    for now, steps in ((0.0, 1), (1.0, 9)):
        report.speed.clock.mark(now, steps)
    report.first_step_done(1.0)
    report.speed.clock.pause(5.5)
    report.first_seconds.evaluation = 4.0  # of which it was compiled
    report.writer.clock = RunClock(112.5, steady())  # 12.5 s after the first step: 4.5 s of steps, 8 s of an evaluation
    report.pulse(Moment(epoch=2, step=15, spent=Spent(5.0), metrics={}))
    report.writer.close()
    told = json.loads(run.file("events.jsonl").read_text().splitlines()[-1])
    assert told["eta_seconds"] == pytest.approx(15 * (5.0 + 4.0) / 10, rel=0.01)


def test_a_result_that_no_disk_takes_is_handed_to_the_engine_or_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handed: list[Any] = []
    seconds: list[float] = []

    def refuse(run: Run, summary: Any, patience: float) -> OSError:
        seconds.append(patience)
        return OSError("full")

    waits: list[float] = []
    drain = EventWriter.drain

    def noted(writer: EventWriter, patience: float) -> int:
        waits.append(patience)
        return drain(writer, patience)

    monkeypatch.setattr(EventWriter, "drain", noted)
    monkeypatch.setattr(results, "write", refuse)
    monkeypatch.setattr(results, "hand_over", lambda left, pipe: handed.append((left.result["outcome"], pipe)))
    for pipe in (7, None):
        run = Run(tmp_path / str(pipe))
        run.path.mkdir()
        report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
        report.engine_pipe = pipe
        report.finish("stopped", 0)
        report.writer.close()
    assert handed == [("stopped", 7)]
    assert seconds == [results.TRAINER_SECONDS] * 2
    assert waits == [0.0] * 2, "it has waited for the disk"
    assert capsys.readouterr().err == "gputui: the result could not be written: full\n"


def test_a_training_that_fails_between_two_pulses_has_done_all_steps_that_were_measured(tmp_path: Path) -> None:
    run = Run(tmp_path)
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    speed, before = report.speed, 1000  # steps before it was resumed
    for number in range(1, 119):
        speed.clock.mark(float(number), 1)
        if number in (50, 116):
            report.pulse(Moment(epoch=1, step=before + number, spent=Spent(float(number)), metrics={}))
    speed.clock.mark(119.0, 1)  # the step that fails
    codes: list[int] = []
    report.when_finished, report.ended_by = codes.append, "early_stop"
    error = {"kind": "crash", "message": "it fails", "hint": "look"}
    for _ in range(2):
        report.finish("crashed", 1, error)
    assert codes == [1], "once, and then the process ends within a time limit"
    result = run.result or {}
    assert result["measured_steps"] == 117, "the first step, which compiles, is not measured"
    assert (result["steps"], result["epochs"]) == (before + 118, 0), "the first epoch is not at its end"
    assert (result["error"], result["ended_by"]) == (error, None), "what failed has not ended early"
    last = [json.loads(line) for line in run.file("events.jsonl").read_text().splitlines()][-3:]
    assert [each["type"] for each in last] == ["error", "phase", "finished"]
    assert {key: last[0][key] for key in error} == error
    assert last[2]["outcome"] == "crashed"


# ---- a profile ---------------------------------------------------------------------------------


@pytest.fixture
def report(tmp_path: Path) -> RunReport:
    run = Run(tmp_path)
    return RunReport(run, EventWriter(run.file("events.jsonl"), run.id))


needs_xprof = pytest.mark.needs("xprof")
TINY = (
    "model=mlp",
    "width=0.05",
    "optimizer=sgd",
    "batch_size=32",
    "validation_split=0",
    "epochs=1",
    "steps_per_epoch=30",
)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What TensorFlow's profiler is told: start, stop, the number of a step at its begin and negative at its end."""

    found: list[Any] = []

    class Marker:
        def __init__(self, name: str, step_num: int, _r: int) -> None:
            assert (name, _r) == (xprof_process.STEP, 1)
            self.number = step_num

        def __enter__(self) -> None:
            found.append(self.number)

        def __exit__(self, *exception: object) -> None:
            found.append(-self.number)

    monkeypatch.setattr(tf.profiler.experimental, "Trace", Marker)
    monkeypatch.setattr(tf.profiler.experimental, "start", lambda folder: found.append("start"))
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: found.append("stop"))
    return found


@pytest.mark.parametrize(
    ("steps", "together", "held"),
    [("1-3", 1, [1, 2, 3]), ("12-14", 5, [11]), ("14-17", 5, [11, 16]), ("29-99", 1, [29, 30]), ("31-40", 1, [])],
)
def test_the_markers_of_the_steps_asked_for(
    steps: str, together: int, held: list[int], build: Build, told: list[Any]
) -> None:
    build(*TINY, f"profile={steps}", f"steps_per_execution={together}").train()
    between = [number for first in held for number in (first, -first)]
    assert told == (["start", *between, "stop"] if held else [])


@pytest.mark.usefixtures("cpus")
def test_layers_are_recorded_by_the_scopes_of_their_operations() -> None:
    """Each product of the graph is multiplied by a variable, which says whose product it is."""
    import keras
    from keras import layers

    from tests.doors.trainer import LayerScopes

    keras.backend.clear_session()
    inputs = keras.Input((4,))
    shared = layers.Dense(4)
    x = layers.Dense(4)(shared(shared(layers.Dense(4)(inputs))))
    model = keras.Model(inputs, keras.Sequential([layers.Dense(4), layers.Dropout(0.1), layers.Dense(1)])(x))
    own = {layer: vars(layer).get("call") for layer in model._flatten_layers()}
    scopes = LayerScopes(model)
    spec = tf.TensorSpec((1, 4))
    graph = (
        tf.function(lambda x: model(model(x, training=True) * tf.ones(4), training=True))
        .get_concrete_function(spec)
        .graph
    )
    scopes.close()
    assert {layer: vars(layer).get("call") for layer in model._flatten_layers()} == own

    variables = {id(variable.value.handle): variable.path for variable in model.variables}
    owners = {inner.name: variables.get(id(outer)) for outer, inner in graph.captures}
    products = [op for op in graph.get_operations() if op.type == "MatMul"]
    recorded = []
    for product in products:
        kernel = product.inputs[1].op
        while kernel.inputs and kernel.type != "Placeholder":
            kernel = kernel.inputs[0].op
        owner = str(owners[kernel.outputs[0].name]).removesuffix("/kernel")
        recorded.append((scopes.names[product.name.rpartition("/")[0]], owner))
    assert len(recorded) == 12
    assert all(name == owner for name, owner in recorded), recorded
    assert len({name for name, _ in recorded}) == 5
    assert model.name in scopes.names.values()
    assert "" not in scopes.names.values()


@needs_xprof
def test_several_steps_in_one_execution_are_not_told_apart(build: Build) -> None:
    run = build(*TINY, "steps_per_execution=5", "profile=11-30").train().run
    run.file("preset.yaml").write_text("compile: {steps_per_execution: 5}\nrun: {profile: 11-30}\n")
    with pytest.raises(ProfileError, match="cannot distinguish steps if 5 of them run in one execution") as told:
        read(run)
    assert "compile.steps_per_execution=1" in str(told.value)
    (file,) = run.file("profile").rglob("*.xplane.pb")
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ProfileError, match=r"XProf cannot read .*\n.*XSpace"):
        read(run)
