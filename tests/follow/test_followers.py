"""What followers and the engine say of them, when they try again, and the bytes that they write: without a process."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.follow import batches, following, process, start, targets, tfevents, to_tensorboard
from gputui.engine.follow.place import Place, State, file_of, read_place
from gputui.engine.follow.points import Point, PointMaker, result_figures
from gputui.engine.follow.start import FollowerState
from gputui.engine.follow.target import AboutRun, about_run
from gputui.engine.follow.targets import TargetKind
from gputui.engine.follow.to_prometheus import Prometheus, exposition
from gputui.engine.follow.to_tensorboard import TensorBoard
from gputui.engine.process import launch
from gputui.engine.process.followers import Followers
from gputui.engine.runs import Run, run_cluster
from gputui.engine.runs.events import Finished, MemoryAnswer, Progress
from gputui.engine.runs.parsing import dated
from gputui.engine.runs.run_cluster import Cluster
from gputui.engine.system import locks

from tests.support.followed import Kept, Written, follow


@pytest.fixture
def written(home: Path) -> Written:
    return Written(home / "runs" / "20260101-000000-small")


# ---- what is said --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "is_alive", "problem", "damage", "words"),
    [
        ("done", True, "", "", "done"),
        ("done", False, "refused", "", "done"),
        ("following", True, "", "it is damaged", "it is damaged"),
        ("given_up", False, "refused", "", "gave up: refused"),
        ("given_up", True, "refused", "", "waits: refused"),  # it was started again
        ("waiting", False, "refused", "", "has ended before the run"),
        ("waiting", True, "refused", "", "waits: refused"),
        ("following", True, "", "", "follows"),
        ("starting", False, "", "", "has ended before the run"),
    ],
)
def test_the_state_of_a_follower_is_one_phrase(
    state: State, is_alive: bool, problem: str, damage: str, words: str
) -> None:
    assert FollowerState("mlflow", is_alive, Place(state=state, problem=problem), damage).words == words


class Engine:
    """The followers of an engine, whose processes and places a test decides."""

    def __init__(self, run: Run, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.started: list[str] = []
        self.returncodes: dict[str, int | None] = {}
        self.states: dict[str, FollowerState] = {}
        monkeypatch.setattr(start, "start", self._start)
        monkeypatch.setattr(start, "state", lambda _folder, target: self.states[target])
        self.followers = Followers(run, names)
        self.told = [event.message for event in self.followers.start()]

    def _start(self, _folder: Path, target: str) -> Any:
        self.started.append(target)
        if target == "broken":
            raise OSError(12, "Cannot allocate memory")
        self.returncodes[target] = None
        return SimpleNamespace(pid=len(self.started), poll=lambda: self.returncodes[target])

    def look(self, target: str, state: State, since: float = 0.0, is_alive: bool = True, damage: str = "") -> list[str]:
        place = Place(state=state, problem="refused" if state == "waiting" else "", since=since)
        self.states[target] = FollowerState(target, is_alive, place, damage)
        return [event.message for event in self.followers.check()]


def test_a_follower_that_waits_for_ten_seconds_is_told_once_until_it_goes_on(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.engine.process.followers.time", SimpleNamespace(time=lambda: 1000.0))
    engine = Engine(written.run, monkeypatch, "mlflow")
    assert (engine.told, engine.followers.pids) == ([], [1])
    assert engine.look("mlflow", "waiting", 990.0) == [], "not worth a warning"
    assert engine.look("mlflow", "waiting", 989.9) == ["mlflow waits: refused"]
    assert engine.look("mlflow", "waiting", 900.0) == []
    assert engine.look("mlflow", "following") == []
    assert engine.look("mlflow", "waiting", 980.0) == ["mlflow waits: refused"]


def test_each_follower_is_told_by_itself(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputui.engine.process.followers.time", SimpleNamespace(time=lambda: 1000.0))
    engine = Engine(written.run, monkeypatch, "mlflow", "wandb")
    engine.states = {name: FollowerState(name, True, Place(state="following")) for name in ("mlflow", "wandb")}
    assert engine.look("mlflow", "waiting") == ["mlflow waits: refused"]
    assert engine.look("wandb", "waiting") == ["wandb waits: refused"]
    assert engine.look("mlflow", "following") == []
    assert engine.look("mlflow", "waiting") == ["mlflow waits: refused"], "once more, and not of the other"
    engine.returncodes["wandb"] = -9
    for again in (", and is started again",) * 3 + ("",):
        assert engine.look("wandb", "following", is_alive=False) == [f"the follower for wandb has ended{again}"]
        engine.returncodes["wandb"] = -9
    engine.returncodes["mlflow"] = -9
    assert engine.look("mlflow", "following", is_alive=False) == [
        "the follower for mlflow has ended, and is started again"
    ]
    assert engine.started == ["mlflow", *["wandb"] * 4, "mlflow"]
    (warning,) = Engine(written.run, monkeypatch, "broken").followers.start()
    assert (warning.kind, warning.option, warning.hint) == (
        "follow", "run.follow", "the training goes on, and its figures wait in the run folder; gputui follow "
        f"{written.run.id} shows how far each follower is",
    )  # fmt: skip


def test_a_follower_that_has_died_is_started_again_three_times(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(written.run, monkeypatch, "mlflow")
    states: tuple[State, ...] = ("following", "waiting", "starting")
    for number, state in enumerate(states):
        engine.returncodes["mlflow"] = -9
        assert engine.look("mlflow", state, is_alive=False) == [
            "the follower for mlflow has ended, and is started again"
        ]
        assert (engine.started, engine.followers.pids) == (["mlflow"] * (number + 2), [number + 2])
    engine.returncodes["mlflow"] = -9
    assert engine.look("mlflow", "following", is_alive=True) == [], "another one has its lock"
    assert engine.look("mlflow", "done", is_alive=False) == [], "it has written all"
    assert engine.look("mlflow", "following", is_alive=False) == ["the follower for mlflow has ended"]
    assert (engine.look("mlflow", "following", is_alive=False), engine.followers.pids) == ([], [])


def test_a_follower_that_cannot_go_on_or_start_is_told_with_its_reason(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(written.run, monkeypatch, "broken", "mlflow")
    assert engine.told == ["the follower for broken cannot be started: Cannot allocate memory"]
    engine.returncodes["mlflow"] = 2
    told = engine.look("mlflow", "starting", is_alive=False, damage="its place is damaged")
    assert told == ["the follower for mlflow has ended: its place is damaged"]
    assert engine.started == ["broken", "mlflow"]


def test_only_the_chief_of_several_machines_has_followers(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    for index, started in ((0, ["mlflow"]), (1, [])):
        monkeypatch.setattr(run_cluster, "of_run", lambda _run, at=index: Cluster(("a:1", "b:1"), at, "Slurm"))
        assert Engine(written.run, monkeypatch, "mlflow").started == started


def test_the_end_of_the_followers_is_waited_for_so_long(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    now, alive = [100.0], [True]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(start, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    states = [FollowerState("mlflow", True, Place()), FollowerState("wandb", False, Place())]
    monkeypatch.setattr(start, "states", lambda _folder: states if alive[0] else states[1:])
    assert start.wait(written.run.path) == states[:1]
    assert now[0] == pytest.approx(120.0, abs=0.11)
    alive[0], then = False, now[0]
    assert (start.wait(written.run.path), now[0]) == ([], then)


def test_a_second_follower_of_a_target_leaves_and_a_missing_library_is_an_error(
    written: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process, "LOCK_ATTEMPTS", 1)
    path = file_of(written.run.path, "prometheus", "lock")
    path.parent.mkdir()
    with locks.take(path):
        assert process.main(written.run.path, "prometheus") == 0
    assert capsys.readouterr().out[20:] == "another follower of this run has this target\n"
    monkeypatch.setitem(targets.TARGETS, "prometheus", TargetKind(Prometheus, "no_such_module", "such>=1"))
    assert process.main(written.run.path, "prometheus") == 2
    assert capsys.readouterr().out[20:].startswith("no_such_module is not installed; pip install 'such>=1' adds it")


# ---- trying again --------------------------------------------------------------------------------


class Refusing(Kept):
    """A target that refuses the calls whose numbers are in `refused`."""

    def __init__(self, refused: range) -> None:
        super().__init__([], counts=True)
        self.calls, self.refused = 0, refused

    def open(self, *arguments: Any) -> int | None:
        self.calls += 1
        if self.calls in self.refused:
            raise OSError("refused")
        return super().open(*arguments)


@pytest.mark.parametrize(("failures", "is_over"), [(16, False), (17, True)])
def test_a_target_is_tried_again_after_1_to_60_seconds_and_given_up_after_ten_minutes(
    written: Written, monkeypatch: pytest.MonkeyPatch, failures: int, is_over: bool
) -> None:
    slept: list[float] = []
    now = [5000.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    written.train([1, 2])
    written.finish("ok", 2)
    lines: list[str] = []
    target = Refusing(range(1, failures))
    state = follow(written.run, target, say=lines.append)
    name = written.run.name
    waits = [1, 2, 4, 8, 16, 32] + [60] * 9
    if is_over:
        assert (state, slept) == ("given_up", waits)
        assert lines == [
            "waits, and tries again: refused", f"gives up; gputui follow {name} --to tensorboard goes on from here"
        ]  # fmt: skip
        return
    assert (state, slept) == ("done", waits)
    assert lines == [
        "waits, and tries again: refused", f"follows {name} to memory, from row 0 on", "goes on",
        "done: 3 rows written to memory",
    ]  # fmt: skip
    lines.clear()
    assert follow(written.run, target, say=lines.append) == "done"
    assert (lines, target.calls) == (["all is written already, 3 rows"], failures)
    written.resume(2)
    written.train([3])
    written.finish("ok", 3)
    assert follow(written.run, target, say=lines.append) == "done"
    assert lines[1:] == [f"follows {name} to memory, from row 3 on", "done: 5 rows written to memory"]
    assert target.outcomes == ["ok", "ok"]


def test_each_new_reason_to_wait_is_told_without_addresses_and_objects(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _seconds: None))
    faults = iter([
        "refused at https://me:word@host/api", "<urllib3.Connection object at 0x7f1>: timed out",
        "<urllib3.Connection object at 0x8e2>:  timed\n out", "", "refused at https://me:word@host/api",
    ])  # fmt: skip

    class Changing(Kept):
        def open(self, *arguments: Any) -> int | None:
            if (fault := next(faults, None)) is not None:
                raise OSError(fault)
            return super().open(*arguments)

    written.train([1])
    written.finish("ok", 1)
    lines: list[str] = []
    assert follow(written.run, Changing([], counts=True), say=lines.append) == "done"
    waits = "waits, and tries again: "
    assert lines == [
        f"{waits}refused at https://host/api", f"{waits}timed out", f"{waits}OSError",
        f"{waits}refused at https://host/api", f"follows {written.run.name} to memory, from row 0 on", "goes on",
        "done: 2 rows written to memory",
    ]  # fmt: skip
    place = Place(**vars(read_place(file_of(written.run.path, "tensorboard"))))
    assert (place.state, place.problem, place.where, place.number) == ("done", "", "memory", 2)


def test_a_run_without_a_result_has_crashed_at_its_target(written: Written) -> None:
    written.train([1])
    assert follow(written.run, target := Kept([], counts=True)) == "done"
    assert target.outcomes == ["crashed"]


def test_the_time_of_a_state_is_that_of_its_last_change(monkeypatch: pytest.MonkeyPatch) -> None:
    place, now = Place(), [10.0]
    monkeypatch.setattr("gputui.engine.follow.place.time", SimpleNamespace(time=lambda: now[0]))
    for now[0], state, problem, since in (
        (10.0, "following", "", 10.0), (20.0, "following", "", 10.0), (30.0, "waiting", "a", 30.0),
        (40.0, "waiting", "b", 30.0), (50.0, "following", "", 50.0),
    ):  # fmt: skip
        place.change(state, problem)  # type: ignore[arg-type]
        assert (place.state, place.problem, place.since) == (state, problem, since)


# ---- rows and bytes ------------------------------------------------------------------------------


def progress(t: float, step: int, loss: float) -> Any:
    figures: Any = dict.fromkeys(("samples_per_second", "step_ms_p50", "step_ms_p95", "input_wait"))
    made = Progress(epoch=1, epochs=2, step=step, steps=9, loss=loss, metrics={}, eta_seconds=None, **figures)
    return dated(made, t)


def answer(t: float, resumes_at: int | None) -> Any:
    made = MemoryAnswer(
        answer="halve", number=1, option="input.batch_size", before=8, after=4, ran_out_after_step=5,
        resumes_at_step=resumes_at, message="",
    )  # fmt: skip
    return dated(made, t)


@pytest.mark.parametrize(("resumes_at", "goes_back_to"), [(None, 0), (3, 3), (4, 4), (5, None), (6, None)])
def test_a_training_that_begins_again_within_a_launch_goes_back(
    resumes_at: int | None, goes_back_to: int | None
) -> None:
    maker = PointMaker()
    points = list(maker.points([progress(1.0, 5, 0.5), answer(2.0, resumes_at), progress(3.0, 6, 0.4)]))
    assert [(point.number, point.step, point.goes_back_to) for point in points] == [(0, 5, None), (1, 6, goes_back_to)]
    assert (maker.number, maker.step, maker.goes_back_to) == (2, 6, None)


def test_a_result_without_figures_is_no_row_and_one_without_steps_is_at_the_last_step() -> None:
    summaries: tuple[Mapping[str, Any], ...] = ({}, {"metrics": {"loss": 0.5, "word": "x"}}, {"steps": 9, "seconds": 3})
    ends: list[Any] = [dated(Finished(outcome="ok", summary=summary), 2.0) for summary in summaries]
    points = list(PointMaker(number=7, step=5).points(ends))
    assert points == [
        Point(7, 2.0, 5, {"result/metrics.loss": 0.5}, is_result=True),
        Point(8, 2.0, 9, {"result/seconds": 3, "result/steps": 9}, is_result=True),
    ]
    assert result_figures({"outcome": "ok"}) == {}


def test_a_line_that_is_too_long_is_passed_over(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BLOCK_BYTES", 300)
    monkeypatch.setattr(batches, "LONGEST_BYTES", 1000)
    path = written.run.file("events.jsonl")
    written.train([1])
    begin = path.stat().st_size
    with path.open("a") as stream:
        stream.write("x" * 2500 + "\n")
    written.train([2])
    size, offsets, ends, steps = path.stat().st_size, dict[str, int](), list[int](), list[int]()
    while (batch := batches.read_batch(written.run.path, offsets)).ends != offsets:
        again = batches.read_batch(written.run.path, offsets, batch.ends)
        assert again == batch, "whenever it is read"
        offsets = dict(batch.ends)
        steps += [event.step for event in batch.events if isinstance(event, Progress)]
        ends.append(offsets["events.jsonl"])
    assert (steps, ends[-1]) == ([1, 2], size)
    assert {begin + 1000, begin + 2000} <= set(ends)


def records(data: bytes) -> list[bytes]:
    """The data of each record, whose checksums must be right."""
    found = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        parts = data[:8], data[12 : 12 + length]
        sums = struct.unpack("<I", data[8:12])[0], struct.unpack("<I", data[12 + length : 16 + length])[0]
        for part, masked in zip(parts, sums, strict=True):
            unmasked = (masked - 0xA282EAD8) & 0xFFFFFFFF
            assert ((unmasked >> 17) | (unmasked << 15)) & 0xFFFFFFFF == tfevents.crc32c(part)
        found.append(parts[1])
        data = data[16 + length :]
    return found


def test_the_records_of_tensorboard_have_the_fields_of_its_format() -> None:
    """The numbers of the fields are those of event.proto, summary.proto and tensor.proto."""
    at = b"\x09" + struct.pack("<d", 7.5)
    assert records(tfevents.header(7.5)) == [at + b"\x10\x00\x1a\x0dbrain.Event:2"]
    assert records(tfevents.goes_back_to(7.5, 299)) == [at + b"\x10\xac\x02" + b"\x3a\x02\x08\x01"]
    value = b"\x0a\x04loss\x15" + struct.pack("<f", 0.5)
    assert records(tfevents.scalars(7.5, 128, {"loss": 0.5}, {"loss"})) == [
        at + b"\x10\x80\x01" + b"\x2a\x0d\x0a\x0b" + value
    ]
    text = records(tfevents.text(7.5, "options", "a | b"))
    tensor, meta = b"\x08\x07\x12\x00\x42\x05a | b", b"\x0a\x06\x0a\x04text"
    summary = b"\x0a\x07options\x42" + bytes([len(tensor)]) + tensor + b"\x4a" + bytes([len(meta)]) + meta
    assert text == [at + b"\x10\x00\x2a" + bytes([len(summary) + 2]) + b"\x0a" + bytes([len(summary)]) + summary]


def test_what_a_killed_follower_has_written_too_much_is_written_over(written: Written) -> None:
    written.train(range(1, 9))
    written.finish("ok", 8)
    target = TensorBoard({})
    target.open(about_run(written.run), "")
    target.write(list(PointMaker().points(batches.read_batch(written.run.path, {}).events))[:3])
    whole = target.path.read_bytes()
    assert target.remote["bytes"] == len(whole)
    with target.path.open("ab") as stream:
        stream.write(b"x" * 5000)
    again = TensorBoard(dict(target.remote))
    assert again.open(about_run(written.run), "") is None
    again.write([Point(3, 5.0, 9, {"loss": 0.5})])
    record = tfevents.scalars(5.0, 9, {"loss": 0.5}, {"loss"})
    assert target.path.read_bytes() == whole + record


def test_a_target_is_told_the_options_that_differ_from_their_defaults(home: Path) -> None:
    preset = presets.defaults(["epochs=3", "notify.url=https://a"])
    run = launch.create(launch.settle(preset, home))
    shown = dict(about_run(run).options)
    assert shown.pop("train.seed") > 0
    assert shown == {"train.epochs": 3}


def test_a_figure_is_described_in_its_first_record_alone() -> None:
    described: set[str] = set()
    first, second = (tfevents.scalars(1.0, 1, {"gpu0_busy": 0.5}, described) for _ in range(2))
    assert described == {"gpu0_busy"}
    assert b"scalars" in first
    assert b"scalars" not in second
    (low,) = struct.unpack("<f", tfevents.scalars(0.0, 1, {"loss": -1e39}, {"loss"})[-8:-4])
    assert low == pytest.approx(-3.4028234e38)


def test_the_file_for_prometheus_keeps_the_figures_of_before_and_forgets_the_end_when_the_run_goes_on(
    written: Written, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GPUTUI_PROMETHEUS_FOLDER", raising=False)
    about = about_run(written.run)
    target = Prometheus({})
    assert target.open(about, "0123456789") is None
    file = written.run.file("follow/gputui.prom")
    file.parent.mkdir()
    assert target.where == str(file)

    def samples() -> list[str]:
        return [line.replace(f'run="{about.id}"', "") for line in file.read_text().splitlines() if line[0] != "#"]

    target.write([Point(0, 5.0, 10, {"loss": 0.5, "accuracy": 0.1}), Point(1, 6.0, 20, {"loss": 0.25})])
    first = ["gputui_step{} 20", "gputui_timestamp_seconds{} 6.0", "gputui_loss{} 0.25",
             'gputui_metric{,metric="accuracy"} 0.1']  # fmt: skip
    assert samples() == [*first, 'gputui_ended{,outcome=""} 0']
    assert file.stat().st_mode & 0o777 == 0o644, "node_exporter is another user"
    target.end(about, "stopped")
    assert samples() == [*first, 'gputui_ended{,outcome="stopped"} 1']
    again = Prometheus(dict(target.remote))
    again.open(about, "0123456789")
    again.write([Point(2, 7.0, 30, {"loss": 0.125})])
    assert samples() == [
        "gputui_step{} 30", "gputui_timestamp_seconds{} 7.0", "gputui_loss{} 0.125", first[3],
        'gputui_ended{,outcome=""} 0',
    ]  # fmt: skip
    monkeypatch.setenv("GPUTUI_PROMETHEUS_FOLDER", str(tmp_path))
    again.open(about, "0123456789")
    assert again.where == f"{tmp_path}/gputui-{about.id}-012345.prom"


def test_the_table_for_tensorboard_has_title_tags_note_and_options() -> None:
    about = AboutRun(Path("/r"), "r", "fast: xla", "fast", {"a.b": 3, "c.d": "x|y"}, ("best", "new"), "after the fix")
    assert to_tensorboard._table(about) == (
        "**fast: xla** #best #new\n\nafter the fix\n\n| option | value |\n| --- | --- |\n| a.b | 3 |\n| c.d | x/y |"
    )


def test_the_text_for_prometheus_is_whole() -> None:
    values = {"step": 60, "t": 5.5, "epoch": 2, "gpu1_busy": 0.5, "accuracy": 0.9, "result/seconds": 3.0}
    lines = list(exposition("a", values, "ok"))
    assert [line for line in lines if not line.startswith("# HELP")] == [
        "# TYPE gputui_step gauge", 'gputui_step{run="a"} 60',
        "# TYPE gputui_timestamp_seconds gauge", 'gputui_timestamp_seconds{run="a"} 5.5',
        "# TYPE gputui_epoch gauge", 'gputui_epoch{run="a"} 2',
        "# TYPE gputui_gpu_busy gauge", 'gputui_gpu_busy{run="a",gpu="1"} 0.5',
        "# TYPE gputui_metric gauge", 'gputui_metric{run="a",metric="accuracy"} 0.9',
        "# TYPE gputui_result gauge", 'gputui_result{run="a",figure="seconds"} 3.0',
        "# TYPE gputui_ended gauge", 'gputui_ended{run="a",outcome="ok"} 1',
    ]  # fmt: skip
    assert list(exposition("a", {}))[-1] == 'gputui_ended{run="a",outcome=""} 0'
    assert "# HELP gputui_step the step that the training has reached" in lines
