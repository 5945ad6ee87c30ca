"""What members of a shared sweep agree on, entry by entry: of two that exclude each other the earlier one counts."""

from __future__ import annotations

from typing import Any

import pytest
from gputui.engine.sweep import claims, halving
from gputui.engine.sweep.claims import Claim, Claims
from gputui.engine.trials.sweep_record import SweepTrial


def log_of(*entries: dict[str, Any]) -> Claims:
    log = Claims()
    for entry in entries:
        log.take(entry)
    return log


def claim(token: str = "t", key: str = "k", part: str = "search") -> dict[str, Any]:
    return {"op": "claim", "key": key, "token": token, "member": f"m-{token}", "host": "h", "run": "r", "part": part}


def report(state: str, token: str = "t", **more: Any) -> dict[str, Any]:
    return {"op": "report", "key": "k", "token": token, "report": {"state": state, **more}}


def release(member: str, token: str = "t", key: str = "k") -> dict[str, Any]:
    return {"op": "release", "key": key, "token": token, "member": member}


def choice(*finalists: int) -> dict[str, Any]:
    return {"op": "choice", "choice": {"finalists": list(finalists)}}


def setting(number: int, value: float) -> dict[str, Any]:
    return {"op": "setting", "number": number, "changes": {"rate": value}}


def test_a_claim_has_all_that_others_need_to_know_of_it() -> None:
    log = log_of({"op": "unknown"}, {}, claim(), claim("u"))
    assert log.claims == {"k": Claim(token="t", member="m-t", host="h", run="r", part="search")}
    assert (log.claims["k"].state, log.claims["k"].report, log.count) == ("waiting", {}, 4)
    log.take(report("paused", rungs=[0.5]))
    assert (log.claims["k"].state, log.claims["k"].report) == ("paused", {"state": "paused", "rungs": [0.5]})
    log.take(report("running", "u"))
    log.take(report("running") | {"key": "another"})
    assert log.claims["k"].state == "paused", "only its own member reports a trial"
    log.take(report("done", value=0.25))
    log.take(report("failed"))
    assert log.claims["k"].report == {"state": "done", "value": 0.25}, "a result stays"


@pytest.mark.parametrize(
    ("state", "own", "another"),
    [("waiting", True, True), ("running", True, True), ("stopped", True, True), ("paused", True, True),
     ("failed", True, False), ("dropped", True, False), ("done", False, False)],
)  # fmt: skip
def test_a_member_gives_back_all_but_its_results_and_another_takes_over_what_has_none(
    state: str, own: bool, another: bool
) -> None:
    for member, released in (("m-t", own), ("m-u", another)):
        assert ("k" not in log_of(claim(), report(state), release(member)).claims) is released
    for wrong in (release("m-t", token="u"), release("m-t", key="another")):
        assert "k" in log_of(claim(), report(state), wrong).claims
    if own:
        assert log_of(claim(), report(state), release("m-t"), claim("u")).claims["k"].member == "m-u"


@pytest.mark.parametrize(
    ("state", "is_open"),
    [("waiting", True), ("running", True), ("paused", False), ("stopped", False), ("failed", False), ("done", False)],
)
def test_the_search_ends_with_the_first_choice_while_no_trial_of_it_waits_or_trains(state: str, is_open: bool) -> None:
    log = log_of(claim(), report(state), choice(1), choice(2))
    assert log.choice == (None if is_open else {"finalists": [1]})
    proof = log_of(claim(part="proof"), report(state), choice(1))
    assert proof.choice == {"finalists": [1]}, "trials of the proof do not matter"
    assert log_of(choice(1), claim(), claim("u", "l", "proof")).claims.keys() == {"l"}


def test_settings_are_numbered_by_the_first_proposal_and_each_counts_once() -> None:
    log = log_of(setting(0, 0.1), setting(0, 0.2), setting(1, 0.1), setting(1, 0.3), choice(1), setting(2, 0.4))
    assert log.settings == {0: {"rate": 0.1}, 1: {"rate": 0.3}}


def test_the_first_definition_and_the_first_content_of_each_file_count() -> None:
    log = log_of({"op": "begin", "definition": {"seed": 1}}, {"op": "begin", "definition": {"seed": 2}},
                 {"op": "code", "host": "a", "files": {"model.py": "1"}},
                 {"op": "code", "host": "b", "files": {"model.py": "2", "data.py": "3"}})  # fmt: skip
    assert log.definition == {"seed": 1}
    assert log.code == {"model.py": ("a", "1"), "data.py": ("b", "3")}


def test_the_key_of_a_trial_is_its_part_its_seed_and_its_setting_in_any_order() -> None:
    one = SweepTrial(run="a-1", changes={"b": 1, "a": 2}, seed=3)
    same = SweepTrial(run="b-7", changes={"a": 2, "b": 1}, seed=3, state="done", on="h")
    assert claims.key_of(one) == claims.key_of(same)
    others = (SweepTrial(run="a-1", changes={"b": 1}, seed=3), SweepTrial(run="a-1", changes=one.changes, seed=4),
              SweepTrial(run="a-1", changes=one.changes, seed=3, part="proof"))  # fmt: skip
    assert len({claims.key_of(each) for each in (one, *others)}) == 4
    assert len({claims.new_token() for _ in range(9)}) == 9


def test_a_paused_trial_of_another_member_is_left_to_it() -> None:
    def trial(letter: str, rungs: list[float | None], on: str = "", state: str = "paused", seed: int = 1) -> SweepTrial:
        return SweepTrial(run=f"{letter}{seed}", changes={"name": letter}, seed=seed, state=state, rungs=rungs, on=on)

    theirs, ours = trial("a", [0.1], on="h"), trial("b", [0.2])
    worse = [trial("c", [0.9]), trial("d", [0.8])]
    assert halving.to_go_on([theirs, ours, *worse], [1, 3], 2, higher=False) is ours
    assert halving.to_go_on([theirs, *worse], [1, 3], 2, higher=False) is None
    assert halving.best_paused([theirs, ours, *worse], higher=False) is ours
    assert halving.best_paused([theirs, ours, *worse], higher=True) is worse[0]
    assert halving.best_paused([ours, trial("e", [0.9, 0.9])], higher=False).run == "e1", "of the highest rung"  # type: ignore[union-attr]
    assert halving.best_paused([theirs], higher=False) is None
    assert halving.best_paused([ours, trial("b", [0.2], state="failed", seed=2)], higher=False) is None
    assert halving.to_go_on([ours, *worse], [1, 3], 2, higher=True) is worse[0]
    assert halving.to_go_on([ours, worse[0]], [1, 3], 3, higher=False) is None, "one of three"
