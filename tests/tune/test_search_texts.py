"""The sentences, rows and limits of a search as whole texts and values, of records written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gputui.engine.trials.record import Record
from gputui.engine.trials.search_record import Candidate, LossCheck, Memory
from gputui.engine.trials.trial import Trial
from gputui.engine.tune.report import markdown, memory_sentences, search_results, search_sentences

from tests.support.typed import typed

GIB = 1024**3
XLA, CACHE = {"compile.xla": True}, {"input.cache": "memory"}
BATCH = {"input.batch_size": 128}


def searched(search: dict[str, Any], **more: Any) -> Record:
    return typed(Record, {"kind": "tune", "state": "done", "id": "p", "search": search} | more)


# ---- candidates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidate", "text"),
    [
        ({"tried": XLA, "decision": "kept"}, "kept"),
        ({"tried": XLA, "decision": "rejected", "gain": -0.1, "why": "-10.0 %: slower"}, "rejected: slower"),
        ({"tried": XLA, "decision": "failed", "why": "oom: no room"}, "failed: oom: no room"),
        ({"tried": XLA, "decision": "running"}, "running"),
        ({"decision": "kept", "why": "w"}, ""),
        ({"decision": "failed", "why": "w"}, "w"),
        ({"stage": "pairs", "settings": XLA, "decision": "kept"}, "proved"),
        ({"stage": "pairs", "settings": XLA, "decision": "rejected"}, "rejected"),
        ({"stage": "pairs", "decision": "kept"}, ""),
    ],
)
def test_the_outcome_of_a_candidate(candidate: dict[str, Any], text: str) -> None:
    assert search_sentences.outcome(typed(Candidate, candidate)) == text


@pytest.mark.parametrize(
    ("by_waits", "gain", "weighed"),
    [(0.3, 0.1, True), (0.1, 0.1, False), (0.02, 0.0, False), (0.021, 0.0, True), (None, 0.1, False),
     (0.3, None, False)],
)  # fmt: skip
def test_a_gain_by_waits_is_shown_if_it_is_the_larger_one(
    by_waits: float | None, gain: float | None, weighed: bool
) -> None:
    candidate = typed(Candidate, {"gain_by_waits": by_waits, "gain": gain})
    assert search_sentences.is_weighed(candidate) is weighed
    assert ("by its waits" in search_sentences.about_gains([candidate])) is weighed


def test_the_words_for_a_candidate() -> None:
    assert search_sentences.stage(typed(Candidate, {"stage": "steps_per_execution"})) == "steps per execution"
    assert search_sentences.stage(typed(Candidate, {"stage": "ceiling"})) == "no input"
    assert search_sentences.stage(typed(Candidate, {"stage": "put_back"})) == "put back"
    assert search_sentences.title(typed(Candidate, {"tried": XLA, "reason": "r"})) == "xla=true"
    assert search_sentences.title(typed(Candidate, {"reason": "r"})) == "r"
    assert search_sentences.title(typed(Candidate, {})) == "the preset as it is"
    a, b = (Trial(side=side, repeat=1, run=side, outcome="ok", samples_per_second=speed)
            for side, speed in (("a", 100.0), ("b", 150.0)))  # fmt: skip
    assert search_sentences.pair_gain(a, b) == 0.5
    assert search_sentences.pair_gain(a, replace(b, samples_per_second=None)) is None
    assert search_sentences.pair_gain(replace(a, samples_per_second=None), b) is None


KEPT = {"settings": XLA, "tried": XLA, "decision": "kept", "without_input": True, "samples_per_second": 300.0}


@pytest.mark.parametrize(
    ("search", "text"),
    [
        ({"ceiling": None, "before_speed": 100.0}, ""),
        ({"ceiling": 105.0, "before_speed": 100.0}, "without input no faster (105)"),
        ({"ceiling": 106.0, "before_speed": 100.0, "best_speed": 53.0}, "ceiling without input 106, 50 % reached"),
        ({"ceiling": 200.0, "before_speed": 100.0, "best_speed": 250.0}, ""),
        ({"ceiling": 200.0, "before_speed": 100.0, "best_speed": 200.0}, "ceiling without input 200, 100 % reached"),
        ({"ceiling": 200.0, "before_speed": 100.0}, "ceiling without input 200"),
        ({"ceiling": 200.0, "before_speed": 100.0, "best": XLA, "candidates": [KEPT]},
         "without input 200, now 300"),
        ({"ceiling": 300.0, "before_speed": 100.0, "best": XLA, "candidates": [KEPT], "best_speed": 150.0},
         "ceiling without input 300, 50 % reached"),
        ({"ceiling": 200.0, "before_speed": 100.0, "best_speed": 150.0, "best": XLA,
          "candidates": [KEPT, KEPT | {"without_input": False}]}, "ceiling without input 200, 75 % reached"),
    ],
)  # fmt: skip
def test_the_ceiling_in_words(search: dict[str, Any], text: str) -> None:
    assert search_sentences.ceiling_in_words(searched(search)) == text


@pytest.mark.parametrize(
    ("study", "text"),
    [
        ({"name": "n", "storage": "s", "trials": 1}, "study n in s: 1 trial"),
        ({"name": "n", "storage": "s", "trials": 1200, "of_others": 1000, "at_once": 2, "note": "it fails"},
         "study n in s: 1,200 trials, 1,000 of them by other members; 2 trials at once, each on a GPU of its own; it "
         "fails"),
    ],
)  # fmt: skip
def test_the_state_of_a_study(study: dict[str, Any], text: str) -> None:
    assert search_sentences.study_in_words(searched({"study": study})) == text
    assert search_sentences.study_in_words(searched({})) == ""


def test_the_time_that_is_left() -> None:
    assert search_sentences.left_in_words(200.0, 600.0) == "3:20 of 10:00, 6:40 left"
    assert search_sentences.left_in_words(700.0, 600.0) == "11:40 of 10:00, 0:00 left"
    assert search_sentences.left_in_words(200.0, None) == "3:20"
    assert search_sentences.left_in_words(None, 600.0) == ""


@pytest.mark.parametrize(
    ("losses", "limits", "decisions", "text"),
    [
        ([], {}, [], "not proven in pairs"),
        (["no worse", "not judged"], {}, [], "not proven in pairs"),
        (["no worse", "worse"], {}, [], "not chosen"),
        (["worse"], {"allow_worse_loss": True}, [], "not proven in pairs"),
        (["worse"], {"allow_worse_loss": True}, ["rejected"], "not chosen"),
        ([], {}, ["rejected"], "not chosen"),
        ([], {}, ["failed"], "not chosen"),
        ([], {}, ["rejected", "undecided"], "not proven in pairs"),
        ([], {}, ["undecided", "rejected"], "not chosen"),
        ([], {}, ["stopped"], "not proven in pairs"),
    ],
)
def test_what_has_become_of_the_best_settings_of_a_search_that_has_kept_nothing(
    losses: list[str], limits: dict[str, Any], decisions: list[str], text: str
) -> None:
    best = {"tried": XLA, "settings": XLA, "decision": "kept", "why": "+50.0 %"}
    search = {"best": XLA, "candidates": [best], "limits": limits,
              "losses": [{"settings": XLA, "decision": each} for each in losses]}  # fmt: skip
    record = searched(search, comparisons=[{"changes": XLA, "decision": each} for each in decisions])
    assert search_sentences.unproven(record) == text
    kept = searched(search, changes_kept=XLA)
    assert search_sentences.outcome(typed(Candidate, best), kept) == "kept"
    if losses or decisions:
        assert search_sentences.outcome(typed(Candidate, best), searched(search, changes_kept=BATCH)) == (
            search_sentences.unproven(searched(search, changes_kept=BATCH))
        )


# ---- losses ---------------------------------------------------------------------------------------

CHECK: dict[str, Any] = {"settings": BATCH, "of": "validation", "samples": 8085, "passes": 5, "loss_a": 0.5,
                         "loss_b": 0.6, "worse_from": 0.55, "decision": "worse"}  # fmt: skip


@pytest.mark.parametrize(
    ("check", "text"),
    [
        ({"decision": "running"}, "the loss with batch_size=128 is being compared with that of the preset"),
        ({"loss_b": None, "why": "w"}, "the loss with batch_size=128 is not judged: w"),
        ({"loss_a": None}, "the loss with batch_size=128 is not judged: it was not measured"),
        ({"trials": [{"repeat": 1}, {"repeat": 2}]}, "validation loss after 8,085 samples (5 passes) 0.5 with the "
         "preset, 0.6 with batch_size=128: worse (clearly worse is above 0.55 in both pairs of trainings)"),
        ({"trials": [{"repeat": 1}], "passes": None, "of": ""}, "loss after 8,085 samples 0.5 with the preset, 0.6 "
         "with batch_size=128: worse (clearly worse is above 0.55, from one pair, as there was time for no more)"),
        ({"samples": None, "passes": 1, "worse_from": None}, "validation loss 0.5 with the preset, 0.6 with "
         "batch_size=128: worse"),
    ],
)  # fmt: skip
def test_a_comparison_of_losses_in_a_sentence(check: dict[str, Any], text: str) -> None:
    assert search_sentences.loss_check(typed(LossCheck, CHECK | check)) == text


@pytest.mark.parametrize(
    ("search", "lines"),
    [
        ({"learning": "c"}, ["c"]),
        ({"learning": "c", "rate_fixed": "f", "limits": {"learning_rate": "linear"}},
         ["the learning rate is not scaled: f", "c"]),
        ({"rate_fixed": "f", "limits": {"learning_rate": "keep"}}, []),
    ],
)  # fmt: skip
def test_what_the_search_has_concluded_from_the_losses(search: dict[str, Any], lines: list[str]) -> None:
    assert search_sentences.learnt(searched(search)) == lines


LINEAR = ("the same command with --learning-rate linear (sqrt for adam) and --warmup-steps N scales the learning rate "
          "with the batch size, which often mends the loss")  # fmt: skip
ALLOW = "with --allow-worse-loss the fastest settings are chosen although they learn worse"


@pytest.mark.parametrize(
    ("search", "lines"),
    [
        ({"losses": [CHECK | {"decision": "no worse"}]}, []),
        ({"losses": [CHECK]}, [LINEAR, ALLOW]),
        ({"losses": [CHECK | {"settings": XLA}]}, [ALLOW]),
        ({"losses": [CHECK, CHECK | {"settings": XLA}]}, [LINEAR, ALLOW]),
        ({"losses": [CHECK | {"settings": XLA}, CHECK | {"decision": "no worse"}]}, [ALLOW]),
        ({"losses": [CHECK], "limits": {"learning_rate": "sqrt"}}, [ALLOW]),
        ({"losses": [CHECK], "limits": {"allow_worse_loss": True}}, [LINEAR]),
        ({"losses": [CHECK], "rate_fixed": "f"}, ["a lower loss may need another learning rate, which only your code "
         "can set: f", ALLOW]),
    ],
)  # fmt: skip
def test_what_may_be_done_about_a_worse_loss(search: dict[str, Any], lines: list[str]) -> None:
    search["limits"] = {"learning_rate": "keep"} | search.get("limits", {})
    assert search_sentences.next_steps(searched(search, state="running")) == lines


AGAIN = "gputui tune --resume p goes on with it"


@pytest.mark.parametrize(
    ("search", "more", "saved", "lines"),
    [
        ({}, {"state": "stopped"}, False, [AGAIN]),
        ({}, {"state": "crashed"}, False, [AGAIN]),
        ({}, {"state": "running", "comparisons": [{"changes": XLA}]}, False, []),
        ({"unproved": XLA}, {}, False, ["gputui tune --resume p --minutes 3 gives it more time, to prove them",
         "gputui proof p -o fastest.yaml saves the fastest preset, marked as not proved"]),
        ({}, {"changes_kept": XLA, "comparisons": [{"changes": XLA}]}, False,
         ["gputui proof p -o fastest.yaml saves the fastest preset",
          "gputui proof p --markdown > report.md writes the report"]),
        ({}, {"changes_kept": XLA}, True, []),
        ({}, {"ended_because": "the time budget of 2 min allows no more"}, False,
         ["not everything was tried: gputui tune --resume p --minutes N tries the rest in N more minutes"]),
        ({}, {"ended_because": "every option has been tried"}, False, []),
    ],
)  # fmt: skip
def test_the_commands_that_can_follow(search: dict[str, Any], more: dict[str, Any], saved: bool, lines: Any) -> None:
    assert search_sentences.next_steps(searched(search, **more), saved) == lines


@pytest.mark.parametrize(
    ("search", "more", "text"),
    [
        ({"limits": {"dry_run": True}}, {}, "it has only predicted the memory; gputui tune --preset NAME searches"),
        ({}, {}, "every option was tried, and nothing is faster than the preset: there is nothing to measure with more "
         "minutes"),
        ({}, {"changes_kept": XLA}, "every option was tried, and its gain is proved: there is nothing to measure with "
         "more minutes"),
        ({}, {"state": "stopped"}, ""),
        ({"unproved": XLA}, {}, ""),
        ({"limits": {"wide": "after"}}, {}, ""),
        ({}, {"ended_because": "the time budget of 2 min"}, ""),
    ],
)  # fmt: skip
def test_why_more_minutes_would_change_nothing(search: dict[str, Any], more: dict[str, Any], text: str) -> None:
    assert search_sentences.nothing_to_measure(searched(search, **more)) == text


@pytest.mark.parametrize(
    ("seconds", "repeats", "minutes"), [((), 3, 3), ((10.0, 20.0, 99.0), 3, 3), ((60.0,), 5, 15), ((1.0,), 3, 2)]
)
def test_the_minutes_that_are_enough_for_the_pairs(seconds: tuple[float, ...], repeats: int, minutes: int) -> None:
    trials = [{"run": str(n), "outcome": "ok", "seconds": each} for n, each in enumerate(seconds)]
    assert search_sentences.more_minutes(searched({}, baseline_trials=trials, repeats=repeats)) == minutes


def test_the_limits_of_a_search_in_its_report() -> None:
    limits = {"minutes": 2.5, "only": ["xla", "input"], "leave": ["input.shuffle"], "largest_batch": 2048,
              "memory_bytes": 2 * GIB, "precisions": ["float32"], "avoid_precisions": ["mixed_float16"],
              "learning_rate": "keep"}  # fmt: skip
    assert next(markdown.sections(searched({"limits": limits}))) == (
        "Limits: 2.5 minutes; searched: xla, input; left as they are: input.shuffle; global batch at most 2,048; "
        "memory at most 2.0 GiB; precision: float32; precision: not mixed_float16; learning rate: keep."
    )


# ---- results ----------------------------------------------------------------------------------------

FASTER_BUT_WORSE: dict[str, Any] = {
    "before_speed": 100.0, "best_speed": 150.0, "best": XLA | CACHE, "candidates": [
        {"settings": XLA, "tried": XLA, "decision": "kept", "samples_per_second": 120.0},
        {"settings": XLA | CACHE, "tried": CACHE, "decision": "kept", "samples_per_second": 150.0},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("search", "more", "gain", "in_all"),
    [
        ({"before_speed": 100.0, "best_speed": 150.0}, {}, 0.5, (0.5, None, False)),
        ({"before_speed": 100.0, "best_speed": 100.0}, {}, None, (None, None, False)),
        ({"before_speed": None, "best_speed": 150.0}, {}, None, (None, None, False)),
        ({"before_speed": 100.0, "best_speed": None}, {}, None, (None, None, False)),
        ({"before_speed": 100.0, "best_speed": 150.0}, {"gain_total": 1.4, "comparisons": [
            {"changes": XLA, "decision": "rejected", "gain": 9.0}, {"changes": XLA, "decision": "kept", "gain": 0.4,
             "spread": 0.1}]}, 0.5, (0.4, 0.1, True)),
        ({"before_speed": 100.0, "best_speed": 150.0}, {"gain_total": 1.4, "comparisons": [
            {"changes": CACHE, "decision": "kept", "gain": 9.0}, {"changes": XLA, "decision": "kept", "gain": 0.4,
             "spread": 0.1}]}, 0.5, (0.4, 0.1, True)),
        ({"before_speed": 100.0, "best_speed": 150.0}, {"gain_total": 1.4, "comparisons": []}, 0.5, (0.5, None, False)),
        # The fastest settings are not chosen: nothing is, or slower ones.
        (FASTER_BUT_WORSE, {}, 0.5, (None, None, False)),
        (FASTER_BUT_WORSE | {"unproved": XLA}, {}, 0.5, (pytest.approx(0.2), None, False)),
    ],
)  # fmt: skip
def test_the_gain_so_far_and_in_all(search: dict[str, Any], more: dict[str, Any], gain: Any, in_all: Any) -> None:
    record = searched(search, **more)
    assert (search_results.gain_so_far(record), search_results.in_all(record)) == (gain, in_all)


@pytest.mark.parametrize(
    ("more", "decided", "chosen"),
    [
        ({"state": "running", "comparisons": []}, False, BATCH),
        ({"state": "running", "comparisons": [{"changes": XLA}, {"changes": CACHE}]}, False, CACHE),
        ({"state": "stopped", "comparisons": []}, False, BATCH),
        ({"state": "stopped", "comparisons": [{"changes": CACHE, "decision": "rejected"}]}, True, {}),
        ({"state": "done", "comparisons": [], "changes_kept": XLA}, True, XLA),
    ],
)
def test_the_chosen_settings_at_each_time(more: dict[str, Any], decided: bool, chosen: dict[str, Any]) -> None:
    record = searched({"best": BATCH}, **more)
    assert (search_results.is_decided(record), dict(search_results.chosen(record))) == (decided, chosen)


def test_what_each_option_brought() -> None:
    def tried(stage: str, change: dict[str, Any], decision: str, gain: float | None, **more: Any) -> dict[str, Any]:
        return {"stage": stage, "tried": change, "settings": change, "decision": decision, "gain": gain,
                "spread": 0.01} | more  # fmt: skip

    threads = {"input.private_threads": 8}
    candidates = [
        tried("batch_size", BATCH, "kept", 0.5, without_input=True), tried("xla", XLA, "rejected", -0.1),
        tried("input", threads, "rejected", 0.01), tried("together", CACHE | threads, "kept", 0.2),
        tried("precision", {"precision.policy": "mixed_float16"}, "running", None),
    ]  # fmt: skip
    only = ["batch_size", "xla", "input", "precision", "strategy"]
    best = BATCH | CACHE | threads
    search = {"candidates": candidates, "best": best, "limits": {"only": only}}

    def brought(**more: Any) -> dict[str, str]:
        return {option.name: f"{option.state}: {option.figures}" for option in
                search_results.brought(searched(search, **more))}  # fmt: skip

    assert brought(state="running") == {
        "batch size": "kept: +50.0 % ± 1.0 %*", "precision": "trying: being tried", "XLA": "nothing: -10.0 % ± 1.0 %",
        "strategy": "to come: to come", "input": "kept: kept", "combination": "kept: +20.0 % ± 1.0 %",
    }  # fmt: skip
    ended = brought(state="done", changes_kept=CACHE | threads)
    assert ended == {
        "batch size": "not chosen: +50.0 % ± 1.0 %*", "precision": "not tried: not tried",
        "XLA": "nothing: -10.0 % ± 1.0 %", "strategy": "not tried: not tried", "input": "kept: kept",
        "combination": "kept: +20.0 % ± 1.0 %",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "taken", "decision", "stands"),
    [(BATCH, BATCH, "kept", True), (BATCH, BATCH | {"train.learning_rate": 0.1}, "kept", True),
     (BATCH, BATCH | XLA, "kept", False), (BATCH, XLA, "kept", False), (BATCH, BATCH, "rejected", False),
     ({}, BATCH, "kept", False)],
)  # fmt: skip
def test_the_chosen_candidate(settings: Any, taken: Any, decision: str, stands: bool) -> None:
    candidate = typed(Candidate, {"settings": settings, "decision": decision})
    assert search_results.is_chosen(candidate, searched({}, changes_kept=taken)) is stands


@pytest.mark.parametrize(
    ("candidate", "state", "dropped"),
    [
        ({"tried": BATCH, "settings": BATCH, "decision": "kept"}, "done", True),  # its change is not in the end
        ({"tried": XLA, "settings": BATCH | XLA, "decision": "kept"}, "done", True),  # all of its settings are not
        ({"tried": XLA, "settings": XLA, "decision": "kept"}, "done", False),
        ({"tried": {}, "settings": BATCH | XLA, "decision": "kept"}, "done", False),  # a measurement of the best
        ({"tried": BATCH, "settings": BATCH, "decision": "rejected"}, "done", False),
        ({"tried": BATCH, "settings": BATCH, "decision": "kept"}, "running", False),
        ({"tried": XLA, "settings": BATCH | XLA, "decision": "kept"}, "running", False),
    ],
)
def test_a_candidate_is_dropped_if_the_end_has_not_chosen_what_it_brought(
    candidate: dict[str, Any], state: str, dropped: bool
) -> None:
    record = searched({"best": BATCH | XLA}, state=state, changes_kept=XLA)
    assert search_results.is_dropped(typed(Candidate, candidate), record) is dropped


def test_each_side_of_the_pairs_is_a_row_with_its_reason() -> None:
    trials = [{"side": side, "outcome": "ok", "run": side, "samples_per_second": 100.0} for side in "ab"]
    made = {"changes": XLA, "decision": "rejected", "why": "w", "gain": 0.1, "spread": 0.02, "trials": trials}
    rows = [row for row in search_results.ranked(searched({}, comparisons=[made])) if row.stage == "pairs"]
    assert [(row.reason, row.why, row.since_start, row.spread, row.decision, row.number) for row in rows] == [
        ("in pairs: the preset", "", None, None, "rejected", -2),
        ("in pairs: xla=true", "w", 0.1, 0.02, "rejected", -3),
    ]  # fmt: skip


# ---- memory -----------------------------------------------------------------------------------------

MEMORY: dict[str, Any] = {"of": "process", "limit_bytes": 10 * GIB, "largest_batch": 100, "batch_size": 64,
                          "predicted_bytes": 6 * GIB}  # fmt: skip
ABOUT = "; the largest that fits, with a tenth left free, is about 100"


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        ({}, f"batch 64 will take 6.0 GiB of the 10.0 GiB that the host has free{ABOUT}"),
        ({"of": "address_space"}, f"batch 64 will take 6.0 GiB of the 10.0 GiB that ulimit -v allows of address space"
         f"{ABOUT}"),
        ({"predicted_bytes": 10 * GIB}, f"batch 64 will take 10.0 GiB of the 10.0 GiB that the host has free{ABOUT}"),
        ({"predicted_bytes": 10 * GIB + 1}, "batch 64 will run out of memory: it would take 10.0 GiB of the 10.0 GiB "
         f"that the host has free{ABOUT}"),
        ({"batch_size": 101}, "batch 101 may run out of memory: it will take 6.0 GiB of the 10.0 GiB that the host has "
         f"free{ABOUT}"),
        ({"batch_size": 101, "at_least": True}, "batch 101 will take 6.0 GiB of the 10.0 GiB that the host has free; "
         "the largest that fits, with a tenth left free, is at least 100"),
        ({"too_large": 64}, f"batch 64 does not fit: 64 has run out of memory{ABOUT}"),
        ({"too_large": 65}, f"batch 64 will take 6.0 GiB of the 10.0 GiB that the host has free{ABOUT}"),
        ({"predicted_bytes": None, "largest_batch": None}, "batch 64 cannot be predicted from one batch size"),
        ({"largest_batch": 1, "most_batch": 1}, "batch 64 may run out of memory: it will take 6.0 GiB of the 10.0 GiB "
         "that the host has free; all up to 1, the largest that can be tried, fit with a tenth left free"),
        ({"largest_batch": 0}, "batch 64 may run out of memory: it will take 6.0 GiB of the 10.0 GiB that the host has "
         "free; even 1 is too large"),
        ({"first_step_bytes": 10 * GIB}, f"batch 64 will take 6.0 GiB of the 10.0 GiB that the host has free{ABOUT}"),
        ({"first_step_bytes": 11 * GIB}, "batch 64 will take 6.0 GiB of the 10.0 GiB that the host has free; its first "
         "step, in which cuDNN tries its algorithms, would take 11.0 GiB: it may run out of memory, or take slower "
         f"ones{ABOUT}"),
        ({"first_step_bytes": 11 * GIB, "limit_bytes": None}, f"batch 64 will take 6.0 GiB{ABOUT}"),
        ({"replicas": 2, "limit_bytes": None}, f"batch 64 on each of 2 devices will take 6.0 GiB{ABOUT}"),
    ],
)  # fmt: skip
def test_the_prediction_of_memory(memory: dict[str, Any], text: str) -> None:
    points = [{"batch_size": 64, "peak_bytes": GIB}]
    assert memory_sentences.prediction(typed(Memory, MEMORY | {"points": points} | memory)) == text


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        ({"fits": 91, "largest_batch": 100}, "batch 91 fits into 10.0 GiB"),
        ({"fits": 90, "largest_batch": 100}, "batch 100 should fit into 10.0 GiB"),
        ({"fits": 91, "largest_batch": 100, "at_least": True}, "at least batch 100 should fit into 10.0 GiB"),
        ({"fits": 100, "most_batch": 100}, "batch 100, the largest that can be tried, fits into 10.0 GiB"),
        ({"fits": 99, "most_batch": 100}, "batch 100, the largest that can be tried, should fit into 10.0 GiB"),
        ({"largest_batch": 0}, "not even batch 1 fits into 10.0 GiB"),
        ({"largest_batch": 1}, "batch 1 should fit into 10.0 GiB"),
        ({"points": [{"batch_size": 12, "peak_bytes": 1}, {"batch_size": 50, "peak_bytes": None}]},
         "batch 100 should fit into 10.0 GiB (a guess from batches up to 12)"),
        ({"points": [{"batch_size": 13, "peak_bytes": 1}]}, "batch 100 should fit into 10.0 GiB"),
    ],
)  # fmt: skip
def test_the_batch_that_should_fit(memory: dict[str, Any], text: str) -> None:
    assert memory_sentences.should_fit(typed(Memory, MEMORY | memory)) == text


def test_the_largest_batch_that_was_trained() -> None:
    point = {"batch_size": 64, "peak_bytes": 6 * GIB}

    def fitted(**more: Any) -> str:
        limits = {"dry_run": more.pop("dry_run", False)}
        memory = MEMORY | {"fits": 64, "points": [point], "largest_batch": 70} | more
        return memory_sentences.fitted(searched({"limits": limits, "memory": memory}))

    text = "batch 64 is the largest that was trained within the memory: 6.0 GiB of 10.0 GiB"
    assert fitted() == text
    assert fitted(limit_bytes=None) == text.removesuffix(" of 10.0 GiB")
    assert fitted(largest_batch=71) == f"{text}; about 71 would fit"
    assert fitted(largest_batch=71, at_least=True) == text
    assert fitted(largest_batch=None) == text
    assert fitted(too_large=90, most_batch=64) == f"{text}; 90 ran out of it"
    assert fitted(most_batch=64) == f"{text}; no larger one can be tried"
    assert fitted(dry_run=True) == ""
    assert fitted(fits=None) == (
        "no batch was found that leaves a tenth of the memory free: batch 64 takes 6.0 GiB of the 10.0 GiB that the "
        "host has free"
    )
    assert fitted(fits=None, limit_bytes=None) == ""
    assert fitted(fits=None, points=[point | {"peak_bytes": None}]) == ""
    small, other = {"batch_size": 8, "peak_bytes": 5 * GIB}, {"batch_size": 16, "peak_bytes": 2 * GIB}
    assert fitted(fits=None, points=[point, small, other], largest_batch=0, limit_is_asked=True) == (
        "no batch was found that leaves a tenth of the memory free: batch 8 takes 5.0 GiB of the 10.0 GiB that you "
        "allow; even 1 is too large"
    )
    assert fitted(fits=None, largest_batch=None).endswith(" that the host has free"), "whether 1 fits is not known"
    again = point | {"peak_bytes": 7 * GIB}
    assert fitted(points=[point, again, small]).endswith(": 7.0 GiB of 10.0 GiB"), "the most that it has taken"
    line = {"base_bytes": GIB, "bytes_per_sample": GIB / 2, "points": [point | {"predicted_bytes": 3 * GIB}]}
    assert memory_sentences.in_words(searched({"memory": MEMORY | line})) == (
        "batch 100 should fit into 10.0 GiB; 1.0 GiB + 512 MiB a sample; predictions were off by 50.0 % at most"
    )
    assert memory_sentences.in_words(searched({"memory": MEMORY | line | {"at_least": True}})) == (
        "at least batch 100 should fit into 10.0 GiB; predictions were off by 50.0 % at most"
    )
