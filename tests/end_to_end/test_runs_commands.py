"""The commands about runs that were made: the list, deleting, the log, notes and tags; and what two viewers write."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import pytest

from tests.doors.engine import RESUMED, Run, RunError, all_runs, folder, locks, titles, writing
from tests.doors.engine import titles_record as record
from tests.doors.tui import INTERRUPTED, WRONG, RunList, logs, matching
from tests.doors.tui import tui_cli as cli
from tests.support import recorded
from tests.support.recorded_proof import write_proof

CHANGES = {f"train.{name}": (None, "a-rather-long-value") for name in ("one", "two", "three", "four", "five")}


@pytest.fixture
def three(home: Path) -> list[Run]:
    """The oldest first: a finished, a stopped and a running one."""
    made = []
    for number, (name, outcome, pid) in enumerate((("cnn", "ok", None), ("vit", "stopped", None), ("mlp", None, 1))):
        run = recorded.write(
            home,
            name=f"20260921-1{number}0000-{name}",
            gpus=0,
            seconds=30,
            outcome=outcome,
            engine_pid=os.getpid() if pid else None,
        )
        run.file("origin.json").write_text(record(name, f"/x/{name}.yaml", CHANGES))
        os.utime(run.file("preset.yaml"), (recorded.BEGAN + 3600 * number,) * 2)
        made.append(run)
    return made


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    """What a command prints on stdout and on stderr."""
    capsys.readouterr()
    assert cli.run(words) == code, capsys.readouterr()
    found = capsys.readouterr()
    return found.out, found.err


def test_the_list_is_filtered_and_tells_programs_all(three: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("note", "tag"):
        none = "no note" if command == "note" else "no tags"
        assert said(capsys, command, "vit")[0] == f"{three[1].name} has {none}\n"
    assert said(capsys, "tag", "vit", "#best", "paper")[0] == "#best #paper\n"
    assert said(capsys, "tag", "vit")[0] == "#best #paper\n"
    assert said(capsys, "tag", "cnn", "best")[0] == "#best\n"
    said(capsys, "note", "vit", "after", "the fix")
    assert said(capsys, "note", "vit")[0] == "after the fix\n"
    cases = {
        ("--tag", "best"): ["vit", "cnn"], ("--tag", "best", "--tag", "paper"): ["vit"], ("--state", "done"): ["cnn"],
        ("--state", "ok"): ["cnn"],
        ("--state", "running", "--state", "stopped"): ["mlp", "vit"], ("--last", "2"): ["mlp", "vit"],
        ("--tag", "best", "--last", "1"): ["vit"], ("--tag", "none"): [], ("--tag", "#best"): ["vit", "cnn"],
    }  # fmt: skip
    for words, expected in cases.items():
        found = [json.loads(line) for line in said(capsys, "runs", "--json", *words)[0].splitlines()]
        assert [one["id"][16:] for one in found] == expected, words
    told = json.loads(said(capsys, "runs", "--json", "--tag", "paper")[0])
    run = three[1]
    assert told.pop("bytes") == writing.used_bytes(run.path)
    assert told == {
        "id": run.id, "name": run.name, "state": "stopped", "host": None, "path": str(run.path),
        "title": titles.title_of(run).whole, "note": "after the fix", "tags": ["best", "paper"], "workers": [],
        "sweep": None, "progress": None, "result": run.result,
    }  # fmt: skip
    assert len(told["title"]) > titles.LONGEST
    running = json.loads(said(capsys, "runs", "--json", "--last", "1")[0])
    assert running["progress"]["samples_per_second"] > 0
    assert (running["state"], running["result"]) == ("running", {})
    assert said(capsys, "tag", "vit", "-d", "#paper")[0] == "#best\n"
    assert titles.retag(three[1], add=["new", "#old"], remove=["old"]).tags == ("best", "new")
    assert titles.retag(three[1], remove=["new"]).tags == ("best",)
    said(capsys, "note", "vit", "")
    assert titles.read_notes(three[1]) == titles.Notes("", ("best",))
    assert "cannot be a tag" in said(capsys, "tag", "vit", "a,b", code=WRONG)[1]
    assert "'a,b' and 'd e' cannot be tags" in said(capsys, "tag", "vit", "c", "a,b", "d e", code=WRONG)[1]
    assert "has no tag nosuch;" in said(capsys, "tag", "vit", "-d", "best", "nosuch", code=WRONG)[1]
    assert json.loads(said(capsys, "runs", "--json", "--state", "done")[0])["state"] == "done", "as in the filter"
    assert said(capsys, "stop", "cnn", "vit", code=WRONG)[1].splitlines() == [
        f"{run.name} is not running (it is {state})" for run, state in ((three[0], "done"), (three[1], "stopped"))
    ]
    assert f"{three[0].id}); give more of the id" in said(capsys, "note", three[0].id[:4], code=WRONG)[1]
    assert said(capsys, "runs", "--tag", "none") == ("No run matches; gputui runs without filters lists all.\n", "")
    assert "'a,b' cannot be a tag: " in said(capsys, "runs", "--tag", "a,b", code=WRONG)[1]


def test_runs_are_deleted_and_a_running_one_is_not(three: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    cnn, vit, mlp = three
    for words, why in (
        (("latest", "--yes"), "give --latest"), ((), "name the runs"), (("cnn",), "give --yes"),
        (("cnn", "nobody", "--yes"), "no run called"), (("--latest", "--yes"), "it is running"),
    ):  # fmt: skip
        assert why in said(capsys, "runs", "rm", *words, code=WRONG)[1], words
    assert len(all_runs()) == 3
    assert json.loads(said(capsys, "runs", "--json", "--state", "done")[0].splitlines()[0])["bytes"] > 0
    out, err = said(capsys, "runs", "rm", "cnn", "cnn", "mlp", "--yes", code=WRONG)
    assert re.fullmatch(r"deleted 1 run: \d+(\.\d)? KiB are free\n", out)
    assert f"{mlp.name} is not deleted: it is running" in err
    assert not cnn.path.exists()
    assert said(capsys, "runs", "rm", vit.id, "--yes")[0].startswith("deleted 1 run: ")
    assert all_runs() == [mlp]
    assert [path.name for path in mlp.path.parent.iterdir()] == [mlp.id], "nothing stays in the trash"


def test_proofs_are_deleted_with_their_trials_and_a_running_one_is_not(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, other, busy = (write_proof(home, name) for name in ("20260921-1", "20260921-2", "20260921-3"))
    trial = done.path / "trials" / "01-before"
    trial.mkdir(parents=True)
    (trial / "events.jsonl").write_bytes(b"x" * 100_000)
    listed = {one["id"]: one["bytes"] for one in map(json.loads, said(capsys, "proof", "--json")[0].splitlines())}
    assert listed[done.id] - listed[other.id] >= 100_000
    for words, why in (
        ((), "name the proofs"), (("latest", "--yes"), "latest may be another"), ((done.id,), "give --yes"),
        ((done.id, "nobody", "--yes"), "no proof called"), ((done.id, "--stop"), "only with --yes"),
    ):  # fmt: skip
        assert why in said(capsys, "proof", "rm", *words, code=WRONG)[1], words
    assert "--yes goes only with rm" in said(capsys, "proof", done.id, "--yes", code=WRONG)[1]
    assert "one proof at a time" in said(capsys, "proof", done.id, other.id, code=WRONG)[1]
    with locks.take(busy.path / locks.PROOF_LOCK):
        out, err = said(capsys, "proof", "rm", done.id, busy.id, "--yes", code=WRONG)
    assert re.fullmatch(r"deleted 1 proof: \d+(\.\d)? KiB are free\n", out)  # a file system may settle sizes later
    assert f"{busy.id} cannot be deleted: " in err
    assert [proof.id for proof in folder.proofs()] == [busy.id, other.id]
    assert sorted(path.name for path in (home / "proofs").iterdir()) == [other.id, busy.id], "nothing in the trash"


def test_the_log_is_shown_and_followed(
    three: list[Run], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cnn, vit, _ = three
    vit.file("engine.log").write_bytes("one\r50 %\rtwo\n\x1b[2Jthree\ta\nvier: ä\n".encode())
    assert said(capsys, "logs", "vit")[0] == "one\n50 %\ntwo\n?[2Jthree       a\nvier: ä\n"
    assert said(capsys, "logs", "vit", "-n", "1")[0] == "vier: ä\n"
    assert said(capsys, "logs", "vit", "-n", "0")[0] == ""
    said(capsys, "logs", "vit", "-f", code=INTERRUPTED)  # as its training ended: it was stopped
    said(capsys, "logs", "cnn", "-f")
    _epochs_are_among_the_lines(vit, capsys)
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)
    states = iter([True, True, False])
    monkeypatch.setattr(Run, "is_active", property(lambda run: _writes_on(run, next(states))))
    assert said(capsys, "logs", "mlp", "--follow", "-n", "0", code=1)[0] == "more True\nmore True\nmore False\n"
    cnn.file("engine.log").unlink()
    assert "has no log" in said(capsys, "logs", "cnn", code=WRONG)[1]


def _epochs_are_among_the_lines(vit: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Also those of before and after it was resumed."""
    t = recorded.BEGAN + 500
    epoch = {"step": 9, "metrics": {"loss": 0.25}, "seconds": 2.5}
    told: list[dict[str, object]] = [
        {"type": "phase", "phase": "training"}, {"type": "epoch", "epoch": 7, **epoch},
        {"type": "phase", "phase": "ended"}, {"type": "phase", "phase": "starting"},
        {"type": "epoch", "epoch": 8, **epoch},
    ]  # fmt: skip
    with vit.file("events.jsonl").open("a") as stream:
        for number, fields in enumerate(told):
            stream.write(json.dumps({"t": t + number, **fields}, separators=(",", ":")) + "\n")
    vit.file("engine.log").write_text(f"one\n{RESUMED}\nI0000 00:00:{t + 3.5}  1 a.cc:1] two\nthree\n")
    lines = said(capsys, "logs", "vit")[0].splitlines()
    words = [line.partition("  ")[0] for line in lines]
    assert words == ["one", "epoch 7/1", RESUMED, f"I0000 00:00:{t + 3.5}", "three", "epoch 8/1"]
    assert lines[1] == "epoch 7/1   2.5 s  loss 0.250"
    assert said(capsys, "logs", "vit", "-n", "5")[0].splitlines() == lines[1:]
    assert said(capsys, "logs", "vit", "-f", "-n", "5", code=INTERRUPTED)[0].splitlines() == lines[1:]


def _writes_on(run: Run, is_active: bool) -> bool:
    with run.file("engine.log").open("a") as log:
        log.write(f"more {is_active}\n")
    return is_active


def test_two_viewers_lose_nothing_of_each_other(three: list[Run]) -> None:
    run = three[0]
    writers = [threading.Thread(target=titles.retag, args=(run, [f"tag{number}"])) for number in range(12)]
    writers.append(threading.Thread(target=titles.write_note, args=(run, "a note")))
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = titles.read_notes(run)
    assert (found.note, len(found.tags)) == ("a note", 12)
    known = RunList()
    assert [hit.item.run for hit in matching(known.read(), "#tag7 a note")] == [run]
    for content in ("{", '{"note": 3, "tags": "x"}', '{"tags": [1, "", "a b"]}'):
        run.file("notes.json").write_text(content)
        assert titles.read_notes(run) == titles.Notes()
    with pytest.raises(RunError, match="at most 1,000 are allowed"):
        titles.write_note(run, "x" * 1001)


@pytest.mark.parametrize("words", [("-n", "2")], ids=" ".join)
def test_a_line_that_is_half_written_is_followed_to_its_end(
    words: tuple[str, ...], three: list[Run], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, more = three[2].file("engine.log"), iter(["o\nthr", "ee\r", "\nfo\tur", ""])
    log.write_text("one\ntw")
    monkeypatch.setattr("gputui.tui.commands.logs.time.sleep", lambda _: None)

    def is_active(run: Run) -> bool:
        with run.file("engine.log").open("a", newline="") as stream:
            stream.write(text := next(more))
        return bool(text)

    monkeypatch.setattr(Run, "is_active", property(is_active))
    shown = said(capsys, "logs", three[2].id, "-f", *words, code=1)[0]
    assert shown == ("one\n" + "two\nthree\nfo      ur")
    assert list(more) == []
