"""What is put in the queue: whole entries, what is refused without a trace, and how long each is expected to take."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.options import options_json
from gputui.engine.process import resuming
from gputui.engine.proof import folder, request
from gputui.engine.queue import adding, entries, jobs, slurm_queue, user_service
from gputui.engine.queue.durations import Durations
from gputui.engine.queue.entries import Entry
from gputui.engine.queue.jobs import End
from gputui.engine.runs import Run, RunError, code_files, titles
from gputui.engine.runs.run_cluster import Cluster
from gputui.engine.system import locks

from tests.support.queued import no_runner, waiting


def put(entry: Entry) -> Entry:
    """The entry as it is in its file, without its time."""
    kept = entries.read(entry.run)
    assert kept == replace(entry, devices=list(entry.devices), among=list(entry.among))
    return replace(kept, queued_at=0.0, devices=(), among=())


def test_a_preset_a_trial_and_an_ended_run_are_put_at_the_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    checked: list[tuple[str, bool]] = []
    monkeypatch.setattr(code_files, "check", lambda run, copy: checked.append((run.id, copy)))
    monkeypatch.setattr(resuming, "why_not", lambda _run: "")
    settings = ["visible=free:2", "run.tries=3", "run.give_way=on"]
    before = time.time()
    first = adding.queue_preset(presets.resolve("quickstart", settings), "before")
    assert before <= first.queued_at <= time.time()
    whole = Entry(
        first.run, 1.0, most_tries=3, group="quickstart", after="before", needs="free:2", gives_way=True
    )  # fmt: skip
    assert put(first) == whole
    run = Run(home / "runs" / first.run)
    assert run.file(options_json.FILE).exists()
    with entries.locked():
        entries.discard(first.run)
    assert put(adding.queue_trial(run)) == replace(whole, after=None, group=run.id, code="copy")
    for code in ("", "copy", "new"):
        with entries.locked():
            entries.discard(first.run)
        assert put(adding.queue_resume(run, "other", code)) == replace(whole, after="other", code=code)
    assert checked == [(run.id, False), (run.id, True)], "the new code need not be the old one"
    with pytest.raises(RunError, match=f"{run.name} is in the queue already"):
        adding.queue_resume(run)
    assert put(entries.add(waiting(visible="none"))).place == 2.0


def test_a_measurement_is_put_with_what_its_trials_need(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    asked = request.of_change("quickstart", ["steps_per_execution=4"])
    first = adding.queue_proof(asked, "before")
    whole = Entry(
        first.run, 1.0, kind="proof", what="ab", group="quickstart", needs="all", after="before"
    )  # fmt: skip
    assert put(first) == replace(whole, needs=first.needs)
    assert first.needs == entries.needs_of(asked.baseline().options.device.visible)
    proof = folder.find(first.run)
    assert json.loads((proof.path / "proof.json").read_text())["doing"] == "waiting in the queue"
    written = (proof.path / "request.json").stat().st_mtime_ns
    for resumed, same in ((asked, True), (replace(asked, limit_seconds=99.0), False)):
        with entries.locked():
            entries.discard(first.run)
        jobs.job_of(first.run).close("stopped")
        assert put(adding.queue_resumed_proof(proof, resumed)) == replace(whole, needs=first.needs, after=None)
        assert folder.find(first.run).request == resumed
        assert ((proof.path / "request.json").stat().st_mtime_ns == written) is same


def test_what_cannot_be_queued_leaves_no_folder_and_changes_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    preset, asked = presets.resolve("quickstart"), request.of_change("quickstart", ["steps_per_execution=4"])
    joined = runs.create("w", "schema: 1\n", cluster=Cluster(("a:1", "b:1"), 0, "TF_CONFIG"))
    ended = waiting()

    def fails(*_: object) -> None:
        raise RunError("no locks")

    with monkeypatch.context() as patched:
        patched.setattr(entries, "append", fails)
        fresh: tuple[Callable[[], Entry], ...] = (
            lambda: adding.queue_preset(preset), lambda: adding.queue_proof(asked), lambda: adding.queue_trial(ended)
        )  # fmt: skip
        for queue in fresh:
            with pytest.raises(RunError, match="no locks"):
                queue()
    with pytest.raises(RunError) as refusal:
        adding.queue_resume(joined)
    assert str(refusal.value) == (
        f"{joined.name} trains on several machines, and cannot wait in the queue of one of them"
    )
    with monkeypatch.context() as patched:
        patched.setattr(resuming, "why_not", lambda _run: "it is done")
        with pytest.raises(RunError, match="it is done"):
            adding.queue_resume(ended)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    proposed: tuple[tuple[Callable[[], Entry], str], ...] = (
        (lambda: adding.queue_preset(preset), f"gputui --preset {preset.file}"),
        (lambda: adding.queue_trial(ended), "gputui sweep ..."),
        (lambda: adding.queue_resume(ended), f"gputui resume {ended.name}"),
        (lambda: adding.queue_proof(asked), asked.command),
    )
    for queue, command in proposed:
        with pytest.raises(RunError) as refusal:
            queue()
        assert str(refusal.value) == (
            "--queue is not for Slurm job 17: the queue's runner would end with the job\n"
            f"let Slurm queue it: sbatch --gpus=1 --wrap={command!r}"
        )
    assert [run.id for run in runs.all_runs()] == [ended.id, joined.id]
    assert not entries.all_entries()
    assert not list((home / "proofs").glob("2*"))


def test_where_slurm_starts_the_runs_each_entry_goes_to_slurm(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Entry] = []
    monkeypatch.setattr(slurm_queue, "is_used", lambda: True)

    def submit(entry: Entry) -> Entry:
        given.append(entry)
        return replace(entry, slurm_job="7")

    monkeypatch.setattr(slurm_queue, "submit", submit)
    run = waiting(visible="free:1")
    assert adding.queue_trial(run).slurm_job == "7"
    assert given == [Entry(run.id, 0.0, group=run.id, code="copy", needs="free:1")]
    assert adding.machine() == slurm_queue.unknown_machine()


# ---- how a job has ended -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "end"),
    [
        ({"outcome": "ok"}, End("ok", "", "done", 7.0)),
        ({"outcome": "stopped"}, End("stopped", "", "stopped", 7.0)),
        ({"outcome": "error", "error": {"kind": "nan", "message": "no number", "hint": ""}},
         End("error", "nan", "no number", 7.0)),
        ({"outcome": "oom", "error": {"kind": "oom", "message": "", "hint": ""}}, End("oom", "oom", "oom", 7.0)),
        ({"outcome": "error"}, End("error", "", "failed", 7.0)),
    ],
)  # fmt: skip
def test_a_run_has_ended_as_its_result_says(result: dict[str, Any], end: End) -> None:
    run = waiting()
    run.file("result.json").write_text(json.dumps(result))
    os.utime(run.file("result.json"), (7.0, 7.0))
    assert jobs.job_of(run.id).end_of() == end


def test_a_job_has_begun_if_it_holds_its_lock_or_has_written_a_file_since_its_start(home: Path) -> None:
    run, proof = waiting(), home / "proofs" / "one"
    proof.mkdir(parents=True)
    for job, files, lock in (
        (jobs.job_of(run.id), ("status.json", "result.json"), "engine.lock"),
        (jobs.job_of("one", "proof"), ("proof.json",), locks.PROOF_LOCK),
    ):
        assert not job.has_begun(0.5)
        for name in files:
            (job.path / name).write_text("{}")
            os.utime(job.path / name, (50.0, 50.0))
            assert [job.has_begun(at) for at in (49.0, 50.0, 50.5)] == [True, True, False], name
            (job.path / name).unlink()
        for name in {"status.json", "result.json", "proof.json", "request.json"}.difference(files):
            (job.path / name).write_text("{}")
            assert not job.has_begun(0.5), name
        with locks.take(job.path / lock):
            assert job.has_begun(1e12)


@pytest.mark.parametrize(
    ("state", "left"),
    [("waiting", "waiting"), ("held", "waiting"), ("starting", "starting"), ("running", ""), (None, "")],
)
def test_what_waits_in_the_queue_has_not_ended(state: entries.State | None, left: str) -> None:
    run = waiting()
    os.utime(run.file("preset.yaml"), (5.0, 5.0))
    if state:
        with entries.locked():
            entries.write(Entry(run.id, 1.0, state=state))
    run.file("result.json").write_text('{"outcome": "stopped"}')
    assert jobs.state_if_not_ended(run.id) == left
    assert jobs.state_if_not_ended("20260101-000000-gone") == ""


# ---- how long it is expected to take -------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "counts"),
    [
        ("device.visible", False), ("train.seed", False), ("train.learning_rate", False), ("run.give_way", False),
        ("run.tries", False), ("run.code", False), ("run.on_oom", False), ("train.epochs", True),
        ("input.batch_size", True), ("run.per_gpu", True), ("precision.policy", True),
    ],
)  # fmt: skip
def test_a_run_takes_as_long_as_those_with_the_same_options_that_matter(key: str, counts: bool) -> None:
    def made(preset: str, value: int, seconds: float | None = None, outcome: str = "ok") -> Run:
        run = waiting()
        run.file(titles.FILE).write_text(titles.record(preset, "", {key: (0, value), "train.epochs": (1, 9)}))
        if seconds is not None:
            run.file("result.json").write_text(json.dumps({"outcome": outcome, "seconds": seconds}))
        return run

    earlier = [
        made("a", 1, 10.0), made("a", 2, 30.0), made("b", 1, 500.0), made("a", 1, 700.0, "stopped"), made("a", 1)
    ]  # fmt: skip
    expected = Durations(earlier)
    wanted = 10.0 if counts and key != "train.epochs" else 20.0
    assert expected.expected_seconds(made("a", 1)) == wanted
    assert expected.expected_seconds(made("c", 1)) is None
    assert Durations([]).expected_seconds(made("a", 1)) is None


def test_a_run_without_a_record_of_its_origin_is_compared_by_its_name() -> None:
    done = waiting("mine")
    done.file("result.json").write_text('{"outcome": "ok", "seconds": 4}')
    assert Durations([done]).expected_seconds(waiting("mine")) == 4
    assert Durations([done]).expected_seconds(waiting("other")) is None


# ---- systemd -------------------------------------------------------------------------------------


def test_the_unit_is_written_as_systemd_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_service.sys, "executable", "/opt/a b$/python")  # type: ignore[attr-defined]
    monkeypatch.setenv("GPUTUI_HOME", "/data/100%$")  # only in a command it is doubled
    monkeypatch.setenv("XDG_CONFIG_HOME", "/mine")  # else the runner has other settings and leases than the commands
    monkeypatch.setenv("GPUTUI_LEASES", "/shared")
    assert user_service.text().split("\n") == [
        "[Unit]", "Description=gputui: starts the runs that wait in the queue", "",
        "[Service]", 'Environment="GPUTUI_HOME=/data/100%%$"', 'Environment="XDG_CONFIG_HOME=/mine"',
        'Environment="GPUTUI_LEASES=/shared"', 'ExecStart="/opt/a b$$/python" -P -m gputui.engine.queue',
        "KillMode=process", "Restart=on-failure", "RestartSec=5", "",
        "[Install]", "WantedBy=default.target", "",
    ]  # fmt: skip
    unit = Path("systemd/user/gputui-queue.service")
    for given, folder_of in ((" ", Path.home() / ".config"), ("/etc/mine ", Path("/etc/mine"))):
        monkeypatch.setenv("XDG_CONFIG_HOME", given)
        assert user_service.path() == folder_of / unit
