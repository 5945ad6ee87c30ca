"""The sentences about proofs as whole texts, and the estimates of their time, of records written by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.proof import duration, request
from gputui.engine.proof.request import Request
from gputui.engine.trials import comparing, proof_sentences, rate_sentences, scaling_sentences, significance
from gputui.engine.trials.rate_record import RateSettings, RateTest
from gputui.engine.trials.record import Ablation, Comparison, Learning, Point, Record, ScalingSettings, Setting
from gputui.engine.trials.trial import Trial, place

from tests.support import recorded
from tests.support.typed import typed

XLA = {"compile.xla": True}
BOTH = {"compile.xla": True, "input.cache": "memory"}
FASTER: dict[str, Any] = {"changes": XLA, "gain": 0.5, "spread": 0.02}


def trial(side: str = "a", outcome: str = "ok", **more: Any) -> Trial:
    known: dict[str, Any] = {"side": side, "repeat": 1, "run": f"01-{side}", "outcome": outcome}
    return Trial(**known | more)


# ---- one comparison -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comparison", "text"),
    [
        (FASTER | {"decision": "kept"}, "xla=true is kept: 1.50 times as fast (gain +50.0 %, spread of the repeats "
         "2.0 %)"),
        (FASTER | {"decision": "kept", "changes": BOTH, "spread": None}, "xla=true, cache=memory are kept: 1.50 times "
         "as fast"),
        (FASTER | {"decision": "faster"}, "xla=true makes the training 1.50 times as fast (gain +50.0 %, spread of the "
         "repeats 2.0 %)"),
        (FASTER | {"decision": "slower", "gain": -0.5, "changes": BOTH}, "xla=true, cache=memory make the training "
         "0.50 times as fast (gain -50.0 %, spread of the repeats 2.0 %)"),
        ({"changes": XLA, "decision": "undecided", "why": "w"}, "whether xla=true makes a difference is undecided: w"),
        ({"changes": BOTH, "decision": "undecided", "why": "w"}, "whether xla=true, cache=memory make a difference is "
         "undecided: w"),
        ({"changes": XLA, "decision": "no difference", "why": "w"}, "xla=true makes no difference: w"),
        ({"changes": XLA, "decision": "rejected", "why": "w"}, "xla=true is rejected: w"),
        ({"changes": BOTH, "decision": "rejected", "why": "w"}, "xla=true, cache=memory are rejected: w"),
        ({"changes": XLA, "decision": "failed", "why": "w"}, "xla=true cannot be used: w"),
        ({"changes": XLA, "decision": "stopped"}, "the measurement of xla=true is incomplete"),
        ({"changes": XLA, "decision": "running"}, "xla=true is being measured"),
    ],
)  # fmt: skip
def test_the_verdict_on_a_comparison(comparison: dict[str, Any], text: str) -> None:
    assert proof_sentences.verdict(typed(Comparison, comparison)) == text


@pytest.mark.parametrize("decision", ["stopped", "running", "faster"])
def test_the_efficiency_is_said_of_comparisons_that_have_ended(decision: str) -> None:
    trials = [trial("a", replicas=1), trial("b", replicas=2)]
    verdict = proof_sentences.verdict(Comparison(changes=XLA, trials=trials, gain=0.8, decision=decision))
    assert verdict.endswith("; 2 replicas instead of 1: an efficiency of 90 %") is (decision == "faster")


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((0.3, 0.3, 0.3), ("faster", "+30.0 %, spread of the repeats 0.0 %")),
        ((-0.3, -0.3, -0.3), ("slower", "-30.0 %, spread of the repeats 0.0 %")),
        ((0.01, 0.01, 0.01), ("no difference", "+1.0 % is not more than 2 % (spread 0.0 %)")),
        ((7.0, 7.0), ("faster", "+700 % in both pairs, which agree by far")),
        ((-0.9, -0.9), ("slower", "-90.0 % in both pairs, which agree by far")),
        ((0.1,), ("undecided", "only 1 pair was measured, but 3 are needed")),
        ((0.1, 0.1), ("undecided", "only 2 pairs were measured, but 3 are needed")),
        ((0.1, 0.2, 0.0), ("undecided", "+10.0 % may be chance: 3 pairs with a spread of 9.1 % detect only more than "
         "45.1 %; about 7 more pairs would be needed (--repeats 10)")),
        ((0.02, 0.6, -0.4), ("undecided", "+2.0 % may be chance: 3 pairs with a spread of 49.1 % detect only more than "
         "642 %; use a quieter machine or longer trials (--seconds on the command line)")),
    ],
)  # fmt: skip
def test_the_verdict_on_pairs_with_its_reason(gains: tuple[float, ...], verdict: tuple[str, str]) -> None:
    assert significance.verdict(gains) == verdict


def test_what_a_measured_gain_leaves_possible() -> None:
    assert list(significance.around(0.1, None)) == pytest.approx([0.1, 0.1])
    low, high = significance.around(0.0, 0.05, 3)
    assert (1 + low) * (1 + high) == pytest.approx(1.0)
    assert high == pytest.approx(significance.detectable_gain(0.05, 3))
    assert significance.around(1.0, 0.1, None)[1] == pytest.approx(2 * 2.718281828**0.1 - 1)
    assert significance.around(0.0, 1e9, 3)[1] < float("inf")


@pytest.mark.parametrize(
    ("changes", "settings", "note"),
    [
        (["device.visible"], ["strategy.kind=mirrored", "train.learning_rate_scaling=none"], comparing._STAYS),
        (["strategy.kind"], ["strategy.kind=mirrored", "train.learning_rate_scaling=linear"], comparing._GROWS),
        (["strategy.devices"], ["strategy.kind=mirrored"], comparing._STAYS),
        (["device.visible"], ["strategy.kind=single"], ""),
        (["compile.xla"], [], ""),
    ],
)
def test_how_a_change_of_devices_changes_what_is_learnt(changes: list[str], settings: list[str], note: str) -> None:
    options = presets.defaults(settings).options
    assert comparing.note(changes, options) == note
    assert comparing.note(changes, options, says_so=True) == (note or "the change can change what is learnt")


def test_what_is_learnt_is_a_line_with_both_losses() -> None:
    learned = Learning(note="n", samples=4096, loss_a=0.5, loss_b=0.25)
    assert proof_sentences.learned(learned) == "Note: n; loss after 4,096 samples: 0.5 without, 0.25 with."
    assert proof_sentences.learned(replace(learned, loss_b=None)) == "Note: n; the losses are not known."
    assert proof_sentences.learned(replace(learned, loss_a=None)) == "Note: n; the losses are not known."


# ---- a whole proof ---------------------------------------------------------------------------------

KEPT: dict[str, Any] = {"changes_kept": XLA, "gain_total": 1.5}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"kind": "tune", "state": "waiting"}, "the search waits in the queue; gputui queue shows why"),
        ({"kind": "rate", "state": "failed", "error": "e"}, "the range test failed: e"),
        ({"kind": "sweep", "state": "crashed"}, "the sweep's process has crashed; its results so far are shown"),
        ({"kind": "ab", "state": "crashed"}, "the proof's process has crashed; its results so far are shown"),
        ({"kind": "rate", "state": "stopped"}, "stopped before there was a suggestion"),
        ({"kind": "ab", "comparisons": [FASTER | {"decision": "stopped"}]}, "the measurement of xla=true is "
         "incomplete"),
        ({"kind": "loop", **KEPT}, "1.50 times as fast with xla=true"),
        ({"kind": "loop", "comparisons": [FASTER | {"decision": "rejected"}, FASTER | {"decision": "stopped"}]},
         "nothing was proved to make it faster (1 change tried)"),
        ({"kind": "loop", "state": "stopped", "comparisons": [FASTER | {"decision": "rejected"}] * 2},
         "stopped: so far nothing was proved to make it faster (2 changes tried)"),
        ({"kind": "loop", "state": "stopped"}, "stopped before the measurement of any change was complete"),
        ({"kind": "loop", "ended_because": "the time budget of 1 min"}, "the time budget allowed no change to be "
         "measured"),
        ({"kind": "loop", "final_verdict": {"verdict": "undecided"}}, "what limits the speed is undecided, so no "
         "change was tried; gputui tune tries changes without a diagnosis"),
        ({"kind": "loop"}, "nothing was found to make it faster (no change to try)"),
        ({"kind": "tune", **KEPT, "comparisons": [FASTER | {"decision": "kept"}]}, "1.50 times as fast with xla=true "
         "(gain +50.0 %, spread of the pairs 2.0 %)"),
        ({"kind": "tune", **KEPT, "comparisons": [FASTER | {"decision": "kept", "gain": 0.1, "spread": 0.01},
         FASTER | {"decision": "kept"}]}, "1.50 times as fast with xla=true (gain +50.0 %, spread of the pairs 2.0 %)"),
        ({"kind": "tune", **KEPT, "comparisons": [FASTER | {"decision": "kept"}], "search": {"losses": [
            {"settings": XLA, "decision": "not judged", "why": "there is not enough time"}]}},
         "1.50 times as fast with "
         "xla=true (gain +50.0 %, spread of the pairs 2.0 %); whether it learns as well is not judged: there is not "
         "enough time"),
        ({"kind": "loop", **KEPT, "comparisons": [FASTER | {"decision": "kept", "learning": {
            "note": "n", "samples": 500, "loss_a": 0.0118, "loss_b": 0.0172}}]},
         "1.50 times as fast with xla=true; the loss with xla=true is 46 % higher after 500 samples"),
        ({"kind": "loop", **KEPT, "comparisons": [FASTER | {"decision": "kept", "learning": {"note": "n"}}]},
         "1.50 times as fast with xla=true; whether it learns as well with xla=true is not known"),
        ({"kind": "loop", "advice": [{"changes": {}, "reason": "r"}]},
         "no option was found that could make it faster; the advice says what to change in your code or data"),
        ({"kind": "tune", "changes_kept": XLA}, "the preset runs out of memory, and trains with xla=true"),
    ],
)  # fmt: skip
def test_the_result_of_a_proof_in_a_sentence(record: dict[str, Any], text: str) -> None:
    assert proof_sentences.result(typed(Record, {"state": "done", **record})) == text


TRIED = {"tried": XLA, "settings": XLA, "decision": "kept", "trials": [{"run": "1", "side": "s", "outcome": "ok"}]}
SEARCH: dict[str, Any] = {"candidates": [TRIED], "best": XLA, "before_speed": 100.0, "best_speed": 150.0}


@pytest.mark.parametrize(
    ("search", "more", "text"),
    [
        ({}, {}, "nothing is faster than the preset as it is (1 change tried)"),
        ({"candidates": [TRIED] * 2}, {}, "nothing is faster than the preset as it is (2 changes tried)"),
        ({}, {"state": "running"}, "nothing is faster than the preset as it is (1 change tried)"),
        ({"losses": [{"settings": XLA, "decision": "worse"}]}, {}, "what is faster than the preset learns clearly "
         "worse (1 change tried)"),
        ({"best": {}}, {"state": "stopped"}, "stopped before anything was proved (1 change tried)"),
        ({}, {"state": "stopped"}, "stopped: it seems faster with xla=true, which is not proved: +50.0 % in single "
         "trials"),
        ({"unproved": XLA}, {}, "it seems faster with xla=true, which is not proved: +50.0 % in single trials"),
        ({"unproved": BOTH}, {}, "it seems faster with xla=true, cache=memory, which is not proved"),
        ({"unproved": XLA, "learning": "it learns"}, {"comparisons": [FASTER | {"decision": "undecided", "trials":
         [{"side": "b", "outcome": "ok", "run": "1"}, {"side": "b", "outcome": "oom", "run": "2"}]}]},
         "it seems faster with xla=true, which is not proved: +50.0 % in single trials; in 1 pair +50.0 %, spread "
         "2.0 %; it learns"),
        ({}, {"comparisons": [FASTER | {"decision": "rejected", "why": "w"}]}, "nothing was proved to be faster than "
         "the preset as it is: xla=true is rejected: w"),
        ({}, {"comparisons": [FASTER | {"decision": "rejected", "why": "w"}, FASTER | {"changes": BOTH, "decision":
         "failed", "why": "v"}]}, "nothing was proved to be faster than the preset as it is: xla=true, cache=memory "
         "cannot be used: v"),
        ({}, {"state": "stopped", "comparisons": [FASTER | {"decision": "failed", "why": "w"}]}, "stopped before "
         "anything was proved (1 change tried)"),
        ({"losses": [{"settings": XLA, "decision": "worse"}]}, {"state": "stopped"}, "stopped before anything was "
         "proved (1 change tried)"),
        ({"losses": [{"settings": XLA, "decision": "failed"}]}, {"state": "stopped"}, "stopped before anything was "
         "proved (1 change tried)"),
        ({"candidates": []}, {}, "nothing was found to make it faster (no change to try)"),
        ({"candidates": [TRIED | {"trials": []}]}, {}, "nothing was found to make it faster (no change to try)"),
        ({"candidates": [TRIED, TRIED | {"trials": []}, TRIED | {"tried": {}}]}, {}, "nothing is faster than the "
         "preset as it is (1 change tried)"),
        ({"limits": {"dry_run": True}}, {"ended_because": "batch 32 will take 1 GiB"}, "batch 32 will take 1 GiB"),
        ({"limits": {"dry_run": True}}, {"state": "stopped", "ended_because": "a stop was requested"}, "a stop was "
         "requested"),
        ({"limits": {"dry_run": True}}, {"state": "stopped"}, "stopped before the measurement of any change was "
         "complete"),
    ],
)  # fmt: skip
def test_the_result_of_a_search_that_has_proved_nothing(
    search: dict[str, Any], more: dict[str, Any], text: str
) -> None:
    record = typed(Record, {"kind": "tune", "state": "done", "search": SEARCH | search, **more})
    assert proof_sentences.result(record) == text


@pytest.mark.parametrize(
    ("disturbed", "end", "sentence"),
    [
        ((), "", ""),
        (("heat",), "; the only trial was disturbed by other programs", "the only trial was disturbed (heat)"),
        (("", "heat"), "; 1 of 2 trials was disturbed by other programs", "1 of 2 trials was disturbed (heat)"),
        (("heat", "cpu", "heat"), "; 3 of 3 trials were disturbed by other programs",
         "3 of 3 trials were disturbed (heat)"),
        (("cpu", "heat", "cpu"), "; 3 of 3 trials were disturbed by other programs",
         "3 of 3 trials were disturbed (cpu)"),
        (("cpu", "heat"), "; 2 of 2 trials were disturbed by other programs", "2 of 2 trials were disturbed (heat)"),
    ],
)  # fmt: skip
def test_disturbed_trials_are_counted_and_the_most_frequent_reason_named(
    disturbed: tuple[str, ...], end: str, sentence: str
) -> None:
    rows = [{"run": str(n), "outcome": "ok", "disturbed": reason} for n, reason in enumerate(disturbed)]
    record = typed(Record, {"kind": "loop", "state": "done", "baseline_trials": rows})
    quiet = ": for reliable figures measure again on a quiet machine" if sentence else ""
    assert proof_sentences.conclusion(record) == "nothing was found to make it faster (no change to try)" + end
    assert proof_sentences.disturbance(record) == sentence + quiet


@pytest.mark.parametrize(
    ("ablation", "text"),
    [
        (None, "the cost of the input is unknown: not measured"),
        (Ablation(trials=[], why="oom"), "the cost of the input is unknown: oom"),
        (Ablation(trials=[], input_cost=0.25, input_wait=0.2), "the input costs 25 % of a step's time (measured by "
         "leaving it out); the training itself measured input_wait, which is 20 %"),
        (Ablation(trials=[], input_cost=0.0), "the input costs 0 % of a step's time (measured by leaving it out); the "
         "training itself measured input_wait, which is unknown"),
    ],
)  # fmt: skip
def test_the_cost_of_the_input_in_words(ablation: Ablation | None, text: str) -> None:
    assert proof_sentences.input_cost(ablation) == text


def test_trials_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["100-s", "99-s", "x", "01-b", "01-a"], key=place) == ["x", "01-a", "01-b", "99-s", "100-s"]
    slow = trial(samples_per_second=100.0, gpu_speed=0.5)
    assert (slow.speed, trial(samples_per_second=None).speed) == (200.0, 0.0)
    assert proof_sentences.outcome(trial(disturbed="heat")) == "ok, disturbed"
    assert proof_sentences.outcome(trial(outcome="oom", error="e", disturbed="heat")) == "oom: e"


# ---- scaling ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "point", "strong", "text"),
    [
        ({}, {"efficiency": 0.9}, False, ""),
        ({}, {"efficiency": None}, False, ""),
        ({"step_ms": None}, {}, False, ""),
        ({}, {"step_ms": 150.0, "input_wait": 0.35}, False, "2 replicas: a step takes 150 ms, 100 ms would be 2 times "
         "the speed; most of what was added is waiting for the input (input wait 35 % instead of 20 %)"),
        ({}, {"step_ms": 150.0, "input_wait": 0.29}, False, "2 replicas: a step takes 150 ms, 100 ms would be 2 times "
         "the speed; little of what was added is waiting for the input (input wait 29 % instead of 20 %): the step "
         "itself takes longer, by computing and the exchange of gradients, which a profile tells apart (gputui "
         "diagnose --profile)"),
        ({}, {"step_ms": 60.0, "input_wait": 0.25}, True, "2 replicas: a step takes 60 ms, 50 ms would be 2 times the "
         "speed; most of what was added is waiting for the input (input wait 25 % instead of 20 %)"),
        ({"input_wait": None}, {}, False, "2 replicas: a step takes 150 ms, 100 ms would be 2 times the speed"),
        ({}, {"step_ms": 100.0}, False, "2 replicas: a step takes 100 ms, 100 ms would be 2 times the speed"),
    ],
)  # fmt: skip
def test_what_has_grown_with_the_replicas(
    first: dict[str, Any], point: dict[str, Any], strong: bool, text: str
) -> None:
    one = typed(Point, {"replicas": 1, "step_ms": 100.0, "input_wait": 0.2} | first)
    two = typed(Point, {"replicas": 2, "efficiency": 0.89, "step_ms": 150.0, "input_wait": 0.3} | point)
    assert scaling_sentences.limit(one, two, strong) == text


def scaled(*points: dict[str, Any]) -> Record:
    made = [{"replicas": 1, "global_batch_size": 64, "decision": "measured"} | point for point in points]
    return typed(Record, {"kind": "scaling", "state": "done", "scaling": {"keep": "per-replica", "points": made}})


def test_of_several_numbers_that_failed_the_largest_is_named() -> None:
    failed = [{"replicas": count, "decision": "failed", "why": why} for count, why in ((2, "oom: a"), (4, "oom: b"))]
    record = scaled({"efficiency": 1.0}, *failed)
    assert proof_sentences.result(record) == "4 replicas could not be measured: oom: b"
    assert list(scaling_sentences.remarks(record)) == [
        "2 replicas could not be measured: oom: a", "4 replicas could not be measured: oom: b"]  # fmt: skip
    assert scaling_sentences.in_brief(record) == "scaling: nothing measured so far"
    measured = [
        {"replicas": count, "efficiency": share, "speedup": count * share} for count, share in ((2, 0.9), (4, 0.5))
    ]
    record = scaled({"efficiency": 1.0}, *measured)
    assert scaling_sentences.in_brief(record) == "scaling: 4 at 50 %, 2 at 90 %"
    assert proof_sentences.result(record) == (
        "4 replicas train 2.00 times as fast as 1: an efficiency of 50 %; the batch of each replica is kept (weak "
        "scaling)"
    )


@pytest.mark.parametrize(
    ("compiled", "changes", "remark"),
    [
        ((True, False), {}, "XLA compiles the step of one replica and not that of several (compile.xla: auto): a part "
         "of the difference may be XLA's; give --set compile.xla=false, or true, to compare the same"),
        ((False, True), {}, ""),
        ((True, True), {}, ""),
        ((True, None), {}, ""),
        ((False, False), {"compile.xla": False}, "all were measured without XLA, as compile.xla=auto uses it for one "
         "replica only; --set compile.xla=true measures all with XLA"),
    ],
)  # fmt: skip
def test_what_xla_has_compiled_is_remarked_if_it_differs(
    compiled: tuple[bool | None, bool | None], changes: dict[str, Any], remark: str
) -> None:
    record = scaled(*({"replicas": n, "xla": xla, "changes": changes} for n, xla in enumerate(compiled, 1)))
    assert list(scaling_sentences.remarks(record)) == ([remark] if remark else [])
    assert record.scaling is not None
    record.scaling.shared = "replicas share a GPU"
    assert next(scaling_sentences.remarks(record)) == (
        "a rehearsal: replicas share a GPU, so that no speed-up can be expected; what it shows is that the strategy "
        "works"
    )


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ([1, 1], [2, 2], "2 replicas instead of 1: an efficiency of 90 %"),
        ([2], [1], "1 replica instead of 2: an efficiency of 360 %"),
        ([1], [1], ""),
        ([1, 2], [2], ""),
        ([1], [], ""),
    ],
)
def test_the_efficiency_of_a_comparison_is_that_of_its_successful_trials(a: list[int], b: list[int], text: str) -> None:
    trials = [trial(side, replicas=count) for side, counts in (("a", a), ("b", b)) for count in counts]
    trials += [trial("a", "oom", replicas=8), trial("b", "crashed", replicas=8)]
    assert scaling_sentences.of_comparison(Comparison(changes=XLA, trials=trials, gain=0.8)) == text


def test_numbers_of_copies_are_compared_with_the_best_and_only_larger_ones_are_remarked() -> None:
    def copies(count: int, speed: float, repeats: int = 3) -> dict[str, Any]:
        rows = [{"side": f"c{count}", "repeat": n, "run": f"{n}-{count}"} for n in range(1, repeats + 1)]
        trials = [row | {"outcome": "ok", "samples_per_second": speed} for row in rows]
        return {"copies": count, "trials": trials, "efficiency": speed / 100 / count, "speedup": speed / 100}

    record = scaled(copies(1, 100.0), copies(2, 150.0), copies(3, 200.0), copies(4, 150.0))
    assert list(scaling_sentences.remarks(record)) == [
        "4 copies instead of 3: slower: -25.0 %, spread of the repeats 0.0 %"]  # fmt: skip
    assert proof_sentences.result(record) == (
        "3 copies at once on one GPU train 2.00 times as many samples per second as 1 (+100 %, spread of the repeats "
        "0.0 %); each has 67 % of the speed of one alone; with run.per_gpu=3 the queue puts so many runs on a GPU"
    )
    undecided = scaled(copies(1, 100.0, 2), copies(2, 150.0, 2))
    assert proof_sentences.result(undecided) == (
        "it is undecided whether several copies at once pay: 2 train 1.50 times as many samples per second as 1, "
        "undecided: only 2 pairs were measured, but 3 are needed"
    )
    on_cpu = scaled(copies(1, 100.0), copies(2, 50.0), copies(3, 60.0))
    assert on_cpu.scaling is not None
    on_cpu.scaling.shared = "the copies share the cores of one CPU"
    assert proof_sentences.result(on_cpu) == (
        "several copies at once do not pay: 2 train 0.50 times as many samples per second as 1, slower: -50.0 %, "
        "spread of the repeats 0.0 %; 3 train 0.60 times as many samples per second as 1, slower: -40.0 %, spread of "
        "the repeats 0.0 %"
    )
    assert list(scaling_sentences.remarks(on_cpu)) == [
        "the copies share the cores of one CPU: on a GPU the result may be another"]  # fmt: skip


# ---- the learning rate -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        ("better", "learning_rate=0.01 learns better than the preset's 0.001: w"),
        ("worse", "learning_rate=0.01 was suggested, and learns worse than the preset's 0.001: w"),
        ("no difference", "learning_rate=0.01 learns as well as the preset's 0.001: w"),
        ("undecided", "learning_rate=0.01 and the preset's 0.001 cannot be told apart: w"),
        ("close", "the suggestion learning_rate=0.01 confirms the preset's 0.001: w"),
        ("not judged", "learning_rate=0.01 is suggested, and not proved to learn better than the preset's 0.001: w"),
        ("running", "learning_rate=0.01 is suggested, and its comparison with the preset's 0.001 is incomplete: w"),
        ("no suggestion", "the range test suggests no learning rate: w"),
    ],
)
def test_the_result_of_a_range_test(decision: str, text: str) -> None:
    test = RateTest(settings=RateSettings(), before=0.001, suggested=0.01, decision=decision, why="w")
    assert rate_sentences.result(test) == text
    assert rate_sentences.result(replace(test, why="")) == text.removesuffix(": w") + (
        ": " if decision == "no suggestion" else ""
    )


def test_a_range_test_without_a_suggestion() -> None:
    test = RateTest(settings=RateSettings(), before=0.001, why="w")
    assert rate_sentences.result(test) == "stopped before there was a suggestion"
    assert rate_sentences.result(replace(test, decision="not judged")) == "w"
    assert rate_sentences.suggestion(test) == ""
    assert rate_sentences.suggestion(replace(test, suggested=0.01, reason="r")) == "suggested: learning_rate=0.01: r"


@pytest.mark.parametrize(
    ("gains", "decision", "text"),
    [
        ([0.25], "undecided", ""),
        ([0.25, 0.25, 0.25], "better", " on average, lower in 3 of 3 pairs, median -20.0 % (spread 0.0 %)"),
        ([0.25, -0.2, 0.0], "undecided", " on average, lower in 1 of 3 pairs, median +0.0 % (spread 22.3 %); only more "
         "than 149 % is beyond chance"),
        ([0.1, 0.2, 0.05], "undecided", " on average, lower in 3 of 3 pairs, median -9.1 % (spread 6.8 %); only more "
         "than 24.2 % is beyond chance; --repeats 7 would tell"),
        ([-0.1, -0.2, -0.05], "undecided", " on average, lower in 0 of 3 pairs, median +11.1 % (spread 8.8 %); only "
         "more than 43.2 % is beyond chance; --repeats 9 would tell"),
    ],
)  # fmt: skip
def test_the_losses_of_the_pairs_of_a_range_test(gains: list[float], decision: str, text: str) -> None:
    test = RateTest(settings=RateSettings(), before=0.001, suggested=0.01, gains=gains, of="validation", loss_a=0.5,
                    loss_b=0.25, decision=decision)  # fmt: skip
    assert rate_sentences.losses(test) == f"validation loss 0.25 instead of 0.5{text}"


def test_the_trainings_of_a_range_test_have_their_rates_and_seeds() -> None:
    test = RateTest(settings=RateSettings(), before=0.001, suggested=0.01, seed=70, ramp=[trial("r")], trials=[
        trial("a", repeat=2, loss_at_samples=0.5), trial("b", "error", repeat=2, error="e")])  # fmt: skip
    assert [title for title, _ in rate_sentences.titled(test)] == ["the ramp", "rate 0.001", "rate 0.01"]
    assert rate_sentences.trial_rows(test) == [
        ["01-a", "71", "0.001", "ok", "0.5"], ["01-b", "71", "0.01", "error: e", "-"]]  # fmt: skip
    test.seed = None
    assert rate_sentences.trial_rows(test)[0][1] == "-", "a record of an earlier version"


# ---- the time -----------------------------------------------------------------------------------------


def asked(kind: str, **more: Any) -> Request:
    return request.of_opened(kind, presets.defaults(), None, **more)


SETTINGS = [Setting(replicas=count, changes={}) for count in (1, 2, 4)]


@pytest.mark.parametrize(
    ("made", "sure", "most"),
    [
        (asked("ab", repeats=4), 8, 8),
        (asked("diagnosis", ablation_repeats=3), 6, 6),
        (asked("diagnosis", ablation_repeats=0, profile=True), 1, 1),
        (asked("loop", repeats=3, ablation_repeats=2, profile=True), 11, 35),
        (asked("rate", repeats=4, rate=RateSettings()), 9, 9),
        (asked("scaling", repeats=5, scaling=ScalingSettings(settings=SETTINGS)), 15, 15),
    ],
    ids=["ab", "diagnosis", "profile", "loop", "rate", "scaling"],
)
def test_the_number_of_trials_of_a_proof(made: Request, sure: int, most: int) -> None:
    assert (duration.sure_trials(made), duration.most_trials(made)) == (sure, most)


def test_a_proof_about_a_run_takes_the_steps_of_that_run(home: Path) -> None:
    run = recorded.write(home, name="20260921-110000-cnn", seconds=30, gpus=0, samples_per_second=2048.0)
    made = replace(asked("loop"), run=run.id)
    times = duration.times_of(made)
    assert (times.step, times.source) == (0.5, f"by the steps of {run.id}")
    assert duration.of_request(made) == times.seconds(made.measure_seconds)
    assert (duration.sure_trials(made), duration.most_trials(made)) == (6, 12), "two of its remedies have changes"
    assert duration.TrialTimes(2.0, 0.0, "").seconds(5.0) == 7.0
    assert duration.TrialTimes(2.0, 1.0, "").seconds(5.0) == 2.0 + 20 * 1.0 + 20.0
