"""What the commands of the queue print, to the letter, and what they do with several runs."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from os import terminal_size
from typing import Any

import pytest
from gputui.engine.files.places import runs_folder
from gputui.engine.job.machine_gpus import Machine
from gputui.engine.process import resuming
from gputui.engine.queue import adding, entries, entry_changes, queue_settings
from gputui.engine.runs import Run, RunError, titles
from gputui.engine.runs.launched_with import options_of
from gputui.engine.units import since
from gputui.tui import cli
from gputui.tui.base.errors import WRONG, OutputFault
from gputui.tui.commands import queue as queue_command
from gputui.tui.reading import queue, queue_times

from tests.support.queued import Said, no_runner, waiting

BEGAN = 1_790_000_000.0  # 19:43 in India


def starts(listed: Any, _news: Any) -> dict[str, float | None]:
    """The first of the waiting runs begins in 90 s, the next 10 minutes later. Of the last it is not known."""
    waits = [entry.run for entry in listed if entry.state in entries.WAITS]
    return {name: None if name == waits[-1] else 90.0 + 600 * number for number, name in enumerate(waits)}


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Run]]:
    """Queued runs, the second of which is held, while the third runs."""
    no_runner(monkeypatch)
    monkeypatch.setattr(queue, "gpus", lambda: 2)
    monkeypatch.setattr(queue_times, "starts_in", starts)
    monkeypatch.setattr("gputui.tui.commands.queue.since", partial(since, now=BEGAN + 60))
    made = [waiting(name, visible="free:2" if name == "two" else "free:1") for name in ("one", "two", "three", "four")]
    for number, run in enumerate(made):
        entry = replace(entries.add(run), queued_at=BEGAN + number, group="cnn")
        entries.write(replace(entry, state="running", started_at=BEGAN, tries=1) if number == 2 else entry)
        run.file(titles.FILE).write_text(titles.record(run.name, "/x.yaml", {"train.epochs": (2, 10**number)}))
    entry_changes.hold(made[1].id)
    entries.write_news({"why": {made[3].id: "all GPUs are in use"}})
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "IST-5:30")
        time.tzset()
        yield made
    time.tzset()


def named(text: str, made: list[Run]) -> str:
    for run in made:
        text = text.replace(run.name, f"run-{run.id[16:]}")
    return text


LISTED = """\
place  run                     state    needs           when            why
       run-three (epochs=100)  running  a GPU           since 19:43
1      run-one (epochs=1)      waiting  a GPU           in about 1:30   the runner has not looked at it yet
2      run-two (epochs=10)     held     2 GPUs                           held by you
3      run-four (epochs=1000)  waiting  a GPU           unknown         all GPUs are in use
"""


def test_the_list_has_what_has_begun_first_and_then_the_order_of_the_queue(
    four: list[Run], said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = said("queue")
    rows = [" ".join(line.split()) for line in named(text, four).splitlines()]
    assert rows == [" ".join(line.split()) for line in LISTED.splitlines()]
    starts_of_cells = [text.splitlines()[0].index(head) for head in ("run", "state", "needs", "when", "why")]
    for line in text.splitlines()[1:]:
        assert all(line[at - 2 : at] == "  " for at in starts_of_cells if at < len(line)), line
    widest = max(map(len, text.splitlines()))
    with monkeypatch.context() as patched:  # pytest asks for the size, too
        patched.setattr(sys.stdout, "isatty", lambda: True)
        for width, is_whole in ((widest, True), (widest - 1, False)):
            patched.setattr(shutil, "get_terminal_size", lambda width=width: terminal_size((width, 24)))
            assert (said("queue") == text) is is_whole
        folded = said("queue").splitlines()
    reasons = ("the runner has not looked at it yet", "held by you", "all GPUs are in use")
    assert [line for line in folded if line.startswith(" " * 7) and "epochs" not in line] == [
        f"{' ' * 7}{reason}" for reason in reasons
    ]
    assert len(folded) == 8
    entry_changes.pause()
    lines = named(said("queue"), four).splitlines()
    assert lines[0] == "The queue is paused: no run is started. gputui queue start goes on."
    assert "in about" not in "".join(lines)
    assert "unknown" not in "".join(lines)


def test_programs_get_all_of_it(four: list[Run], said: Said) -> None:
    rows = [json.loads(line) for line in said("queue", "--json").splitlines()]
    one, two, three, four_ = four
    assert [(row["run"], row["place"], row["state"]) for row in rows] == [
        (three.id, None, "running"), (one.id, 1, "waiting"), (two.id, 2, "held"), (four_.id, 3, "waiting"),
    ]  # fmt: skip
    assert rows[0] == {
        "place": None, "run": three.id, "name": three.name, "kind": "run", "state": "running",
        "needs": rows[1]["needs"], "when": "since 19:43", "starts_in_seconds": None, "why": "", "group": "cnn",
        "after": None, "tries": 1, "slurm_job": None, "queued_t": BEGAN + 2, "started_t": BEGAN,
    }  # fmt: skip
    assert rows[1] == rows[0] | {
        "place": 1, "run": one.id, "name": one.name, "state": "waiting", "when": "in about 1:30",
        "starts_in_seconds": 90.0, "why": "the runner has not looked at it yet", "tries": 0, "queued_t": BEGAN,
        "started_t": None,
    }  # fmt: skip


def test_a_run_that_is_being_started_has_begun_and_all_that_is_damaged_is_named(
    four: list[Run], said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, three, four_ = four
    entry = entries.read(three.id)
    assert entry is not None
    entries.write(replace(entry, state="starting"))
    assert " ".join(named(said("queue"), four).splitlines()[1].split()) == (
        "run-three (epochs=100) starting a GPU since 19:43"
    )
    queue_settings.path().parent.mkdir(parents=True, exist_ok=True)
    queue_settings.path().write_text("most: many\nhours: 25-3\n")
    entries.file_of(four_.id).write_text("{")
    assert cli.run(["queue"]) == 0
    damaged, *faults = capsys.readouterr().err.splitlines()
    assert damaged == f"{entries.file_of(four_.id)} is damaged; gputui queue rm {four_.id} removes it"
    assert faults == list(queue_settings.read().faults)
    assert len(faults) == 2


def order() -> list[str]:
    return [entry.run[16:] for entry in entries.all_entries()]


def test_several_runs_that_are_moved_keep_their_order(four: list[Run], said: Said) -> None:
    for words, expected, lines in (
        (("top", "two", "four"), ["two", "four", "one", "three"], ["is at the top"] * 2),
        (("up", "two", "one"), ["two", "one", "four", "three"], ["is the first already", "is moved up"]),
        (("down", "four"), ["two", "one", "four", "three"], ["is the last already"]),
        (("down", "two", "one"), ["four", "two", "one", "three"], ["is moved down"] * 2),
        (("release", "two"), ["four", "two", "one", "three"], ["is released"]),
        (("hold", "two", "two"), ["four", "two", "one", "three"],
         ["is held; gputui queue release lets it be started"]),
        (("release", "one", "two"), ["four", "two", "one", "three"], ["was not held", "is released"]),
        (("rm", "one", "two"), ["four", "three"], ["is taken out of the queue"] * 2),
    ):  # fmt: skip
        out = said("queue", *words).splitlines()
        assert [line.partition(" ")[2] for line in out] == lines
        assert {line.partition(" ")[0] for line in out} <= {run.name for run in four}, "by their short names"
        assert [name for name in order() if name != "three"] == [name for name in expected if name != "three"], words


def test_of_several_runs_those_are_named_that_were_changed_before_one_was_refused(four: list[Run], said: Said) -> None:
    one, two, three, _ = four
    assert said("queue", "rm", "one", "three", "two", code=WRONG).splitlines() == [
        f"{one.name} is taken out of the queue", f"{three.name} has begun; gputui stop {three.name} stops it",
    ]  # fmt: skip
    assert (entries.read(one.id) is None, entries.read(two.id) is None) == (True, False)


def test_a_name_must_mean_one_queued_run(four: list[Run], said: Said) -> None:
    one, two, *_ = four
    ids = ", ".join(sorted(run.id for run in four)[:3])
    part = one.id[:5]
    assert said("queue", "up", part, code=WRONG) == f"{part!r} matches 4 queued runs ({ids}); give more of the id\n"
    assert said("queue", "up", "nobody", code=WRONG) == "nobody is not in the queue; gputui queue lists what is\n"
    folder = entries.queue_folder()
    (folder / ".draft-of-one.json").write_text((folder / f"{one.id}.json").read_text())
    assert said("queue", "up", "draft", code=WRONG) == "draft is not in the queue; gputui queue lists what is\n"
    (folder / f"{one.id}-2.json").write_text((folder / f"{one.id}.json").read_text())
    assert said("queue", "up", one.id) == f"{one.name} is the first already\n", "a whole id that is in another"
    (folder / f"{one.id}-2.json").unlink()
    said("queue", "top", four[3].id)
    assert said("queue", "hold", "latest") == f"{four[3].name} is held; gputui queue release lets it be started\n"
    assert said("queue", "rm", two.name) == f"{two.name} is taken out of the queue\n"
    said("runs", "rm", two.id, "--yes")
    if two.name != two.id:
        assert said("queue", "up", two.name, code=WRONG) == (
            f"{two.name} has been deleted; gputui queue lists what is in the queue\n"
        )


def test_a_run_that_waits_is_not_deleted_but_taken_out_first(four: list[Run], said: Said) -> None:
    one = four[0]
    out = f"{one.name} is not deleted: it is waiting; gputui stop {one.name} takes it out of the queue\n"
    assert said("runs", "rm", one.id, "--yes", code=WRONG) == out
    assert said("stop", one.id) == f"{one.name} is taken out of the queue\n"
    assert said("runs", "rm", one.id, "--yes").startswith("deleted 1 run: ")
    assert not one.path.exists()


def test_a_pause_and_its_end(four: list[Run], said: Said) -> None:
    paused = "The queue is paused: no run is started. gputui queue start goes on.\n"
    assert said("queue", "pause") == paused
    assert entries.is_paused()
    assert said("queue", "start") == "The queue starts runs.\n"
    assert not entries.is_paused()
    for entry in entries.all_entries():
        entries.discard(entry.run)
    empty = "The queue is empty; gputui --preset NAME --queue puts a run in it.\n"
    assert said("queue", "pause") == paused
    assert said("queue") == paused + empty
    assert said("queue", "start") == "The pause has ended. " + empty
    assert said("queue") == empty
    assert said("queue", "--json") == ""


def test_what_is_found_about_a_queued_run_is_said(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    monkeypatch.setattr(adding, "machine", lambda: Machine((), "no NVIDIA driver", 8, 2**34))
    name, *lines = said("--preset", "quickstart", "--queue", "--set", "memory_limit_mb=64").splitlines()
    entry = entries.read(name)
    assert entry is not None
    assert lines == [
        "note: device.memory_limit_mb: does nothing without a GPU; training continues without it",
        f"{entry.name}: place 1 in the queue, needs the CPU: it starts as soon as that is free",
    ]
    assert options_of(Run(runs_folder() / name))["device.memory_limit_mb"] == 64
    wrong = said("--preset", "quickstart", "--queue", "--set", "optimizer=adam", "--set", "momentum=0.9", code=WRONG)
    assert wrong.startswith("--set momentum=0.9: train.momentum, train.optimizer: adam takes no momentum; ")
    assert len(entries.all_entries()) == 1


def test_a_run_whose_id_cannot_be_printed_is_named_as_queued(
    four: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_given: Any, **_named: Any) -> None:
        raise OutputFault(OSError(28, "No space left on device"))

    one = four[0]
    monkeypatch.setattr(adding, "queue_resume", lambda *_: entries.read(one.id))
    monkeypatch.setattr(queue_command, "print", full, raising=False)
    with pytest.raises(OutputFault):
        queue_command.add_resumed("one", None, None)
    assert capsys.readouterr().err == f"{one.name} is in the queue; take it out with: gputui queue rm {one.name}\n"


def test_a_run_is_queued_after_another_by_any_of_its_names(
    four: list[Run], said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "machine", lambda: Machine((), "no NVIDIA driver", 8, 2**34))
    one = four[0]
    for name in {one.name, one.id, "one"}:
        made = entries.read(said("--preset", "quickstart", "--queue", "--after", name).splitlines()[0])
        assert made is not None
        assert made.after == one.id, name
    before = sorted(runs_folder().iterdir())
    assert "no run called" in said("--preset", "quickstart", "--queue", "--after", "nobody", code=WRONG)
    assert sorted(runs_folder().iterdir()) == before, "no run is made"


def test_a_resumed_run_is_queued_with_its_code_and_after_another(
    four: list[Run], said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None, str]] = []
    one, two, *_ = four

    def queue_resume(run: Run, after: str | None, code: str) -> entries.Entry:
        asked.append((run.id, after, code))
        entry = entries.read(two.id)
        assert entry is not None
        return entry

    monkeypatch.setattr(adding, "queue_resume", queue_resume)
    monkeypatch.setattr(resuming, "latest", lambda: two)
    place = f"{two.name}: " if two.name != two.id else ""
    for words, run, after, code in (
        (("one",), one, None, ""), (("--latest", "--code", "new"), two, None, "new"),
        (("one", "--code", "copy", "--after", "two"), one, two.id, "copy"),
    ):  # fmt: skip
        assert said("resume", *words, "--queue").startswith(f"{two.id}\n{place}"), words
        assert asked.pop() == (run.id, after, code)


def test_a_runner_that_cannot_be_started_does_not_hinder_a_command(
    four: list[Run], said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fault, words in ((OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
                         (RunError("it is damaged"), "it is damaged")):  # fmt: skip

        def fails(fault: Exception = fault) -> None:
            raise fault

        monkeypatch.setattr(entries, "ensure_runner", fails)
        assert cli.run(["options", "batch_size"]) == 0
        assert said("queue", "pause").endswith(f"the queue: {words}\n")
