"""A training from its options to its result, with a stand-in for what is built: what is called, told and left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from gputui.engine.options import Options, options_json
from gputui.engine.process import ending
from gputui.engine.runs import Run, events, titles
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.telemetry import chips, resource_limits
from gputui.engine.trainer import assembly, session
from gputui.engine.trainer.cluster import failed_worker, tensorflow_cluster
from gputui.engine.trainer.common.stopping import StopRequested, StopSwitch
from gputui.engine.trainer.common.training_errors import DataError, TrainerError
from gputui.engine.trainer.fit import built_training
from gputui.engine.trainer.measure import flops
from gputui.engine.trainer.measure.run_report import RunReport
from gputui.engine.trainer.setup import actual_settings, environment
from gputui.engine.trainer.setup.devices import Devices
from gputui.engine.trainer.setup.environment import Prepared
from gputui.engine.trainer.setup.gpu_identity import TrainingGpu
from gputui.engine.trainer.setup.xla_cache import XlaCache

from tests.support.training import Build, options

SEVERAL = ("strategy.kind=multi_worker",)
LOST = tf.errors.UnavailableError(None, None, "Collective ops is aborted by: failed to connect")


class Stand:
    """A training of which only the parts are there that the session looks at; `calls` are in their order."""

    def __init__(self, folder: Path, *settings: str, index: int | None = None) -> None:
        self.calls: list[Any] = []
        self.options = options(*settings)
        run = Run(folder)
        self.report, self.stop = RunReport(run, EventWriter(run.file("events.jsonl"), run.id)), StopSwitch()
        run.file(options_json.FILE).write_text(options_json.to_json(self.options))
        self.stop.at_once = False
        self.fault: BaseException | None = None
        self.latest: int | None = None
        self.damaged = ""
        self.cache: Any = SimpleNamespace(
            guarded=self.guarded,
            first_step_done=lambda: self.calls.append("first step"),
            leave=lambda: self.calls.append("cache left"),
        )
        cluster = SimpleNamespace(is_chief=index == 0)
        exchange = SimpleNamespace(leave=lambda: self.calls.append("waited for the others"))
        self.joined = None if index is None else SimpleNamespace(cluster=cluster, exchange=exchange)
        checkpoints = SimpleNamespace(latest_step=self.latest_step, damaged=lambda step: self.damaged)
        pipeline = SimpleNamespace(find_fault=self.find_fault, replicas=1, global_batch_size=8)
        built = SimpleNamespace(
            checkpoints=checkpoints, own=None, joined=self.joined, pipeline=pipeline, options=self.options
        )
        self.loop = SimpleNamespace(
            built=built, steps=20, step=17, steps_per_epoch=10, run=self.run, leave=lambda: self.calls.append("left")
        )

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        self.calls.append("guarded")
        yield

    def latest_step(self, end: int) -> int | None:
        assert end == 20
        return self.latest

    def find_fault(self) -> None:
        self.calls.append("data searched")

    def run(self, resume_at: int | None) -> None:
        self.calls.append(("run", resume_at))
        if self.fault is not None:
            raise self.fault

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [asdict(event) for event in read_events(self.report.run.path).events if event.type == kind]

    def train(self) -> tuple[int, Any]:
        """The exit status, and the outcome with the error."""
        code = session.train_run(self.report, self.stop)
        result = self.report.run.result or {}
        return code, (result["outcome"], result["error"])


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Stand] = []

    def make(*settings: str, **more: Any) -> Stand:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Stand(folder, *settings, **more))
        monkeypatch.setattr(assembly, "assemble", lambda *_: SimpleNamespace(loop=made[-1].loop))
        monkeypatch.setattr(environment, "prepare", lambda _: Prepared(cache=made[-1].cache))
        monkeypatch.setattr(session, "_announce", lambda *what: made[-1].calls.append(("announced", what[2])))
        monkeypatch.setattr(built_training, "save_model", lambda built, step: made[-1].calls.append(("saved", step)))
        return made[-1]

    for name in ("write_into_run_folder", "exclude_ours"):
        monkeypatch.setattr(actual_settings, name, lambda: None)
    yield make
    for each in made:
        each.report.writer.close()


def test_a_training_begins_at_its_newest_checkpoint_and_saves_its_model_if_it_is_asked_to(stand: Any) -> None:
    done = stand("save_model=false")
    assert done.train() == (0, ("ok", None))
    done.report.when_first_step_is_done()
    assert done.calls == [("announced", None), "guarded", ("run", None), "first step"]
    again = stand("save_model=true")
    again.latest, again.damaged = 10, "checkpoint of step 20 is damaged"
    earlier: dict[str, Any] = {"replicas": 2, "global_batch_size": 16, "steps_per_epoch": 5}
    for given in ({"replicas": 7, "global_batch_size": 1, "steps_per_epoch": 1}, earlier):
        again.report.writer.emit(
            events.Started(pid=1, versions={}, devices=[], options={}, actual={}, epochs=2, steps=20,
                           train_samples=1, validation_samples=1, **given)
        )  # fmt: skip
    assert again.train() == (0, ("ok", None))
    assert again.calls == [("announced", 10), "guarded", ("run", 10), ("saved", 17)]
    warned = [(event["kind"], event["message"]) for event in again.told("warning")]
    assert warned == [
        (
            "other_replicas",
            "the run goes on with 1 replica, and had 2: a step has 8 samples instead of 16, and an epoch 10 steps "
            "instead of 5",
        ),
        ("checkpoint_damaged", "checkpoint of step 20 is damaged"),
    ]
    begins = stand("save_model=false")
    begins.latest, begins.damaged = 0, "checkpoint of step 10 is damaged"
    begins.train()
    assert begins.calls == [("announced", 0), "guarded", ("run", 0)]
    assert [event["kind"] for event in begins.told("warning")] == ["checkpoint_damaged"]
    phases = [(event["phase"], event["detail"]) for event in again.told("phase")]
    assert phases == [("configuring", ""), ("saving", "model.keras"), ("ended", "")]


@pytest.mark.parametrize(("index", "saves"), [(0, [("saved", 17)]), (1, [])])
def test_of_several_workers_the_first_saves_the_model_and_all_end_together(
    index: int, saves: list[Any], stand: Any
) -> None:
    several = stand("save_model=true", index=index)
    assert several.train() == (0, ("ok", None))
    assert several.calls[2:] == [("run", None), *saves, "waited for the others"]


@pytest.mark.parametrize("index", [None, 1])
def test_a_request_to_stop_leaves_the_training_with_a_checkpoint_and_the_cache_is_not_blamed(
    index: int | None, stand: Any
) -> None:
    stopped = stand("save_model=true", index=index)
    stopped.fault = StopRequested("stopped")
    assert stopped.train() == (0, ("stopped", None))
    assert stopped.calls[2:] == [("run", None), "left", *(["waited for the others"] if index is not None else [])]
    before = stand()
    before.stop.leave_result = print

    def request_stop(*_: Any) -> Any:
        before.stop.leave_result("timeout")
        raise SystemExit(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "assemble", request_stop)
        before.train()
    assert before.calls == ["cache left"], "the process is ended from another thread"
    assert (before.report.run.result or {})["outcome"] == "timeout"


def test_a_fault_of_the_data_is_searched_for_only_after_an_error_of_an_operation(stand: Any) -> None:
    for fault, searches in (
        (tf.errors.InvalidArgumentError(None, None, "bad"), True),
        (tf.errors.InternalError(None, None, "bad"), False),
        (ValueError("bad"), False),
    ):
        failed = stand()
        failed.fault = fault
        assert failed.train()[0] == 1
        assert ("data searched" in failed.calls) is searches
    found = stand()
    found.fault = tf.errors.InvalidArgumentError(None, None, "bad")

    def find() -> None:
        raise DataError("a.png cannot be read", "repair it")

    found.loop.built.pipeline.find_fault = find
    error = {"kind": "data", "message": "a.png cannot be read", "hint": "repair it"}
    assert found.train() == (1, ("error", error))


class Exited(BaseException):
    """The process has ended with this status."""


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("reason", ["", "stopped"])
def test_a_worker_whose_exchange_fails_names_the_one_that_is_gone_and_ends_by_force(
    wrapped: bool, reason: str, stand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless all were asked to stop, and another one was faster."""
    lost = TrainerError("user_code", "train.py:3: it failed")
    lost.__cause__ = LOST
    several, lingered = stand(*SEVERAL, index=1), list[Any]()
    several.fault = lost if wrapped else LOST

    def exit_(code: int) -> None:
        lingered.append(code)
        raise Exited

    def blamed(fault: BaseException, cluster: Any) -> TrainerError:
        assert (fault, cluster) == (LOST, "the cluster")
        return TrainerError("peer_lost", "worker 0 has ended", "start again")

    several.stop.exit, several.stop.reason = exit_, reason
    monkeypatch.setattr(tensorflow_cluster, "read", lambda: "the cluster")
    monkeypatch.setattr(failed_worker, "blamed", blamed)
    monkeypatch.setattr(failed_worker, "linger", lambda since: lingered.append("lingered"))
    with pytest.raises(Exited):
        several.train()
    result = several.report.run.result
    if reason:
        assert (result["outcome"], result["error"], lingered) == ("stopped", None, [0])
    else:
        error = {"kind": "peer_lost", "message": "worker 0 has ended", "hint": "start again"}
        assert (result["outcome"], result["error"], lingered) == ("error", error, ["lingered", 1])


def test_a_worker_that_fails_by_itself_reports_its_own_fault_and_waits_for_the_others(
    stand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    several, ended = stand(*SEVERAL, index=1), list[Any]()
    several.fault = ValueError("theirs")
    several.stop.exit = ended.append
    monkeypatch.setattr(failed_worker, "linger", lambda since: ended.append("lingered"))
    assert several.train()[1][1]["message"] == "ValueError: theirs"
    assert ended == ["lingered", 1]
    alone = stand()
    alone.fault, alone.stop.exit = LOST, ended.append
    alone.train()
    assert len(ended) == 2, "one machine alone does not wait"


@pytest.mark.parametrize(
    ("settings", "own"), [(("batch_size=64", "on_oom=halve"), False), (("entry=/x/train.py:build",), True)]
)
def test_the_cause_of_a_failure_is_looked_for_with_what_is_known_of_the_training(
    settings: tuple[str, ...], own: bool, stand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def named_by(text: str, evidence: ending.Evidence, how: str) -> ending.Ending:
        seen.append((text, evidence, how))
        return ending.Ending("oom", "memory", "no memory", "less")

    monkeypatch.setattr(ending, "named_by", named_by)
    failed = stand(*settings)
    failed.report.device_batches = 2
    failed.report.run.file("engine.log").write_text("".join(f"line {n}\n" for n in range(2 * ending.LOG_LINES)))
    failed.fault = ValueError("many\nlines")
    error = {"kind": "memory", "message": "no memory", "hint": "less"}
    assert failed.train() == (1, ("oom", error))
    ((text, evidence, how),) = seen
    assert (text, how) == ("ValueError: many\nlines", "many")
    assert (evidence.returncode, evidence.phase, evidence.device_batches) == (1, "configuring", 2)
    given: Options = failed.options
    known = (evidence.batch_size, evidence.on_oom, evidence.own)
    assert known == (given.input.batch_size, given.run.on_oom, own)
    assert len(evidence.log_tail) == ending.LOG_LINES
    assert evidence.log_tail[-1] == f"line {2 * ending.LOG_LINES - 1}"


# ---- the event that says what was built --------------------------------------------------------


def test_the_whole_event_of_a_training_and_what_it_warns_of(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    training = build("model=transformer", "width=0.1", "cast=device", "batch_size=32", "prefetch=off", "epochs=3",
                     "prefetch_to_device=2")  # fmt: skip
    left_out: list[Any] = []
    monkeypatch.setattr(titles, "leave_out", lambda run, why: left_out.append(why))
    monkeypatch.setattr(resource_limits, "usable_cpus", lambda: 5)
    monkeypatch.setattr(chips, "cpu_multiplies_bfloat16", lambda: False)
    loop, report = training.loop, training.loop.built.report
    object.__setattr__(loop.built, "devices", replace(loop.built.devices, uncertain="the addresses are not known"))
    prepared = Prepared({"NCCL_DEBUG": "INFO"}, (("compile.xla", "A does nothing"),), "on CPUs 0-1",
                        XlaCache(Path("/cache")))  # fmt: skip
    session._announce(assembly.Training(loop, {"python": "3"}, 42), report, 7, prepared)
    (event,) = training.events("started")
    why = "the transformer's tokens are created on the host"
    actual = event.pop("actual")
    assert {name: value for name, value in event.items() if name not in ("t", "run", "options", "type")} == {
        "pid": 42, "versions": {"python": "3"}, "devices": ["/device:CPU:0", "/device:CPU:1"], "gpus": [],
        "gpu_devices": [], "replicas": 1, "global_batch_size": 32, "steps_per_epoch": 51, "epochs": 3, "steps": 153,
        "train_samples": 1617, "validation_samples": 180, "resumed_at_step": 7, "flops_per_step": None,
        "peak_flops_per_second": None, "cpus": 5, "cpu_bfloat16": False, "compute_capability": None,
        "not_applied": [{"option": "input.cast", "why": why}], "inapplicable": {"input.cast": why}, "sample_bytes": 256,
        "worker": None, "workers": [],
    }  # fmt: skip
    assert event["options"]["workload"]["model"] == "transformer"
    assert actual == {
        "variables_on": {":CPU:0": 42}, "weights_on_cpu": 38, "devices": ["/device:CPU:0", "/device:CPU:1"],
        "jit_compile": False, "steps_per_execution": 1, "compute_dtypes": {"float32": 18}, "output_dtype": "float32",
        "optimizer": "Adam", "learning_rate": 0.001, "strategy": "none", "replicas": 1, "inject_prefetch": False,
        "device_batches": 0, "deterministic_order": True, "private_threads": None, "inter_op_threads": 0,
        "intra_op_threads": 0, "tf32": True, "memory_growth": None, "parameters": 4410, "xla_reason": "no GPU trains",
        "environment": {"NCCL_DEBUG": "INFO"}, "numa": "on CPUs 0-1", "xla_cache": "/cache",
    }  # fmt: skip
    assert left_out == [{"input.cast": why}]
    assert (report.device_batches, report.speed.samples_per_second_at_peak) == (0, None)
    warned = [(each["kind"], each["message"], each["hint"], each["option"]) for each in training.events("warning")]
    assert [kind for kind, *_ in warned] == ["not_applied", "environment", "gpus_uncertain"]
    assert warned[0][1] == f"input.cast does nothing here: {why}"
    assert warned[1][1:] == ("A does nothing", "unset the variable, or set compile.xla", "compile.xla")
    assert warned[2][1:] == ("the addresses are not known", "GPU readings of this run may be of another GPU", "")


def test_the_event_of_a_worker_names_all_workers_and_its_gpus(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    training = build("model=mlp", "width=0.05", "prefetch=off", "prefetch_to_device=3", "batch_size=16")
    built = training.loop.built
    gpus = tuple(
        TrainingGpu(f"/device:GPU:{n}", None, uuid, n, "NVIDIA H100 80GB HBM3", (major, 0), 1, 2)
        for n, (uuid, major) in enumerate((("GPU-a", 9), (None, 8)))
    )
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["a", "b"])
    monkeypatch.setattr(tf.config.experimental, "get_memory_growth", lambda each: each == "a")
    described: list[Any] = []

    def describe(replicas: int, here: list[str]) -> list[dict[str, Any]]:
        described.append((replicas, here))
        return [{"index": 0}]

    joined: Any = SimpleNamespace(described=describe, cluster=SimpleNamespace(index=3))
    object.__setattr__(built, "devices", replace(built.devices, kind="GPU", gpus=gpus))
    object.__setattr__(built, "joined", joined)
    object.__setattr__(built, "pipeline", replace(training.pipeline, replicas=2))
    session._announce(assembly.Training(training.loop, {}, 1), built.report, None)
    (event,) = training.events("started")
    assert (event["worker"], event["workers"], described) == (3, [{"index": 0}], [(2, ["GPU-a"])])
    assert (event["gpus"], event["compute_capability"]) == (["GPU-a", "/device:GPU:1"], [8, 0])
    assert [gpu["uuid"] for gpu in event["gpu_devices"]] == ["GPU-a", None]
    assert (event["actual"]["memory_growth"], event["actual"]["device_batches"]) == (False, 3)
    assert built.report.device_batches == 3
    per_step, peak = event["flops_per_step"], event["peak_flops_per_second"]
    assert (per_step, peak) == (flops.per_step(built.model, 32), 2 * 494.5e12)
    assert built.report.speed.samples_per_second_at_peak == pytest.approx(32 * peak / per_step)


def test_what_differs_from_the_options_is_warned_of_with_its_option(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = build("model=mlp", "width=0.05")
    found: list[Any] = []

    def differences(given: Options, actual: dict[str, Any], devices: Devices) -> list[Any]:
        found.append((given.workload.model, actual["optimizer"], devices.kind))
        return [("compile.xla", "it is off"), ("input.prefetch", "there is one")]

    monkeypatch.setattr(actual_settings, "differences", differences)
    training.announce()
    assert found == [("mlp", "Adam", "CPU")]
    warned = [(each["kind"], each["message"], each["option"]) for each in training.events("warning")]
    assert warned == [
        ("not_as_asked", "compile.xla is not as asked: it is off", "compile.xla"),
        ("not_as_asked", "input.prefetch is not as asked: there is one", "input.prefetch"),
    ]
