"""What commands do step by step when devices are in use, a run is stopped, or a form is opened; in this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine import runs as run_folders
from gputui.engine.checks import Finding
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.leases import free_gpus, start_devices
from gputui.engine.leases.lease import NotFree
from gputui.engine.leases.memory_needs import NotMeasuredError
from gputui.engine.process import resuming
from gputui.engine.proof import folder
from gputui.engine.proof.request import ProofError
from gputui.engine.queue import entries, entry_changes, slurm_queue
from gputui.engine.runs import Run, RunError, code_files
from gputui.engine.system import locks
from gputui.tui import cli
from gputui.tui.base.errors import Refused
from gputui.tui.commands import proof, queue, train

from tests.support import recorded
from tests.support.queued import no_runner, waiting
from tests.support.recorded_proof import write_proof

Printed = pytest.CaptureFixture[str]
assert queue, "it keeps functions that are replaced here, so it is imported before"
TWO = Machine(tuple(Gpu(number, f"GPU-{number}", "A GPU", (9, 0), 80 * 2**30) for number in (0, 1)), "", 8, 2**34)


def printed(capsys: Printed, *words: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it prints on stdout and on stderr."""
    capsys.readouterr()
    code = cli.run(words)
    return code, *capsys.readouterr()


# ---- the form -------------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The states and runs that a screen would open with. The terminal is there unless `instead` is refused."""
    shown: list[Any] = []

    def show(state: Any = None, **more: Any) -> int:
        shown.append((state, more))
        return 5

    for module in ("command", "runs"):
        monkeypatch.setattr(f"gputui.tui.cli.{module}.show", show)
    return shown


def test_a_preset_opens_the_form_with_the_settings_as_changes(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.tui.cli.command.need_a_terminal", lambda instead: opened.append(instead))
    for words in (["quickstart", "--set", "epochs=7"], ["--set", "epochs=7", "quickstart"]):
        opened.clear()
        assert cli.run(words) == 5
        instead, (state, more) = opened
        assert (instead, more) == ("gputui --preset quickstart trains", {})
        assert state.path == presets.SHIPPED / "quickstart.yaml"
        assert state.unsaved() == ["train.epochs"]
        assert state.preset.options.train.epochs == 7
    opened.clear()
    assert cli.run(["--set", "epochs=7", "quickstart", "--set", "epochs=8", "--set", "batch_size=9"]) == 5
    assert opened[1][0].preset.options.train.epochs == 8
    assert opened[1][0].unsaved() == ["input.batch_size", "train.epochs"]
    opened.clear()
    assert cli.run([]) == 5
    assert opened == [(None, {})]


def test_a_run_opens_the_form_with_its_options(home: Path, opened: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputui.tui.cli.command.need_a_terminal", lambda instead: None)
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13, settings=("batch_size=512",))
    assert cli.run(["run:cnn", "--set", "epochs=7"]) == 5
    ((state, more),) = opened
    assert (state.path, more, state.unsaved()) == (run.file("preset.yaml"), {}, ["train.epochs"])
    assert state.preset.options.input.batch_size == 512


def test_without_a_terminal_the_command_that_trains_is_named(capsys: Printed, tmp_path: Path) -> None:
    preset = tmp_path / "my own.yaml"
    preset.write_text("train: {epochs: 2}\n")
    code, out, err = printed(capsys, str(preset))
    assert (code, out) == (2, "")
    assert err.endswith(f"(ssh -t gives one); gputui --preset '{preset}' trains without one\n")


@pytest.mark.parametrize(("given", "speed"), [((), None), (("--replay",), 1.0), (("--replay=10",), 10.0)])
def test_a_run_is_watched_or_replayed_at_a_speed(
    given: tuple[str, ...], speed: float | None, home: Path, opened: list[Any]
) -> None:
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)
    assert cli.run(["watch", run.id, *given]) == 5
    assert cli.run(["watch", "latest", *given]) == 5
    assert opened == [(None, {"watch": run, "replay_speed": speed})] * 2


# ---- devices that are in use ----------------------------------------------------------------------


class Start:
    """A start that finds no free devices at first."""

    def __init__(self, *faults: Exception) -> None:
        self.faults, self.count = list(faults), 0

    def __call__(self) -> str:
        self.count += 1
        if self.faults:
            raise self.faults.pop(0)
        return "started"


def when_free(start: Start, wait: bool, presses: int = 0) -> str:
    counted = SimpleNamespace(count=presses)
    options = presets.resolve("quickstart").options
    return train._when_free(options, wait, counted, start)  # type: ignore[arg-type]


def test_a_start_waits_only_if_it_is_asked_to_and_again_if_the_devices_were_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[bool] = []
    monkeypatch.setattr(start_devices, "wait", lambda options, tell, given_up: waits.append(given_up()))
    busy = NotFree("GPU 0 is in use")
    with pytest.raises(Refused) as refused:
        when_free(Start(busy), wait=False)
    assert str(refused.value) == "GPU 0 is in use\n--wait starts when that has changed"
    assert waits == []
    start = Start(busy, busy)
    assert (when_free(start, wait=True), start.count, waits) == ("started", 3, [False] * 3)
    assert when_free(Start(), wait=False) == "started"
    for wait in (True, False):
        with pytest.raises(NotMeasuredError):
            when_free(Start(NotMeasuredError("measure it first")), wait)
        start = Start()
        with pytest.raises(KeyboardInterrupt):
            when_free(start, wait, presses=1)
        assert start.count == 0
    assert waits[-1] is True


@pytest.mark.parametrize(
    ("machine", "is_terminal", "others", "words"),
    [
        (TWO, True, "GPU 0: used by ann",
         "warning: GPU 0: used by ann\n--wait starts when they are free, device.visible=free:1 takes another GPU\n"),
        (TWO, True, "", ""),
        (TWO, False, "GPU 0: used by ann", ""),
        (Machine((), "none", 8, 2**34), True, "GPU 0: used by ann", ""),
    ],
)  # fmt: skip
def test_others_on_the_same_gpus_are_named_in_a_terminal(
    machine: Machine, is_terminal: bool, others: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setattr(start_devices, "in_use", lambda options, here: others)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    train._warn_of_others(presets.resolve("quickstart").options, machine)
    assert capsys.readouterr().err == words


def test_a_start_warns_of_others_unless_it_waits_or_goes_on_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(train, "_warn_of_others", lambda *_: warned.append("warned"))
    monkeypatch.setattr(train, "_when_free", lambda options, wait, presses, start: 1 / 0)
    for given, count in (({}, 1), ({"wait": True}, 0), ({"anyway": True}, 0)):
        warned.clear()
        with pytest.raises(ZeroDivisionError):
            train.run_preset("quickstart", [], **given)  # type: ignore[arg-type]
        assert len(warned) == count, given


class LeaseOfTest:
    """A lease in a file that the program can inherit."""

    lock = locks.Lock(2)

    def __repr__(self) -> str:
        return "lease"

    def write(self, what: str, pid: int) -> None: ...


@pytest.fixture
def leased(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What happens when GPUs are leased: the first attempt finds none. No signal is ignored, as nohup would do."""
    events: list[str] = []
    faults = [NotFree("GPU 0 is in use")]
    chosen = [SimpleNamespace(number="1", uuid="GPU-1"), SimpleNamespace(number="0", uuid="GPU-0")]

    def choose(wish: Any, what: str, tell: Callable[[str], None]) -> Any:
        if faults:
            raise faults.pop()
        tell("GPU 2 is left alone")
        events.append(f"leased {wish.choice} for {what}")
        return chosen, [LeaseOfTest()]

    def give_back(leases: list[LeaseOfTest]) -> Iterator[str]:
        events.append(f"given back {leases}")
        yield "GPU 1 is still in use"

    monkeypatch.setattr(this_machine, "read", lambda: TWO)
    monkeypatch.setattr(free_gpus, "choose", choose)
    monkeypatch.setattr(free_gpus, "give_back", give_back)
    monkeypatch.setattr("gputui.tui.commands.gpus.time.sleep", lambda seconds: events.append(f"waits {seconds}"))
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield events
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_program_gets_its_gpus_and_its_exit_code_is_returned(leased: list[str], capfd: Printed) -> None:
    script = 'echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"; exit 7'
    assert cli.run(["lease", "2", "--", "/bin/sh", "-c", script]) == 2
    assert capfd.readouterr().err == "GPU 0 is in use\n--wait starts when that has changed\n"
    assert leased == []
    assert cli.run(["lease", "2", "--", "/bin/sh", "-c", script]) == 7
    found = capfd.readouterr()
    assert (found.out, found.err) == (
        "GPU-1,GPU-0 PCI_BUS_ID\n",
        "GPU 2 is left alone\non GPU 1, 0\nGPU 1 is still in use\n",
    )
    assert leased == ["leased free:2 for sh", "given back [lease]"]


def test_a_program_waits_for_its_gpus_and_a_signal_that_ends_it_is_told(leased: list[str], capfd: Printed) -> None:
    code = cli.run(["lease", "--wait", "1@A", "/bin/sh", "-c", "kill -TERM $$"])
    assert code == 128 + signal.SIGTERM
    assert capfd.readouterr().err == (
        "waiting: GPU 0 is in use\nGPU 2 is left alone\non GPU 1, 0\nGPU 1 is still in use\n"
    )
    assert leased == ["waits 5.0", "leased free:1@A for sh", "given back [lease]"]
    assert cli.run(["lease", "3", "true"]) == 2
    assert capfd.readouterr().err == "3 GPUs cannot be leased: this process may use 2 such; gputui gpus lists all\n"


def test_gpus_are_given_back_if_the_program_cannot_be_started(
    leased: list[str], tmp_path: Path, capfd: Printed
) -> None:
    program = tmp_path / "train"
    program.write_bytes(b"\0 no program")
    program.chmod(0o755)
    assert cli.run(["lease", "--wait", "1", str(program)]) == 2
    assert capfd.readouterr().err.splitlines()[2:] == [
        "on GPU 1, 0", "GPU 1 is still in use", f"{program}: Exec format error",
    ]  # fmt: skip
    assert leased[1:] == ["leased free:1 for train", "given back [lease]"]
    program.chmod(0o644)
    assert cli.run(["lease", "1", str(program)]) == 2
    assert capfd.readouterr().err == f"there is no program {program}\n"


@pytest.mark.parametrize("name", ["HUP", "TERM"])
def test_a_signal_for_the_command_is_passed_on_to_the_program(name: str, leased: list[str], capfd: Printed) -> None:
    number = signal.Signals[f"SIG{name}"]
    signal.signal(number, lambda *_: None)
    script = f"trap 'exit 9' {name}; for i in $(seq 500); do kill -{name} $PPID; sleep 0.01; done; exit 3"
    assert cli.run(["lease", "--wait", "1", "--", "/bin/sh", "-c", script]) == 9
    assert capfd.readouterr().err.splitlines()[2:] == ["on GPU 1, 0", "GPU 1 is still in use"]


def test_a_reason_to_wait_is_told_once_until_it_changes(
    leased: list[str], monkeypatch: pytest.MonkeyPatch, capfd: Printed
) -> None:
    reasons = ["one", "one", "other", "other", "one"]

    def choose(*_given: Any, **_named: Any) -> Any:
        if reasons:
            raise NotFree(reasons.pop(0))
        return [SimpleNamespace(number="0", uuid="GPU-0")], [LeaseOfTest()]

    monkeypatch.setattr(free_gpus, "choose", choose)
    assert cli.run(["lease", "--wait", "1", "true"]) == 0
    assert capfd.readouterr().err.splitlines()[:4] == ["waiting: one", "waiting: other", "waiting: one", "on GPU 0"]
    assert leased.count("waits 5.0") == 5


@pytest.mark.usefixtures("leased")
def test_ctrl_c_is_left_to_the_program_which_gets_it_from_the_terminal_too() -> None:
    script = "trap 'exit 9' INT; for i in 1 2 3; do kill -INT $PPID; sleep 0.01; done; exit 3"
    assert cli.run(["lease", "--wait", "1", "--", "/bin/sh", "-c", script]) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_program_has_started_ends_it(
    number: signal.Signals, leased: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = subprocess.Popen

    def starts_late(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        os.kill(os.getpid(), number)
        return popen(*args, **options)

    monkeypatch.setattr("gputui.tui.commands.gpus.subprocess.Popen", starts_late)
    assert cli.run(["lease", "--wait", "1", "sleep", "600"]) == 128 + number
    assert leased[-1] == "given back [lease]"


def test_after_nohup_the_program_ignores_what_the_command_ignores(leased: list[str]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert cli.run(["lease", "--wait", "1", "--", "/bin/sh", "-c", "kill -HUP $PPID $$; exit 5"]) == 5
    assert leased[-1] == "given back [lease]"


# ---- stopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["running", "stopped", "stopped"], "is stopped"),
        (["stopping"] * 99, "is stopping; repeat the command to end it at once"),
        (["ok"] * 9, "done"),
    ],
)
def test_a_run_is_asked_to_stop_and_its_state_is_printed_after_two_seconds_at_most(
    states: list[str], words: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)
    now, asked, left = [100.0], [], list(states)
    monkeypatch.setattr(run_folders, "request_stop", lambda run: asked.append(run))
    monkeypatch.setattr("gputui.tui.commands.runs.time.monotonic", lambda: now[0])
    monkeypatch.setattr("gputui.tui.commands.runs.time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(Run, "state", property(lambda _: left.pop(0)))
    code, out, err = printed(capsys, "stop", run.id)
    assert (code, err, asked) == (0, "", [run])
    assert out == f"{run.name} {words.removeprefix('is ') if words == 'is stopped' else words}\n"
    assert now[0] == pytest.approx({"is stopped": 100.1, "done": 100.0}.get(words, 102.0), abs=0.15)


def test_a_queued_run_is_taken_out_and_one_in_slurm_is_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    no_runner(monkeypatch)
    done: list[str] = []
    monkeypatch.setattr(entry_changes, "wait_for_start", lambda name: done.append(f"wait {name}"))
    run = waiting("one")
    entries.add(run)
    with monkeypatch.context() as patched:
        patched.setattr(entry_changes, "remove", lambda name: done.append(f"remove {name}"))
        assert printed(capsys, "stop", run.id) == (0, f"{run.name} is taken out of the queue\n", "")
    assert done == [f"wait {run.id}", f"remove {run.id}"]
    entry_changes.remove(run.id)
    queued = waiting("two")
    entries.add(queued)
    monkeypatch.setattr(Run, "state", property(lambda _: "running"))
    monkeypatch.setattr(slurm_queue, "stop", lambda name: True)
    told = "is asked to stop by Slurm; repeat the command to end it at once"
    assert printed(capsys, "stop", queued.id) == (0, f"{queued.name} {told}\n", "")
    monkeypatch.setattr(slurm_queue, "stop", lambda name: False)
    monkeypatch.setattr(entry_changes, "end_for_good", lambda name: done.append(f"end {name}"))
    monkeypatch.setattr(run_folders, "request_stop", lambda run: done.append(f"stop {run.id}"))
    monkeypatch.setattr("gputui.tui.commands.runs.time.sleep", lambda seconds: monkeypatch.setattr(
        Run, "state", property(lambda _: "stopped")
    ))  # fmt: skip
    assert printed(capsys, "stop", queued.id)[0] == 0
    assert done[-2:] == [f"end {queued.id}", f"stop {queued.id}"], "the queue does not start it again"


def test_a_measurement_is_stopped_or_taken_out_of_the_queue(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    made = write_proof(home)
    asked: list[str] = []
    monkeypatch.setattr(folder, "request_stop", lambda proof: asked.append(proof.id))
    told = f"{made.id} is stopping; repeat the command to end its trial at once\n"
    assert printed(capsys, "proof", made.id, "--stop") == (0, told, "")
    assert asked == [made.id]
    made.queue_file.parent.mkdir(parents=True)
    made.queue_file.write_text("{}")
    states = ["waiting", "running", "running"]
    monkeypatch.setattr(entry_changes, "wait_for_start", lambda name: asked.append("wait"))
    monkeypatch.setattr(entry_changes, "remove", lambda name: asked.append(f"remove {name}"))
    monkeypatch.setattr(folder.Proof, "state", property(lambda _: states.pop(0)))
    slurm = [True, False]
    monkeypatch.setattr(slurm_queue, "stop", lambda name: slurm.pop(0))
    in_slurm = f"{made.id} is asked to stop by Slurm; repeat the command to end its trial at once\n"
    for out in (f"{made.id} is taken out of the queue\n", in_slurm, told):
        assert printed(capsys, "proof", made.id, "--stop") == (0, out, "")
    assert asked == [made.id, "wait", f"remove {made.id}", "wait", "wait", made.id]


def test_a_stop_waits_until_a_starting_engine_can_be_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)
    sent: list[Any] = []
    faults = [RunError("no process yet"), RunError("no process yet")]

    def request_stop(asked: Run, numbers: Any) -> None:
        sent.append((asked, numbers))
        if faults:
            raise faults.pop()

    states = ["starting", "starting"]
    monkeypatch.setattr(train, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(run_folders, "request_stop", request_stop)
    monkeypatch.setattr(Run, "state", property(lambda _: states.pop(0)))
    train._ask_to_stop(run, (signal.SIGTERM,))
    assert sent == [(run, (signal.SIGTERM,))] * 3
    faults.append(RunError("it has ended"))
    states.append("ok")
    train._ask_to_stop(run, (signal.SIGTERM,))
    assert len(sent) == 4, "it is not asked again"
    monkeypatch.setattr(folder, "request_stop", lambda *_: (_ for _ in ()).throw(ProofError("no process yet")))
    assert proof._ask_to_stop(write_proof(home), (2,)) is False
    monkeypatch.setattr(folder, "request_stop", lambda *_: None)
    assert proof._ask_to_stop(write_proof(home, "p2"), (2,)) is True


def test_a_run_that_is_resumed_if_there_is_any(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    run = recorded.write(home, name="20260921-100000-quickstart", gpus=0, seconds=13)
    resumed: list[Any] = []

    def of_preset(preset: presets.Preset, tell: Callable[[str], None]) -> Run:
        tell(f"a run of {preset.name} is damaged")
        return run

    monkeypatch.setattr(resuming, "of_preset", of_preset)
    damaged = "a run of quickstart is damaged\n"

    def resume(*given: Any) -> int:
        resumed.append(given)
        return 6

    monkeypatch.setattr(train, "_resume", resume)
    monkeypatch.setattr(train, "_when_free", lambda options, wait, presses, start: 1 / 0)
    monkeypatch.setattr(code_files, "check", lambda run, copied: resumed.append(("checked", copied)))
    words = ("--preset", "quickstart", "--resume-if-any")
    assert printed(capsys, *words) == (0, "", f"{damaged}{run.name} has completed: nothing is trained\n")
    monkeypatch.setattr(Run, "state", property(lambda _: "stopped"))
    monkeypatch.setattr(resuming, "why_not", lambda _: "")
    for new_code, checked in ((None, [("checked", False)]), ("copy", [("checked", True)]), ("new", [])):
        given = ["--code", new_code] if new_code else []
        for more, (as_json, detach, wait) in (
            (["--json", "--wait"], (True, False, True)), (["--detach"], (False, True, False)),
        ):  # fmt: skip
            resumed.clear()
            assert printed(capsys, *words, *given, *more) == (6, "", f"{damaged}{run.name} is resumed\n")
            assert resumed == [*checked, (run, as_json, detach, new_code, wait)]
    monkeypatch.setattr(resuming, "why_not", lambda _: "it has no checkpoint")
    code, _, err = printed(capsys, *words)
    assert code == 1
    assert err.startswith(f"{damaged}it has no checkpoint: a new run is started\n")


def test_findings_are_printed_with_the_place_that_set_them(tmp_path: Path, capsys: Printed) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("train:\n  nesterov: true\n  clip_norm: 1\n  clip_value: 1\n")
    code, out, err = printed(capsys, "--preset", str(preset))
    assert (code, out) == (2, "")
    first, more = err.splitlines()[0], err.splitlines()[-1]
    assert first.startswith(f"{preset}:3: train.clip_norm, train.clip_value: Keras accepts only one kind of clipping")
    assert more == "and 1 more conflict(s)"
    code, _, err = printed(capsys, "--preset", "quickstart", "--set", "data=npz:/no.npz")
    assert err == "--set data=npz:/no.npz: workload.data: there is no file /no.npz; give the path of a .npz file\n"
    code, _, err = printed(capsys, "--preset", "quickstart", "--set", "workload.data=npz:/no.npz")
    assert err == "--set workload.data=npz:/no.npz: there is no file /no.npz; give the path of a .npz file\n"


def test_findings_about_a_run_are_shown_before_its_events(home: Path, capsys: Printed) -> None:
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)
    found = [Finding("warning", ("input.shuffle",), "a small buffer", "make it larger")]
    words = "warning: input.shuffle: a small buffer; make it larger\n"
    capsys.readouterr()
    assert isinstance(train._view(run, True, found), train.JsonView)
    assert capsys.readouterr() == ("", words)
    train._view(run, False, found).close()
    assert capsys.readouterr() == (f"{words}run {run.id}\n", "")
    view = train.JsonView(run)
    view.close()
    view.stopping("; again")
    assert capsys.readouterr() == ("", "stopping after this step; again\n")
    assert train._detached(run, found) == 0
    assert capsys.readouterr() == (f"{run.id}\n", words)


def test_of_a_run_that_is_resumed_only_what_comes_now_is_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13, outcome="stopped")
    followed: list[Any] = []
    monkeypatch.setattr(resuming, "preset_to_resume", lambda run: presets.resolve("quickstart"))
    monkeypatch.setattr(train, "Follower", lambda run, **given: followed.append((run, given)))
    monkeypatch.setattr(train, "_when_free", lambda options, wait, presses, start: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train.resume_run(run.id)
    assert followed == [(run, {"from_now": True})]
