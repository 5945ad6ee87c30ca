"""The process of a follower, played in this one: its start, its work until the run has ended, and what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from gputui.engine.follow import __main__ as program
from gputui.engine.follow import following, process, start, targets, tfevents, to_tensorboard
from gputui.engine.follow.place import Place, file_of, read_place
from gputui.engine.follow.points import Point
from gputui.engine.follow.start import FollowerState
from gputui.engine.follow.target import AboutRun
from gputui.engine.follow.to_tensorboard import TensorBoard
from gputui.engine.runs import Run
from gputui.engine.runs.liveness import Liveness
from gputui.engine.system import locks

from tests.support.followed import Kept, Written, follow


@pytest.fixture
def written(home: Path) -> Written:
    return Written(home / "runs" / "20260101-000000-small")


# ---- its start -----------------------------------------------------------------------------------


def test_a_follower_is_started_in_a_session_of_its_own_and_adds_to_its_log(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[list[str], dict[str, Any], str]] = []

    def popen(command: list[str], **how: Any) -> str:
        made.append((command, how, how["stdout"].name))
        how["stdout"].write(b"started\n")
        return "a process"

    monkeypatch.setattr(start.subprocess, "Popen", popen)  # type: ignore[attr-defined]
    for _ in range(2):
        assert start.start(written.run.path, "wandb") == "a process"  # type: ignore[comparison-overlap]
    log = written.run.file("follow/wandb.log")
    assert log.read_text() == "started\nstarted\n"
    command, how, name = made[0]
    assert (command, name) == (
        [sys.executable, "-P", "-m", "gputui.engine.follow", str(written.run.path), "wandb"], str(log)
    )  # fmt: skip
    assert how == {
        "stdin": subprocess.DEVNULL, "stdout": how["stderr"], "stderr": how["stdout"], "start_new_session": True
    }  # fmt: skip


def test_a_follower_takes_cpu_disk_and_memory_after_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []

    def refuses(*_: object) -> None:
        did.append("refused")
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(os, "nice", did.append)
    monkeypatch.setattr(Path, "write_text", lambda path, text: did.append((str(path), text)))
    monkeypatch.setattr(psutil, "Process", lambda: SimpleNamespace(ionice=did.append))
    program.be_last()
    assert did == [19, ("/proc/self/oom_score_adj", "1000"), psutil.IOPRIO_CLASS_IDLE]
    did.clear()
    monkeypatch.setattr(os, "nice", refuses)
    monkeypatch.setattr(Path, "write_text", refuses)
    monkeypatch.setattr(psutil, "Process", lambda: SimpleNamespace(ionice=refuses))
    program.be_last()
    assert did == ["refused"] * 3, "where that is not allowed it works as well"


def test_each_word_of_the_option_has_its_target_and_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = {"run": "x"}
    made = {name: kind.make(remote) for name, kind in targets.TARGETS.items()}
    assert {name: type(target).__name__.lower() for name, target in made.items()} == {name: name for name in made}
    assert all(target.remote is remote and target.where == "" for target in made.values())
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert {name: kind.missing for name, kind in targets.TARGETS.items()} == {
        "tensorboard": "", "prometheus": "",
        "mlflow": "mlflow is not installed; pip install 'mlflow>=3,<4' adds it",
        "wandb": "wandb is not installed; pip install 'wandb>=0.21' adds it",
        "trackio": "trackio is not installed; pip install 'trackio>=0.43' adds it",
    }  # fmt: skip
    assert start.missing(["mlflow", "tensorboard", "unknown", "wandb"]) == [
        targets.TARGETS[name].missing for name in ("mlflow", "wandb")
    ]


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


def test_a_follower_that_cannot_begin_or_finish_says_so_by_its_exit_code(
    written: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = written.run
    written.finish("ok", 0)
    run.file("follow").mkdir()
    place = file_of(run.path, "tensorboard")
    place.write_text("{")
    assert process.main(run.path, "tensorboard") == 2
    damage = f"{place} is damaged: remove it, and everything is written once more as another remote run"
    assert told(capsys) == [damage]
    state = start.state(run.path, "tensorboard")
    assert state == FollowerState("tensorboard", False, state.place, damage)
    assert (state.place.state, state.place.number) == ("starting", 0)
    place.unlink()
    with locks.take(file_of(run.path, "tensorboard", "lock")):
        state = start.state(run.path, "tensorboard")
        assert (state.is_alive, state.words, state.place.state) == (True, "follows", "starting")
    monkeypatch.setattr(following.Following, "follow", lambda _: "given_up")
    assert process.main(run.path, "tensorboard") == 1
    place.mkdir()
    assert process.main(run.path, "tensorboard") == 2
    assert told(capsys) == ["tensorboard.json cannot be read: is a folder, not a file"]
    assert start.state(run.path, "tensorboard").words == "tensorboard.json cannot be read: is a folder, not a file"


def test_a_run_that_goes_on_is_looked_at_each_second_and_its_last_rows_are_not_lost(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [Liveness(engine=True, trainer=True)]
    monkeypatch.setattr(Run, "liveness", property(lambda _run: now[0]))
    noted: list[tuple[float, str, int, int]] = []
    refusals = iter([True, True, False])

    def sleep(seconds: float) -> None:
        place = read_place(file_of(written.run.path, "tensorboard")) or Place()
        noted.append((seconds, place.state, place.number, len(target.kept)))
        if len(noted) == 2:
            written.train([3])
        if len(noted) == 5:
            now[0] = Liveness(trainer=True)
        if len(noted) == 6:
            written.train([4, 5])
            written.finish("ok", 5)
            now[0] = Liveness()

    class Refusing(Kept):
        def write(self, points: Any) -> None:
            if points[0].step == 3 and next(refusals, False):
                raise OSError("refused")
            super().write(points)

    target = Refusing([], counts=True)
    monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: 100.0, sleep=sleep))
    written.train([1, 2])
    lines: list[str] = []
    assert follow(written.run, target, say=lines.append) == "done"
    assert noted == [
        (1.0, "following", 2, 2), (1.0, "following", 2, 2), (1.0, "waiting", 2, 2), (2.0, "waiting", 2, 2),
        (1.0, "following", 3, 3), (1.0, "following", 3, 3),
    ], "the seconds between two attempts grow, and begin anew"  # fmt: skip
    name = written.run.name
    follows = f"follows {name} to memory, from row 2 on"
    assert lines == [
        f"follows {name} to memory, from row 0 on", "waits, and tries again: refused", follows, follows, "goes on",
        "done: 6 rows written to memory",
    ]  # fmt: skip
    assert [(point.number, point.step) for point in target.kept] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 5)]
    assert target.outcomes == ["ok"]
    place = json.loads(file_of(written.run.path, "tensorboard").read_text())
    assert (place["state"], place["problem"], place["sending"], place["where"]) == ("done", "", None, "memory")


def test_the_file_of_tensorboard_has_head_options_figures_and_returns_in_their_order(tmp_path: Path) -> None:
    about = AboutRun(tmp_path, "r", "fast", "fast", {"a.b": 3}, (), "")
    points = [
        Point(0, 10.0, 1, {"loss": 0.5}), Point(1, 11.0, 2, {"loss": 0.25, "accuracy": 0.5}),
        Point(2, 12.0, 2, {"loss": 0.125}, goes_back_to=1), Point(3, 13.0, 3, {"loss": 0.1}),
    ]  # fmt: skip
    target = TensorBoard({})
    assert target.open(about, "key") == 0
    target.write(points[:2])
    length = target.remote["bytes"]
    target.write(points[2:])
    described: set[str] = set()
    parts = [
        tfevents.header(10.0), tfevents.text(10.0, "options", to_tensorboard._table(about)),
        *(tfevents.scalars(point.t, point.step, point.figures, described) for point in points[:2]),
    ]  # fmt: skip
    later = [
        tfevents.goes_back_to(12.0, 1),
        *(tfevents.scalars(point.t, point.step, point.figures, described) for point in points[2:]),
    ]
    assert target.path == tmp_path / "tensorboard/events.out.tfevents.10.gputui.r"
    assert target.path.read_bytes() == b"".join([*parts, *later])
    assert (length, target.remote) == (
        len(b"".join(parts)),
        {"file": target.path.name, "bytes": len(b"".join([*parts, *later])), "described": ["accuracy", "loss"]},
    )
    again = TensorBoard(dict(target.remote))
    assert again.open(about, "key") is None
    target.path.write_bytes(target.path.read_bytes()[:-1])
    assert (again.open(about, "key"), again.remote) == (0, {}), "the machine has crashed: it begins again"
