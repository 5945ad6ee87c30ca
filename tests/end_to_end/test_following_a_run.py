"""What the commands that start and resume a run check before, say meanwhile, and return at the end; in this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import checks, presets
from gputui.engine.checks import Finding
from gputui.engine.files import run_numbers
from gputui.engine.follow import start
from gputui.engine.follow.place import Place
from gputui.engine.follow.start import FollowerState
from gputui.engine.job import start_worker
from gputui.engine.job.machine_gpus import Machine
from gputui.engine.job.several_tasks import Remark
from gputui.engine.process import launch, resuming
from gputui.engine.runs import ASKED_BY_PERSON, Run
from gputui.tui import cli
from gputui.tui.base.errors import OutputFault, Refused
from gputui.tui.commands import train

from tests.support import recorded

Printed = pytest.CaptureFixture[str]
HERE, THERE = Machine((), "no NVIDIA driver", 8, 2**34), Machine((), "no NVIDIA driver", 99, 2**34)
JOINED, REACHED = Remark("note", "two workers share it", "fine"), Remark("warning", "b:1 is not there", "wait")
OF_JOINED = Finding("note", ("strategy.kind",), "two workers share it", "fine")
OF_REACHED = Finding("warning", ("strategy.kind",), "b:1 is not there", "wait")


def said(capsys: Printed) -> tuple[list[str], list[str]]:
    out, err = capsys.readouterr()
    return out.splitlines(), err.splitlines()


@pytest.fixture
def run(home: Path) -> Run:
    return recorded.write(
        home, name="20260921-100000-cnn", gpus=0, seconds=13, outcome="stopped", settings=("run.stop_signal=SIGUSR2",)
    )


@pytest.fixture
def followed(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments with which a run is followed; it has started on a machine of which there are two remarks."""
    calls: list[Any] = []

    def follow(*given: Any) -> int:
        calls.append(given)
        return 5

    def presses(stop_signal: str = "none") -> SimpleNamespace:
        return SimpleNamespace(count=0, of=stop_signal)

    monkeypatch.setattr(train, "_follow", follow)
    monkeypatch.setattr(train, "Presses", presses)
    monkeypatch.setattr(train, "Follower", lambda run, from_now=False: ("follower", run, from_now))
    monkeypatch.setattr(start_worker, "machine_for", lambda kind, visible: (HERE, [JOINED]))
    monkeypatch.setattr(start_worker, "machine_to_resume", lambda run: (HERE, [JOINED]))
    monkeypatch.setattr(start_worker, "test_cluster", lambda kind, here: [REACHED])
    monkeypatch.setattr(launch, "start", lambda preset, tell: (run, f"the process of {preset.name}"))
    monkeypatch.setattr(checks, "of_preset", lambda preset, machine: [Finding("note", (), f"{machine.cpus} CPUs", "")])
    return calls


# ---- a new run ------------------------------------------------------------------------------------


def test_a_run_is_followed_with_all_that_was_found_before(run: Run, followed: list[Any]) -> None:
    cpus = Finding("note", (), "8 CPUs", "")
    assert train.run_preset("quickstart", ["run.stop_signal=SIGUSR1"], as_json=True) == 5
    (given,) = followed
    assert given[:5] == (
        run,
        ("follower", run, False),
        "the process of quickstart",
        True,
        [cpus, OF_JOINED, OF_REACHED],
    )
    assert given[5].of == "SIGUSR1"
    assert train.checked("quickstart", [], THERE)[1:] == (THERE, [Finding("note", (), "99 CPUs", ""), OF_JOINED])


def test_what_is_wrong_with_the_cluster_refuses_a_run(followed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Remark("error", "the job has two tasks", "start one")
    monkeypatch.setattr(start_worker, "machine_for", lambda kind, visible: (HERE, [JOINED, wrong]))
    with pytest.raises(Refused) as refused:
        train.run_preset("quickstart", ["strategy.kind=mirrored"])
    assert str(refused.value) == "--set strategy.kind=mirrored: the job has two tasks; start one"
    assert followed == []


def test_a_run_in_the_background_is_named_by_its_id_and_to_people_by_its_short_name(
    run: Run, followed: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    words = ["note: 8 CPUs; ", "note: strategy.kind: two workers share it; fine",
             "warning: strategy.kind: b:1 is not there; wait"]  # fmt: skip
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert train.run_preset("quickstart", [], detach=True) == 0
    assert said(capsys) == ([run.id], words)
    run_numbers.file_of(run.path).write_text(f"{run.id}\n")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert train.run_preset("quickstart", [], detach=True) == 0
    out, err = said(capsys)
    assert (out, err[0], err[1:4]) == ([run.id], "r1 cnn started; gputui watch r1 shows it", words)
    assert err[4].startswith("warning: the run dies with the Slurm job 7: when its first process ends, Slurm kills")
    assert followed == []


def test_a_dry_run_prints_the_preset_and_what_was_found(
    followed: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train.run_preset("quickstart", ["epochs=7"], dry_run=True) == 0
    out, err = capsys.readouterr()
    assert presets.resolve_text(out, tmp_path / "a.yaml").options == presets.resolve("quickstart", ["epochs=7"]).options
    assert err.splitlines() == ["note: 8 CPUs; ", "note: strategy.kind: two workers share it; fine"]
    assert followed == []
    assert train.run_preset("quickstart", ["entry=train.py:build"], dry_run=True) == 0
    assert f"  folder: {tmp_path}\n" in capsys.readouterr().out, "so that the preset means the same elsewhere"


# ---- a resumed run --------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "given"), [(None, (False, False)), ("new", (True, False)), ("copy", (False, True))])
def test_a_resumed_run_is_followed_with_the_code_that_was_chosen(
    code: str | None, given: tuple[bool, bool], run: Run, followed: list[Any], monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
) -> None:  # fmt: skip
    resumed: list[Any] = []

    def resume(run: Run, new_code: bool, tell: Any, *, from_copy: bool) -> str:
        resumed.append((run, new_code, from_copy))
        return "the process"

    trains = Finding("note", ("run.python",), "trains in Python 3.12", "")
    monkeypatch.setattr(resuming, "preset_to_resume", lambda run: presets.resolve("quickstart"))
    monkeypatch.setattr(resuming, "resume", resume)
    monkeypatch.setattr(checks, "of_kind", lambda kind, here: [Finding("note", (), f"{kind}, {here.cpus} CPUs", "")])
    monkeypatch.setattr(checks, "of_resumed", lambda python, file: [trains] if file.endswith("preset.yaml") else [])
    assert train.resume_run("cnn", as_json=True, code=code) == 5
    assert resumed == [(run, *given)]
    (call,) = followed
    found = [Finding("note", (), "single, 8 CPUs", ""), OF_JOINED, trains, OF_REACHED]
    assert call[:5] == (run, ("follower", run, True), "the process", True, found)
    assert call[5].of == "SIGUSR2", "of the run itself"
    assert train.resume_run("cnn", detach=True, code=code) == 0
    assert said(capsys)[0] == [run.id]
    assert len(followed) == 1
    wrong = Finding("error", ("run.python",), "it has no TensorFlow", "install it")
    monkeypatch.setattr(checks, "of_resumed", lambda python, file: [wrong])
    with pytest.raises(Refused, match=rf"^{run.name}: run.python: it has no TensorFlow; install it$"):
        train.resume_run("cnn")
    assert len(resumed) == 2


# ---- while it is followed -------------------------------------------------------------------------


class View:
    """Writes down what it is to show."""

    def __init__(self, run: Run) -> None:
        self.run, self.shown = run, list[Any]()

    def show(self, event: Any) -> None:
        if event == "full":
            raise OutputFault(OSError(28, "No space left on device"))
        self.shown.append((self.run.id, event))

    def stopping(self, more: str) -> None:
        self.shown.append(more)

    def close(self) -> None:
        self.shown.append("closed")


class Events:
    """A follower that finds these events, some at each look."""

    def __init__(self, run: Run, *looks: Sequence[str], outcome: str = "ok") -> None:
        self.run, self.looks, self.outcome = run, list(looks), outcome

    @property
    def ended(self) -> bool:
        return not self.looks

    def poll(self) -> Sequence[str]:
        return self.looks.pop(0)


def follow(run: Run, events: Events, monkeypatch: pytest.MonkeyPatch, presses: Any) -> tuple[int, View, list[str]]:
    view, waited = View(run), list[str]()
    monkeypatch.setattr(train, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(train, "_view", lambda *_: view)
    process = SimpleNamespace(wait=lambda: waited.append("waited"))
    code = train._follow(run, events, process, False, (), presses)  # type: ignore[arg-type]
    return code, view, waited


class Pressed:
    """Ctrl-C is pressed before the second look, and again before the third."""

    more = "; again"

    def __init__(self, fault: Exception | None = None) -> None:
        self.looks, self.fault = 0, fault

    @property
    def count(self) -> int:
        self.looks += 1
        return min(self.looks - 1, 2)

    def ask(self, act: Any) -> None:
        if self.fault:
            raise self.fault


def test_events_and_requests_to_stop_are_shown_until_the_run_has_ended(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    events = Events(run, ["one"], ["two", "three"], [], ["four"], outcome="oom")
    code, view, waited = follow(run, events, monkeypatch, Pressed())
    assert (code, waited) == (3, ["waited"])
    assert view.shown == [
        (run.id, "one"), (run.id, "two"), (run.id, "three"), "; again", "; again", (run.id, "four"), "closed",
    ]  # fmt: skip
    assert said(capsys) == ([], [])


@pytest.mark.parametrize("is_active", [True, False])
def test_a_run_goes_on_if_its_lines_cannot_be_written(
    is_active: bool, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    discarded: list[str] = []
    monkeypatch.setattr(train, "discard_output", lambda: discarded.append("discarded"))
    monkeypatch.setattr(Run, "state", property(lambda _: "running" if is_active else "ok"))
    code, view, waited = follow(run, Events(run, ["one", "full"], ["two"]), monkeypatch, Pressed())
    assert (code, waited, view.shown, discarded) == (74, [], [(run.id, "one"), "closed"], ["discarded"])
    running = f"{run.name} is still running; show it with: gputui watch {run.name}"
    ended = f"{run.name} has ended; everything is in {run.path}"
    assert said(capsys)[1] == [
        "standard output cannot be written (No space left on device)", running if is_active else ended,
    ]  # fmt: skip


def test_a_run_that_cannot_be_followed_for_lack_of_threads_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    no_thread = RuntimeError("can't start new thread")
    code, view, waited = follow(run, Events(run, ["one"]), monkeypatch, Pressed(no_thread))
    assert (code, view.shown, waited) == (1, [], [])
    assert "thread" in said(capsys)[1][0]


def test_followers_that_have_not_written_all_are_named_at_the_end(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    behind = FollowerState("mlflow", True, Place(number=3, problem="no route"))
    asked: list[Path] = []

    def wait(folder: Path) -> list[FollowerState]:
        asked.append(folder)
        return [behind]

    monkeypatch.setattr(start, "wait", wait)
    follow(run, Events(run, ["one"]), monkeypatch, Pressed())
    assert (asked, said(capsys)[1]) == ([], []), "a run without followers waits for none"
    run.file("follow").mkdir()
    follow(run, Events(run, ["one"]), monkeypatch, Pressed())
    words = f"mlflow waits: no route; gputui follow {run.name} shows when it has all figures"
    assert (asked, said(capsys)[1]) == ([run.path], [words])


# ---- Ctrl-C ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("foreground", "counted"), [(os.getpgrp(), ASKED_BY_PERSON), (os.getpgrp() + 1, (signal.SIGTERM,)),
                                (None, (signal.SIGTERM,)), ("no terminal", (signal.SIGTERM,))]
)  # fmt: skip
def test_a_key_is_a_persons_only_in_the_foreground_of_a_terminal(
    foreground: Any, counted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = tmp_path / "tty"
    terminal.write_text("")
    opened, real = list[int](), os.open

    def instead(path: str, flags: int) -> int:
        if foreground == "no terminal":
            raise OSError(6, "No such device or address")
        assert path == "/dev/tty"
        opened.append(real(terminal, os.O_RDONLY))
        return opened[-1]

    def group(_descriptor: int) -> int:
        if foreground is None:
            raise OSError(25, "Inappropriate ioctl for device")
        return int(foreground)

    presses = train.Presses()
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", instead)
        patched.setattr(os, "tcgetpgrp", group)
        signal.raise_signal(signal.SIGINT)
    assert presses.asked == [counted]
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


# ---- several machines -----------------------------------------------------------------------------


def test_the_cluster_of_the_command_line_is_joined_before_the_run_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(start_worker, "use_command_line", lambda workers, worker: done.append((workers, worker)))
    for name in ("run_preset", "resume_run"):
        monkeypatch.setattr(train, name, lambda *_, **__: done.append("started"))
    for words in (["--preset", "quickstart"], ["resume", "r1"]):
        for worker, number in (([], None), (["--worker", "0"], 0), (["--worker", "1"], 1)):
            cli.run([*words, "--cluster", "a:1,b:1", *worker])
            assert done == [("a:1,b:1", number), "started"], words
            done.clear()
        cli.run(words)
        assert done == ["started"]
        done.clear()


# ---- resume ---------------------------------------------------------------------------------------


def test_the_newest_or_the_named_run_is_resumed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed: list[Any] = []

    def resume(*given: Any) -> int:
        resumed.append(given)
        return 6

    newest = recorded.write(run.path.parents[1], name="20260921-110000-vit", gpus=0, seconds=13, outcome="stopped")
    monkeypatch.setattr(train, "_resume", resume)
    monkeypatch.setattr(resuming, "latest", lambda: newest)
    assert cli.run(["resume", "cnn", "--detach", "--wait"]) == 6
    assert cli.run(["resume", "--latest", "--json", "--code", "copy"]) == 6
    assert resumed == [(run, False, True, None, True), (newest, True, False, "copy", False)]
