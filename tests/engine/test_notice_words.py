"""What a notice says and to whom it goes: by written results, without a server."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from gputui.engine import runs
from gputui.engine.notify import notice, of_runs, sending, targets
from gputui.engine.notify.notice import Notice
from gputui.engine.notify.targets import TargetFault, Targets
from gputui.engine.runs import Run, titles
from gputui.engine.runs.events import EVENTS_FILE, EpochEnd, Event, Warn
from gputui.engine.runs.parsing import EventWriter

RUN = Notice(
    "run", "oom", True, "2026-one", "r7", "one: xla", 3725.0, {"loss": 0.25, "accuracy": None, "auc": 0.5}, "val_loss",
    0.125, 3, error="out of memory\x07", folder="/runs/one", host="box",
)  # fmt: skip


def test_a_notice_has_its_subject_its_figures_and_its_place() -> None:
    assert RUN.subject == "gputui: run r7 one: xla: out of memory"
    assert RUN.words.splitlines() == [
        "gputui: run r7 one: xla: out of memory", "after 1:02:05, loss 0.25, auc 0.5", "best val_loss 0.125 in epoch 3",
        "out of memory?", "2026-one on box",
    ]  # fmt: skip
    nothing = Notice("run", "ok", seconds=0.0, metrics={"loss": 0.0, "auc": None}, best_metric="loss", best=0.0,
                     best_epoch=1, host="box")  # fmt: skip
    assert nothing.words.splitlines() == [
        "gputui: run: done", "after 0.0 s, loss 0", "best loss 0 in epoch 1", "box",
    ]  # fmt: skip
    search = Notice("tune", "done", id="p1", name="p1", title="fast", result="twice as fast", host="box")
    assert search.words.splitlines() == ["gputui: search fast: done", "twice as fast", "p1 on box"]
    assert Notice("queue", "failed", host="box").words == "gputui: queue: failed\nbox"
    kinds = {kind: Notice(kind, "timeout", host="").subject for kind in ("ab", "loop", "rate", "scaling")}
    assert kinds == {
        "ab": "gputui: comparison: ended by a time limit", "loop": "gputui: proof: ended by a time limit",
        "rate": "gputui: learning-rate test: ended by a time limit",
        "scaling": "gputui: scaling: ended by a time limit",
    }  # fmt: skip


def test_a_command_gets_the_texts_and_numbers_as_variables() -> None:
    variables = Notice("run", "ok", seconds=2.5, best_epoch=3, title="x" * 1001, host="box").variables()
    assert "GPUTUI_NOTICE_METRICS" not in variables
    picked = {name: variables[f"GPUTUI_NOTICE_{name}"] for name in ("FAILED", "SECONDS", "BEST", "BEST_EPOCH", "TITLE")}
    assert picked == {"FAILED": "0", "SECONDS": "2.5", "BEST": "", "BEST_EPOCH": "3", "TITLE": "x" * 1000}
    assert RUN.variables() == {
        f"GPUTUI_NOTICE_{name}": text
        for name, text in {
            "KIND": "run", "OUTCOME": "oom", "FAILED": "1", "ID": "2026-one", "NAME": "r7", "TITLE": "one: xla",
            "SECONDS": "3725.0", "BEST_METRIC": "val_loss", "BEST": "0.125", "BEST_EPOCH": "3", "RESULT": "",
            "ERROR": "out of memory\x07", "FOLDER": "/runs/one", "HOST": "box", "SUBJECT": RUN.subject,
            "TEXT": RUN.words,
        }.items()
    }  # fmt: skip
    assert json.loads(RUN.as_json()) == RUN.as_dict()


@pytest.mark.parametrize(
    ("when", "command", "url", "wants"),
    [
        ("end", "x", "", (True, True)), ("end", "", "x", (True, True)), ("end", "", "", (False, False)),
        ("failure", "x", "", (False, True)), ("never", "x", "x", (False, False)),
    ],
)  # fmt: skip
def test_a_notice_goes_out_at_the_end_or_only_after_a_failure(
    when: str, command: str, url: str, wants: tuple[bool, bool]
) -> None:
    to = Targets(command, url, "text", when)
    assert tuple(to.wants(failed) for failed in (False, True)) == wants


def test_what_is_posted_has_its_form_and_the_address_its_variables() -> None:
    forms = {form: sending.content(Targets("", "x", form, "end"), RUN) for form in ("text", "json", "slack")}
    assert forms == {
        "text": (RUN.words, "text/plain; charset=utf-8"),
        "json": (RUN.as_json(), "application/json"),
        "slack": (json.dumps({"text": RUN.words}), "application/json"),
    }
    assert sending.address("$HOST/${TOKEN}/x", {"HOST": "https://a", "TOKEN": "t"}) == "https://a/t/x"
    assert sending.address("https://a/$", {}) == "https://a/$"
    for url, missing in (("$A/${B}", "B"), ("$A/${B}/$C", "B"), ("${C}/$A/$B", "C"), ("$A_B", "A_B")):
        with pytest.raises(Exception, match=rf"^the variable {missing} is not set where the run was started$"):
            sending.address(url, {"A": "https://a"})
    with pytest.raises(Exception, match=r"^the address does not begin with https:// or http://$"):
        sending.address("${A}", {"A": "ftp://a"})


def test_each_way_that_failed_is_a_warning_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Event] = []
    monkeypatch.setattr(sending, "send_to", lambda find, make: ["no command", "no address"])
    of_runs.send(Run(runs.create("one", "schema: 1\n").path), told.append)
    assert told == [Warn(kind="notice", message="no command"), Warn(kind="notice", message="no address")]


def test_a_failure_to_find_the_targets_is_one_line() -> None:
    def broken() -> Targets:
        raise TargetFault("settings.yaml:3: notify.when must be one of")

    def fails() -> Notice:
        raise ValueError("x" * 300)

    good = Targets("true", "", "text", "end")
    assert sending.send_to(broken, lambda: RUN) == ["no notice was sent: settings.yaml:3: notify.when must be one of"]
    (line,) = sending.send_to(lambda: good, fails)
    assert (line.startswith("no notice was sent: ValueError: xxx"), len(line) < 240) == (True, True)
    nowhere = Targets("", "", "text", "end")
    assert sending.send_to(lambda: nowhere, fails) == [], "the notice is not made"


def ended(result: dict[str, Any], *epochs: dict[str, Any]) -> Notice:
    run = Run(runs.create("one", "schema: 1\n").path)
    run.file("result.json").write_text(json.dumps(result))
    writer = EventWriter(run.file(EVENTS_FILE), run.id)
    for number, metrics in enumerate(epochs, 1):
        writer.emit(EpochEnd(epoch=number, step=10 * number, metrics=metrics, seconds=1.0))
    writer.close()
    return notice.of_run(run)


def test_the_notice_of_a_run_names_its_best_epoch_by_the_validation_if_there_is_one() -> None:
    losses: tuple[dict[str, Any], ...] = (
        {"loss": 0.1, "val_loss": 0.5}, {"loss": 0.3, "val_loss": 0.2}, {"loss": 0.2, "val_loss": 0.2}
    )  # fmt: skip
    made = ended({"outcome": "ok", "seconds": 7.0, "metrics": {"loss": 0.2}}, *losses)
    assert (made.best_metric, made.best, made.best_epoch) == ("val_loss", 0.2, 2)
    assert (made.outcome, made.failed, made.seconds, dict(made.metrics), made.error) == (
        "ok",
        False,
        7.0,
        {"loss": 0.2},
        "",
    )
    plain = ended({"outcome": "stopped"}, *({"loss": each["loss"]} for each in losses))
    assert (plain.best_metric, plain.best, plain.best_epoch, plain.failed) == ("loss", 0.1, 1, False)
    followed = ended({"outcome": "ok", "best": [{"figure": "auc", "value": 0.9, "epoch": 4, "option": "x"}]}, *losses)
    assert (followed.best_metric, followed.best, followed.best_epoch) == ("auc", 0.9, 4)
    none = ended({"outcome": "error", "error": {"kind": "data", "message": "no file", "hint": ""}})
    assert (none.best_metric, none.best, none.best_epoch, none.failed, none.error) == ("", None, None, True, "no file")


def test_the_notice_of_a_run_has_all_that_its_files_say() -> None:
    best = [
        {"figure": "auc", "value": 0.9, "epoch": 4, "option": "run.keep_best"},
        {"figure": "loss", "value": 0.1, "epoch": 2, "option": "train.early_stop"},
    ]
    run = runs.create("two", "schema: 1\n", titles.record("fast", "", {"train.epochs": (2, 3)}))
    run.file("result-1.json").write_text(json.dumps({"outcome": "stopped", "seconds": 60.0}))
    result = {"outcome": "error", "seconds": 15.0, "metrics": {"loss": 0.2, "auc": None}, "best": best,
              "error": {"kind": "data", "message": "no file", "hint": "look"}}  # fmt: skip
    run.file("result.json").write_text(json.dumps(result))
    assert notice.of_run(run).as_dict() == {
        "kind": "run", "outcome": "error", "failed": True, "id": run.id, "name": "r1", "title": "fast: epochs=3",
        "seconds": 75.0, "metrics": {"loss": 0.2, "auc": None}, "best_metric": "auc", "best": 0.9, "best_epoch": 4,
        "result": "", "error": "no file", "folder": str(run.path), "host": socket.gethostname(),
        "subject": "gputui: run r1 fast: epochs=3: failed",
        "text": "gputui: run r1 fast: epochs=3: failed\nafter 1:15, loss 0.2\nbest auc 0.9 in epoch 4\nno file\n"
        f"{run.id} on {socket.gethostname()}",
    }  # fmt: skip
    run.file("result.json").unlink()
    lost = notice.of_run(run)
    assert (lost.outcome, lost.failed, lost.seconds, lost.best_metric) == ("crashed", True, None, "")


@pytest.mark.parametrize(
    ("outcome", "kind", "failed"),
    [("ok", "", False), ("stopped", "", False), ("timeout", "timeout", False), ("timeout", "hang", True),
     ("crashed", "", True), ("oom", "", True), ("error", "", True)],
)  # fmt: skip
def test_a_hang_and_each_fault_are_failures(outcome: str, kind: str, failed: bool) -> None:
    assert ended({"outcome": outcome, "error": {"kind": kind, "message": "", "hint": ""}}).failed is failed


def test_the_settings_have_texts_and_the_words_that_the_options_have(tmp_path: Any) -> None:
    path = tmp_path / "settings.yaml"
    assert targets.of_settings(path) == {}
    one = "notify: {url: 'https://a', when: failure, command: ''}\n"
    for text, values in (
        (one, {"url": "https://a", "when": "failure"}),
        ("notify:\n", {}),
        ("theme: dark\n", {}),
        ("# url:\n", {}),
    ):
        path.write_text(text)
        assert targets.of_settings(path) == values, text
    path.write_text("notify:\n  url: https://a\n  when: later\n")
    with pytest.raises(TargetFault) as fault:
        targets.of_settings(path)
    assert str(fault.value).startswith(f"{path}:3: notify.when must be one of ")
    path.write_text("notify: [\n")
    with pytest.raises(TargetFault, match=rf"^{path}:\d+: "):
        targets.of_settings(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(TargetFault, match=rf"^{path} cannot be read: is a folder"):
        targets.of_settings(path)
