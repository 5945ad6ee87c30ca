"""A follower writes each row once, whatever happens to it and to its target."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import (
    AboutRun,
    BackgroundCalls,
    Following,
    MemoryAnswer,
    Point,
    PointMaker,
    TensorBoard,
    about_run,
    dated,
    file_of,
    following,
    history,
    locks,
    presets,
    read_events,
    read_place,
    runs,
    to_tensorboard,
    without_login,
)
from tests.doors.engine import events_Progress as Progress
from tests.doors.engine import follow_start as process
from tests.doors.engine import follow_start as start
from tests.doors.engine import target as batches
from tests.support.followed import Written, follow


class Kept:
    """A target that keeps all points in a list, which outlives the follower as a server does.

    `counts`: it says how many it has; else it leaves out points that it has exactly so. `on_write` is called before
    and after each half of the points is kept.
    """

    def __init__(self, kept: list[Point], counts: bool, on_write: Callable[[], None] = lambda: None) -> None:
        self.kept, self.counts, self.on_write = kept, counts, on_write
        self.remote: dict[str, Any] = {}
        self.where = "memory"
        self.outcomes: list[str] = []

    def open(self, _about: AboutRun, _key: str) -> int | None:
        self.on_write()
        return len(self.kept) if self.counts else None

    def write(self, points: Sequence[Point]) -> None:
        half = len(points) // 2
        for part in (points[:half], points[half:]):
            self.on_write()
            self.kept += [point for point in part if self.counts or point not in self.kept]
        self.on_write()

    def end(self, _about: AboutRun, outcome: str) -> None:
        self.outcomes.append(outcome)


class Killed(BaseException):
    """Stands in for kill -9: all that is in memory is lost, and files and servers stay as they are."""


@pytest.fixture
def written(home: Path) -> Written:
    return Written(home / "runs" / "20260101-000000-small")


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_SECONDS", "RETRY_SECONDS", "LONGEST_RETRY_SECONDS"):
        monkeypatch.setattr(following, name, 0.01)


def test_all_rows_of_a_resumed_run_and_its_results_are_written_in_their_order(written: Written) -> None:
    written.train([1, 2, 4, 6])
    written.finish("stopped", 6)
    written.resume(4)
    written.train([5, 8])
    written.finish("ok", 8)
    target = Kept([], counts=False)
    assert follow(written.run, target) == "done"
    assert [(point.number, point.step, point.is_result, point.goes_back_to) for point in target.kept] == [
        (0, 1, False, None), (1, 2, False, None), (2, 4, False, None), (3, 6, False, None), (4, 6, True, None),
        (5, 5, False, 4), (6, 8, False, None), (7, 8, True, None),
    ]  # fmt: skip
    assert target.kept[-1].figures == {"result/step_ms.p50": 2.5, "result/steps": 8, "result/metrics.loss": 0.25}
    rows = [dict(point.figures) for point in target.kept if not point.is_result]
    table = history.rows(read_events(written.run.path).events)
    assert rows == [
        {name: value for name, value in row.items() if name not in ("t", "seconds", "step")} for row in table
    ]
    assert target.outcomes == ["ok"]
    assert follow(written.run, again := Kept(target.kept, counts=False)) == "done"
    assert len(again.kept) == 8


@pytest.mark.parametrize("seed", range(6))
def test_no_row_is_lost_or_doubled_by_kills_at_any_moment(
    written: Written, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The training goes on meanwhile. The targets are one that counts its rows, one that knows them, and a file."""
    chance, kept = random.Random(seed), list[Point]()
    monkeypatch.setattr(batches, "BLOCK_BYTES", chance.choice([400, 1500, 1 << 18]))
    save, is_over = Following._save, [False]

    def maybe_die() -> None:
        if not is_over[0] and chance.random() < 0.12:
            raise Killed

    def save_or_die(follower: Following, run: runs.Run) -> None:
        maybe_die()
        save(follower, run)
        maybe_die()

    def undisturbed_write(target: TensorBoard, points: Any, write: Any = TensorBoard.write) -> None:
        maybe_die()
        write(target, points)
        maybe_die()

    monkeypatch.setattr(Following, "_save", save_or_die)
    monkeypatch.setattr(TensorBoard, "write", undisturbed_write)
    # Kills come out of the calls as they are: no thread, as a BaseException would end that alone.
    monkeypatch.setattr(BackgroundCalls, "result", lambda _self, call, _seconds: call())
    name, kills, step = ("kept", "kept", "tensorboard")[seed % 3], 0, 0
    while True:
        written.train(range(step + 1, step := step + chance.randrange(1, 9)), is_late=name == "kept")
        if is_over[0] or step > 60:
            is_over[0] = kills > 3 or step > 150
            if is_over[0] and not written.run.file("result.json").exists():
                written.finish("ok", step)
        target = TensorBoard({}) if name == "tensorboard" else Kept(kept, seed % 3 == 0, maybe_die)
        try:
            assert follow(written.run, target, name) == "done"
            if is_over[0]:
                break
        except Killed:
            kills += 1
    assert kills > 2
    monkeypatch.setattr(batches, "BLOCK_BYTES", 1 << 18)
    if name == "tensorboard":
        (file,) = written.run.file(to_tensorboard.FOLDER).iterdir()
        whole = to_tensorboard.write_all(written.run, written.run.path / "again")
        assert whole is not None
        assert file.read_bytes() == whole.read_bytes()
        return
    follow(written.run, undisturbed := Kept([], counts=False), "other")
    assert [point.number for point in kept] == list(range(len(undisturbed.kept)))
    assert [(point.t, point.step) for point in kept] == [(point.t, point.step) for point in undisturbed.kept]
    assert [point.figures["loss"] for point in kept[:-1]] == [point.figures["loss"] for point in undisturbed.kept[:-1]]


class Failing(Kept):
    """Fails in its first calls of `write`, as `failures` says, and works then."""

    def __init__(self, failures: list[Exception | threading.Event]) -> None:
        super().__init__([], counts=True)
        self.failures = failures

    def write(self, points: Any) -> None:
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            failure.wait()
        super().write(points)


def test_a_target_that_refuses_or_hangs_is_waited_for(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "CALL_SECONDS", 0.05)
    written.train(range(1, 30))
    written.finish("ok", 29)
    answers, lines = threading.Event(), list[str]()
    target = Failing([OSError("connection refused"), OSError("connection refused"), answers])

    def say(line: str) -> None:
        lines.append(line)
        if "no answer" in line:
            answers.set()

    assert follow(written.run, target, say=say) == "done"
    assert [point.number for point in target.kept] == list(range(30))
    assert sum("connection refused" in line for line in lines) == 1
    assert any("no answer within 0.05 s" in line for line in lines)


def test_secrets_stay_in_the_run(home: Path) -> None:
    """The options of notices do not reach a target, and a password in an address is not in the reason of a failure."""
    run = runs.create("quiet", presets.resolve("quickstart", ["notify.url=https://a/topic", "epochs=3"]).to_yaml())
    options = about_run(run).options
    assert options["train.epochs"] == 3
    assert not [key for key in options if key.startswith("notify")]
    failure = "API request to https://me:word@host:80/api failed: Max retries (me@example.org)"
    assert without_login(failure) == "API request to https://host:80/api failed: Max retries (me@example.org)"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ValueError("no such\nproject"), "no such project"),
    ],
)
def test_it_gives_up_some_time_after_the_end_and_goes_on_later(
    fault: Exception, told: str, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, ended, lines, engine = 0.0, list[float](), list[str](), locks.take(written.run.file("engine.lock"))

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now > 0.5 and not ended:
            ended.append(now)
            written.finish("ok", 2)
            engine.release()

    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep, time=time.time)
    monkeypatch.setattr(following, "time", clock)
    monkeypatch.setattr(following, "GIVE_UP_SECONDS", 0.1)
    written.train([1, 2])
    assert follow(written.run, Failing([fault] * 10**4), say=lines.append) == "given_up"
    assert 0.1 < now - ended[0] < 0.2, "failures during the run do not count"
    assert lines[-1].endswith(f"gputui follow {written.run.id} --to tensorboard goes on from here")
    place = read_place(file_of(written.run.path, "tensorboard"))
    assert place is not None
    assert (place.state, place.problem) == ("given_up", told)
    assert follow(written.run, target := Kept([], counts=True)) == "done"
    assert len(target.kept) == 3


def test_a_deleted_run_is_left(written: Written) -> None:
    written.train([1, 2])
    written.finish("ok", 2)

    class Deleting(Kept):
        def open(self, *arguments: Any) -> int | None:
            shutil.rmtree(written.run.path)
            return super().open(*arguments)

    lines: list[str] = []
    assert follow(written.run, Deleting([], counts=True), say=lines.append) == "given_up"
    assert lines[-1] == "the run has been deleted"


@pytest.mark.nightly
def test_a_process_that_is_killed_again_and_again_writes_the_same_file(written: Written) -> None:
    written.train(range(1, 2500))
    whole = to_tensorboard.write_all(written.run, written.run.path / "whole")
    assert whole is not None
    command = [sys.executable, "-P", "-m", "gputui.engine.follow", str(written.run.path), "tensorboard"]
    file, sizes = written.run.file(to_tensorboard.FOLDER) / whole.name, list[int]()
    for _ in range(2):
        process = subprocess.Popen(command)
        while not file.exists() or file.stat().st_size <= sum(sizes[-1:]):
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        sizes.append(file.stat().st_size)
    assert subprocess.run(command, check=False).returncode == 0
    assert file.read_bytes() == whole.read_bytes()
    assert sizes[0] < sizes[-1] < whole.stat().st_size


def test_what_a_target_has_lost_is_written_again(written: Written) -> None:
    written.train(range(1, 20))
    written.finish("stopped", 19)
    follow(written.run, target := Kept([], counts=True))
    written.resume(19)
    written.train([20])
    del target.kept[7:]
    lines: list[str] = []
    assert follow(written.run, target, say=lines.append) == "done"
    assert [point.number for point in target.kept] == list(range(21))
    assert lines[0] == "the target has only 7 rows of 20: the rest is written again"
    follow(written.run, board := TensorBoard({}), "board")
    whole, file = board.path.read_bytes(), board.path
    written.train([21])
    file.write_bytes(whole[:100])
    assert follow(written.run, TensorBoard({}), "board") == "done"
    assert file.read_bytes()[: len(whole)] == whole


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


@pytest.mark.parametrize(("resumes_at", "goes_back_to"), [(None, 0), (4, 4), (5, None)])
def test_a_training_that_begins_again_within_a_launch_goes_back(
    resumes_at: int | None, goes_back_to: int | None
) -> None:
    maker = PointMaker()
    points = list(maker.points([progress(1.0, 5, 0.5), answer(2.0, resumes_at), progress(3.0, 6, 0.4)]))
    assert [(point.number, point.step, point.goes_back_to) for point in points] == [(0, 5, None), (1, 6, goes_back_to)]
    assert (maker.number, maker.step, maker.goes_back_to) == (2, 6, None)


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
    record = to_tensorboard.scalars(5.0, 9, {"loss": 0.5}, {"loss"})
    assert target.path.read_bytes() == whole + record


# ---- its work ------------------------------------------------------------------------------------


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line[:19].split("-")) == 3 and line[19] == " " for line in lines), "each with its date"
    return [line[20:] for line in lines]


def test_a_follower_writes_the_run_from_its_place_on_and_says_how_it_has_ended(
    written: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    run, name = written.run, written.run.name
    written.train([1, 2])
    written.finish("stopped", 2)
    to = f"{run.path}/tensorboard"
    assert start.states(run.path) == []
    assert process.main(run.path, "tensorboard") == 0
    assert told(capsys) == [f"follows {name} to {to}, from row 0 on", f"done: 3 rows written to {to}"]
    (state,) = start.states(run.path)
    assert (state.target, state.is_alive, state.words, state.place.number) == ("tensorboard", False, "done", 3)
    (file,) = Path(to).iterdir()
    length = file.stat().st_size
    assert process.main(run.path, "tensorboard") == 0
    assert (told(capsys), file.stat().st_size) == (["all is written already, 3 rows"], length)
    written.resume(2)
    written.train([3])
    written.finish("ok", 3)
    assert process.main(run.path, "tensorboard") == 0
    assert told(capsys) == [f"follows {name} to {to}, from row 3 on", f"done: 5 rows written to {to}"]
    assert file.stat().st_size > length
    assert [path.name for path in sorted(run.file("follow").iterdir())] == ["tensorboard.json", "tensorboard.lock"]
