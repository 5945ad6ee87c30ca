"""What is printed of proofs, whole: their list, and the result of each kind while it goes on and at its end."""

from __future__ import annotations

import copy
import time
from io import StringIO
from typing import Any

import pytest
from gputui.engine.trials.record import Record
from gputui.engine.trials.search_record import Candidate
from gputui.engine.trials.trial import Trial
from gputui.tui.printing import proof, tune
from rich.console import Console

from tests.support import recorded_search
from tests.support.recorded_proof import DIAGNOSIS, PROOF, STAGES, trials
from tests.support.recorded_search import ENDED, running
from tests.support.typed import typed

Printed = pytest.CaptureFixture[str]
NOON = time.mktime((2026, 9, 21, 12, 30, 0, 0, 0, -1))


def record(**fields: Any) -> Record:
    return typed(Record, {"id": "p", "kind": "ab", "state": "done", "preset_name": "cnn", "repeats": 3} | fields)


def words(capsys: Printed) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_the_list_says_what_a_running_proof_does_and_how_the_others_ended(capsys: Printed) -> None:
    going = record(id="one", state="running", doing="pair 2 of 3", started_t=NOON, seconds=61.0)
    ended = record(id="two", state="failed", error="the preset was deleted", started_t=NOON + 60, seconds=5.0)
    proof.show_list([going, ended], {"two": 2048})
    assert words(capsys) == [
        "proof kind state started time size result", "one ab running 2026-09-21 12:30 1:01 - pair 2 of 3",
        "two ab failed 2026-09-21 12:31 5.0 s 2.0 KiB the proof failed: the preset was deleted",
    ]  # fmt: skip


def test_the_result_of_a_proof_of_each_kind(capsys: Printed, monkeypatch: pytest.MonkeyPatch, snapshot: Any) -> None:
    monkeypatch.setenv("GPUTUI_ASCII", "1")
    none: dict[str, Any] = {
        "comparisons": [],
        "gain_total": None,
        "after": None,
        "changes_kept": {},
        "preset_after": None,
    }
    going = {"state": "running", "doing": "pair 2 of 3"}
    pairs = trials(("a", 100.0), ("b", 150.0), ("b", 160.0), ("a", None), outcome="crashed")
    ablation = {"trials": pairs, "input_cost": 0.3, "stages": STAGES["stages"], "why": ""}
    losses = [each | {"loss_at_samples": loss} for each, loss in zip(pairs, (0.5, 0.4, None, None), strict=True)]
    rate = {"before": 1e-3, "decision": "better", "why": "w", "trials": losses}
    suggested = {"suggested": 2e-3, "reason": "the loss falls fastest there", "lowest_at": 0.3}
    cases: dict[str, dict[str, Any]] = {
        "rate": {"kind": "rate", "rate": rate | suggested} | none, "rate without a suggestion": {
            "kind": "rate", "rate": {"before": 1e-3, "decision": "no suggestion", "why": "w", "trials": losses}} | none,
        "loop": {}, "loop that goes on": going, "loop without a gain": none,
        "ab": {"kind": "ab", "comparisons": PROOF["comparisons"][:1]},
        "ab that has stopped": {"kind": "ab", "state": "stopped", "ended_because": "it was stopped"} | none,
        "diagnosis": {"kind": "diagnosis", "diagnosis": DIAGNOSIS, "ablation": ablation} | none,
        "scaling": {"kind": "scaling", "ended_because": "no second GPU"} | none,
        "only a prediction": ENDED | {"search": ENDED["search"] | {"limits": {"dry_run": True}}},
        "search without gains": ENDED | none | {"search": ENDED["search"] | {"candidates": [
            each | {"gain": None} for each in ENDED["search"]["candidates"]]}},
        "search that was followed": ENDED, "search that has kept nothing": ENDED | none,
        "search that goes on": ENDED | running() | none,
    }  # fmt: skip
    parts = []
    for name, fields in cases.items():
        data = typed(Record, copy.deepcopy(PROOF | {"kind": "loop"} | fields))
        if data.kind == "tune":
            proof.show_answer(data)
        proof.show_result(data, was_followed="goes on" in name or "followed" in name)
        proof.show_trials(data)
        parts.append(f"---- {name}\n{capsys.readouterr().out}")
    assert "".join(parts) == snapshot


def test_each_event_of_a_proof_is_printed_once_and_what_it_does_only_while_it_is_running() -> None:
    out = StringIO()
    lines = proof.ProofLines(Console(file=out, width=200))

    def printed(**fields: Any) -> list[str]:
        lines.show(typed(Record, copy.deepcopy(PROOF | {"budget_seconds": None} | fields)))
        text = out.getvalue()
        out.seek(0)
        out.truncate()
        return [" ".join(line.split()) for line in text.splitlines()]

    first = PROOF["comparisons"][0] | {
        "trials": trials(("a", 100.0), ("b", None), outcome="oom"),
        "decision": "running",
    }
    begun: dict[str, Any] = {"state": "running", "comparisons": [], "diagnosis": None}
    assert printed(**begun, doing="diagnosing") == ["diagnosing ..."]
    assert printed(**begun, doing="diagnosing") == []
    assert printed(**begun | {"diagnosis": DIAGNOSIS, "comparisons": [first]}, doing="pair 1") == [
        "01-a without cache=memory 100 samples/s step 640 ms input wait 62 % GPU busy 31 % peak tensors 1.4 GiB "
        "whole time 12.4 s",
        "02-b with cache=memory oom: out of memory at batch size 256: ?[2Jkilled", DIAGNOSIS["sentence"], "pair 1 ...",
    ]  # fmt: skip
    ended = first | {"decision": "kept"}
    over = {"state": "done", "diagnosis": DIAGNOSIS, "comparisons": [ended]}
    assert printed(**over, doing="writing the result") == [
        "cache=memory is kept: 3.57 times as fast (gain +257 %, spread of the repeats 3.7 %)"
    ]
    assert printed(**over, doing="ended") == []


def test_a_trial_in_one_line_with_what_disturbed_it_and_a_failed_one_with_its_error() -> None:
    good, failed = (typed(Trial, each) for each in trials(("a", 100.0), ("b", None), outcome="oom"))
    assert " ".join(proof.trial_line("as it is", good).split()).startswith("01-a as it is 100 samples/s step 640 ms")
    good.disturbed = "bob's python used GPU 0"
    assert proof.trial_line("as it is", good).endswith("  disturbed")
    assert proof.trial_line("xla", failed).startswith("02-b  xla                            oom: out of memory")


def test_each_event_of_a_search_has_a_line_and_notes_are_printed_once() -> None:
    def news(**fields: Any) -> list[tuple[str, str]]:
        return [(key, " ".join(text.split())) for key, text in tune.news(typed(Record, copy.deepcopy(ENDED | fields)))]

    still = recorded_search.candidate("xla", {"compile.xla": True}, 1500.0, 0.0) | {"decision": "running"}
    zero = recorded_search.candidate("xla", {"compile.xla": True}, 1490.0, 0.0)
    zero["trials"] = [trials(("a", 100.0))[0] | {"disturbed": "bob's python used GPU 0"}]
    only = ENDED["search"] | {"candidates": [still, zero], "losses": []}
    keys = [key for key, _ in news(search=only, comparisons=[])]
    assert keys == ["candidate 1", "gains", "disturbed"]
    pairs = trials(("a", 100.0), ("b", 150.0), ("b", None), ("a", 100.0), outcome="crashed")
    compared = ENDED["comparisons"][0] | {"trials": pairs, "decision": "running"}
    assert news(search=only | {"candidates": []}, comparisons=[compared]) == [
        ("pair 0 1", "pair 1 100 samples/s -> 150 samples/s +50.0 %"),
        ("pair 0 1", "pair 1 100 samples/s -> 150 samples/s +50.0 %"),
        ("0 03-b", "03-b: crashed: out of memory at batch size 256: \x1b[2Jkilled"),
    ]  # fmt: skip
    check = ENDED["search"]["losses"][0]
    for outcome, said in (("ok", "trained on"), ("timeout", "trained on"), ("oom", "oom")):
        losses = [check | {"trials": [pairs[1] | {"outcome": outcome}], "decision": "running", "samples": 2048}]
        ((_, line),) = news(search=only | {"candidates": [], "losses": losses}, comparisons=[])
        assert said in line, outcome
    line = tune.candidate_line(typed(Candidate, zero))
    assert line.split()[:3] == ["XLA", "xla=true", "1,490"]
