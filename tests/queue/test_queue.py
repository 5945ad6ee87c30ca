"""The queue as a user meets it: the commands, with real trainings on the CPU."""

from __future__ import annotations

import functools
import json
import os
import pwd
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.doctor import host_findings
from gputui.engine.queue import adding, entries, entry_changes
from gputui.engine.runs import Run, RunError, titles
from gputui.engine.system import locks
from gputui.tui import cli
from gputui.tui.base.errors import WRONG
from gputui.tui.reading import queue

from tests.support.fakegpu import FakeGpu
from tests.support.front_door import ended, gputui, happened, last_losses, trained, until
from tests.support.idle import idle
from tests.support.queued import Said, entry_file, no_runner, states, waiting

pytest_plugins = ("tests.support.fakegpu.fixture",)

pytestmark = pytest.mark.usefixtures("nothing_left_running")

SHORT = ("--preset", "quickstart", "--set", "epochs=1", "--set", "workload.samples=256")
LEARNING = ("epochs=6", "seed=7", "run.checkpoint=epoch", "workload.samples=2048")


@functools.cache
def losses_left_alone() -> dict[str, float]:
    """The last metrics of a training with the settings LEARNING that nothing interrupts."""
    return dict(trained(*LEARNING).of("epoch")[-1]["metrics"])


def queued(*more: str) -> Run:
    done = gputui(*SHORT, "--queue", *more)
    assert done.returncode == 0, done.stderr
    assert ": place " in done.stderr
    return runs.find(done.stdout.strip())


def runner_pid() -> int:
    until(lambda: locks.held(entries.queue_folder() / entries.RUNNER_LOCK))
    return int(until(lambda: entries.news().get("pid")))


@pytest.fixture(autouse=True)
def runner_ended(home: Path) -> Iterator[None]:
    """After each test the queue is empty, so that its runner ends."""
    yield
    for entry in entries.all_entries():
        with entries.locked():
            entries.discard(entry.run)
    until(lambda: not locks.held(entries.queue_folder() / entries.RUNNER_LOCK))


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_queued_runs_train_one_after_the_other_though_the_runner_is_killed() -> None:
    gputui("queue", "pause")
    first, second = queued(), queued("--after", "latest")
    assert [run.state for run in (first, second)] == ["waiting", "waiting"]
    assert [line["why"] for line in map(json.loads, gputui("queue", "--json").stdout.splitlines())]
    listed = [json.loads(line) for line in gputui("runs", "--json", "--state", "waiting").stdout.splitlines()]
    assert {row["id"] for row in listed} == {first.id, second.id}
    gputui("queue", "start")
    until(lambda: first.state == "running")
    os.kill(runner_pid(), signal.SIGKILL)
    until(lambda: second.state == "ok")  # the engine of the first has started another runner
    until(lambda: not locks.held(entries.queue_folder() / entries.RUNNER_LOCK))
    assert not entries.all_entries()
    assert "The queue is empty" in gputui("queue").stdout


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_a_run_that_gives_way_goes_on_later_to_the_losses_of_one_that_was_left_alone() -> None:
    run = queued(*(word for setting in (*LEARNING, "give_way=true") for word in ("--set", setting)))
    until(lambda: happened(run, "progress"))
    entry_changes.ask_to_yield(run.id)
    until(lambda: run.state == "ok" or len(happened(run, "started")) > 1)
    assert len(list(run.path.glob("result-*.json"))) == 1, "it was too short to give way"
    until(lambda: run.state == "ok")
    assert last_losses(run) == losses_left_alone()


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_a_stopped_run_that_is_queued_waits_and_ends_as_one_that_was_never_stopped() -> None:
    words = [word for setting in LEARNING for word in ("--set", setting)]
    run = runs.find(gputui("--preset", "quickstart", *words, "--detach").stdout.strip())
    until(lambda: happened(run, "epoch"))
    gputui("stop", run.id)
    assert ended(run)["outcome"] == "stopped"
    gputui("queue", "pause")
    done = gputui("resume", run.id, "--queue")
    assert (done.returncode, done.stdout) == (0, f"{run.id}\n"), done.stderr
    assert done.stderr.startswith("r1: place 1 in the queue, needs the CPU: the queue is paused")
    assert (run.state, states()) == ("waiting", {run.id: "waiting"})
    assert gputui("resume", run.id, "--queue").returncode == WRONG
    assert "waits in the queue" in gputui("resume", run.id).stderr
    gputui("queue", "start")
    until(lambda: run.state == "ok")
    first, second = happened(run, "started")
    assert second["t"] > first["t"]
    assert len(happened(run, "epoch")) == 6, "it went on from its checkpoint"
    assert last_losses(run) == losses_left_alone()


def test_the_runner_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has none of the packages that read presets, screens or data, and takes less than 40 MB."""
    gputui("queue", "pause")
    with monkeypatch.context() as patched:
        no_runner(patched)
        for number in range(100):
            entries.add(waiting(f"p{number}"))
    entries.ensure_runner()
    until(lambda: len(entries.news().get("why", ())) == 100)
    pid = runner_pid()
    status = Path(f"/proc/{pid}/status").read_text()
    rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert rss < 40_000
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "pydantic_core" not in maps
    assert "numpy" not in maps
    os.kill(pid, signal.SIGTERM)  # as when the machine is shut down
    until(lambda: not locks.held(entries.queue_folder() / entries.RUNNER_LOCK), 20)
    for runner in entries._runners:  # else its end is reported as a leak at the end of the suite
        if runner.pid == pid:
            runner.wait()


def test_the_commands_say_what_is_done_and_what_to_do(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)

    assert said("queue") == "The queue is empty; gputui --preset NAME --queue puts a run in it.\n"
    one, two = waiting("one"), waiting("two")
    entries.add(one)
    entries.add(two)
    one.file(titles.FILE).write_text(titles.record("one", "/one.yaml", {"train.epochs": (2, 60)}))
    assert f"1      {one.name} (epochs=60)  waiting" in said("queue")
    assert said("queue", "up", "latest") == f"{two.name} is moved up\n"
    assert [entry.run for entry in entries.all_entries()] == [two.id, one.id]
    assert said("queue", "down", "latest") == f"{two.name} is moved down\n"
    assert said("queue", "top", "two") == f"{two.name} is at the top\n"
    assert [entry.run for entry in entries.all_entries()] == [two.id, one.id]
    assert "is held" in said("queue", "hold", "one", "two")
    assert said("queue").count("held by you") == 2
    third = waiting("three")
    assert queue.place_text(entries.add(third)).endswith("needs the CPU: it starts as soon as that is free"), "no wait"
    entry_changes.remove(third.id)
    assert "is not in the queue; gputui queue lists" in said("queue", "up", "three", code=WRONG)
    assert "is not deleted: it is waiting" in said("runs", "rm", one.id, "--yes", code=WRONG)
    takes_it_out = f"it waits in the queue; gputui queue rm {one.name} takes it out\n"
    assert said("resume", one.id, "--queue", code=WRONG) == f"{one.name} cannot be resumed: {takes_it_out}"
    entry_file(two).write_text("nothing")
    assert f"{entry_file(two)} is damaged; gputui queue rm {two.id} removes it" in said("queue")
    assert said("stop", one.id) == f"{one.name} is taken out of the queue\n"
    assert said("queue", "rm", "two") == f"{two.name} is taken out of the queue\n"
    assert one.state == two.state == "stopped"
    left = [run.id for run in runs.all_runs()]
    for setting, why in (("visible=fits:1", "has measured"), ("strategy.kind=multi_worker", "several machines")):
        with pytest.raises(RunError, match=why):
            adding.queue_preset(presets.resolve("quickstart", [setting]))
    assert [run.id for run in runs.all_runs()] == left
    refused = said("--preset", "quickstart", "--set", "kind=multi_worker", "--queue", code=WRONG)
    assert refused == f"--set kind=multi_worker: strategy.kind: {adding.ON_SEVERAL_MACHINES}\n", "of no cluster first"
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert "sbatch --gpus=1 --wrap='gputui --preset quickstart'" in said(
        "--preset", "quickstart", "--queue", code=WRONG
    )


def test_the_unit_of_systemd_starts_the_runner_of_this_home(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))  # without systemctl
    file = tmp_path / "config/systemd/user/gputui-queue.service"
    assert cli.run(("queue", "service")) == 0
    unit = capsys.readouterr().out
    assert f'Environment="GPUTUI_HOME={home}"\n' in unit
    assert f'ExecStart="{sys.executable}" -P -m gputui.engine.queue\nKillMode=process\nRestart=on-failure\n' in unit
    assert cli.run(("queue", "service", "--install")) == 0
    assert f"{file} is written; now run: systemctl --user daemon-reload" in capsys.readouterr().out
    assert file.read_text() == unit
    assert cli.run(("queue", "service", "--remove")) == 0
    assert not file.exists()


def test_doctor_warns_if_the_machine_ends_processes_at_logout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_findings, "LOGIND", tmp_path)
    monkeypatch.setattr(host_findings, "LINGER", tmp_path / "linger")
    assert "logout" not in [each.about for each in host_findings.findings()]
    (tmp_path / "logind.conf").write_text("[Login]\n#KillUserProcesses=no\nKillUserProcesses=yes\n")
    assert "enable-linger" in str(next(each for each in host_findings.findings() if "logout" in str(each)))
    (tmp_path / "linger").mkdir()
    (tmp_path / "linger" / pwd.getpwuid(os.geteuid()).pw_name).touch()
    assert not [each for each in host_findings.findings() if "KillUserProcesses" in str(each)]


@pytest.mark.slow
def test_three_queued_runs_share_two_gpus(fakegpu: FakeGpu, tmp_path: Path) -> None:
    box = {**os.environ, **fakegpu.environment(tmp_path / "box", gpus=2), "GPUTUI_IDLE_SECONDS": "1"}
    long = ("--preset", idle(tmp_path), "--set", "visible=free:1", "--queue")
    made = [runs.find(gputui(*long, env=box).stdout.strip()) for _ in range(3)]
    until(lambda: [run.state for run in made] == ["running", "running", "waiting"])
    chosen = [json.loads(run.file("options.json").read_text())["device"]["visible"] for run in made]
    assert sorted(chosen[:2]) == [["GPU-0000-0"], ["GPU-0000-1"]]
    until(lambda: f"{made[0].name} trains on it" in entries.news()["why"].get(made[2].id, ""))
    gputui("stop", made[0].id, env=box)
    until(lambda: made[2].state == "running")
    assert json.loads(made[2].file("options.json").read_text())["device"]["visible"] == chosen[0]
    assert "visible: free:1" in made[2].file("preset.yaml").read_text()
    gputui("stop", made[1].id, env=box)
    until(lambda: gputui("stop", made[2].id, env=box).returncode == 0)
    until(lambda: not entries.all_entries())
    assert [run.state for run in made] == ["stopped"] * 3


def test_a_run_that_has_trained_is_put_back_with_all_its_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose engine was lost waits for another start; it has readings but no result."""
    no_runner(monkeypatch)
    run, new = waiting("lost"), waiting("new")
    run.file("telemetry.jsonl").write_text('{"t":1.0,"type":"host","run":"lost"}\n')
    for each in (run, new):
        entries.add(each)
        taken = entry_changes.remove(each.id)
        assert taken is not None
        assert each.result is not None
        taken.put_back()
        assert each.result is None
    assert run.file("telemetry.jsonl").read_text() == '{"t":1.0,"type":"host","run":"lost"}\n'
    assert not new.file("telemetry.jsonl").exists()
