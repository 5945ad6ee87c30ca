"""Proofs, searches and diagnoses in states that are seldom met, word for word: `__snapshots__` holds them."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from gputui.engine.trials.record import Comparison, Record
from gputui.engine.trials.search_record import Candidate
from gputui.engine.tune.report.search_results import brought, ranked
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.drawing import diagnosis, gpu_details, host, proof, proof_comparisons, rate, sweep, tune
from gputui.tui.drawing import tune_leaderboard as leaderboard
from gputui.tui.drawing.live import head, waiting
from gputui.tui.drawing.rows import Row, gauge, length, plain
from gputui.tui.reading.queue_places import Waiting
from gputui.tui.reading.run.gpu_reading import Gpu, GpuProcess, Instance
from gputui.tui.reading.run.series import Line
from gputui.tui.reading.run.snapshot import Snapshot

from tests.support import recorded_search
from tests.support.recorded_proof import DIAGNOSIS, PROOF, trials
from tests.support.recorded_search import ENDED, running
from tests.support.typed import typed
from tests.tui.test_drawn_parts import rate_test
from tests.tui.test_drawn_trials import done, swept

Drawn = Any
QUIET = ("", "value", "label", "track")  # the styles that are not written down


def text(rows: Iterable[Row]) -> str:
    """The rows with the style in front of each piece that stands out."""
    lines = ("".join(piece if style in QUIET else f"<{style}>{piece}" for piece, style in row) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def record(**fields: Any) -> Record:
    return typed(Record, copy.deepcopy(PROOF | fields))


def search(**fields: Any) -> Record:
    return typed(Record, copy.deepcopy(ENDED | fields))


# ---- proofs ------------------------------------------------------------------------------------------------------


def test_a_head_says_that_the_time_was_used_up_also_where_that_takes_a_line_more() -> None:
    late = {"state": "stopped", "ended_because": "the time budget of 2 min left 1 of 6 trials of the proof untrained"}
    heads = (proof.head(record(**fields), PROOF["started_t"], 60, PLAIN) for fields in (late, late | OTHER_REASON))
    said = [" ".join(text(head).split()) for head in heads]
    assert ["untrained" in each for each in said] == [True, False], "another reason only where there is room for it"


OTHER_REASON = {"ended_because": "what ended it is told in words of which some are left untrained"}


def test_the_heads_of_proofs_of_each_kind_and_state(snapshot: Drawn) -> None:
    started: float = PROOF["started_t"]
    undecided = PROOF["comparisons"][0] | {"decision": "undecided"}
    nothing: dict[str, Any] = {"gain_total": None, "after": None, "changes_kept": {}}
    going = {"state": "running", "doing": "pair 2 of 3", "seconds": 900.0}
    cases: dict[str, dict[str, Any]] = {
        "one pair": {"kind": "ab", "repeats": 1, "comparisons": PROOF["comparisons"][:1]},
        "chance": {"kind": "ab", "comparisons": [undecided], "gain_total": None},
        "loop without a gain": nothing | {"comparisons": [undecided]},
        "rounds": {"kind": "scaling", "comparisons": []} | nothing, "rates": {"kind": "rate"} | nothing,
        "what learns best": {"kind": "sweep"} | nothing,
        "the input": {"kind": "diagnosis", "comparisons": []} | nothing,
        "unknown kind": {"kind": "other\x1b", "measure_seconds": 0.0}, "slower": {"gain_total": 0.9},
        "waits": {"state": "waiting"}, "within its time": going | {"budget_seconds": 200.0},
        "with a range": going | {"budget_seconds": 120.0, "budget_most_seconds": 180.0},
        "late": going | {"budget_seconds": 60.0, "budget_most_seconds": 90.0}, "without a limit": going,
        "stopped": {"state": "stopped", "ended_because": "it was stopped"}, "not there": {"state": ""},
        "failed": {"state": "failed", "error": "no room", "ended_because": "no room"},
        "verdict": {"final_verdict": DIAGNOSIS, "ended_because": "nothing was left to try"},
        "verdict with more": {"final_verdict": DIAGNOSIS, "ended_because": f"{DIAGNOSIS['sentence']}; look at it"},
    }  # fmt: skip
    parts = []
    for name, fields in cases.items():
        data = record(**fields)
        parts.append(f"---- {name}, {proof.elapsed(data, started + 100.0):g} s")
        parts += [
            text(proof.head(data, started + 100.0, width, PLAIN, low)) for width, low in ((60, True), (110, False))
        ]
    assert "\n".join(parts) == snapshot


def test_a_comparison_with_trials_that_failed_or_were_disturbed(snapshot: Drawn) -> None:
    pairs = trials(("a", 100.0), ("b", 150.0), ("b", 160.0), ("a", None), ("a", 110.0), ("b", 121.0), outcome="crashed")
    busy = ["bob's python used GPU 0 for 3 s", "bob's python used GPU 0 for 5 s", "3 of 4 cores were in use"]
    disturbed = [trial | {"disturbed": busy[n % 3] if n < 4 else ""} for n, trial in enumerate(pairs)]
    alike = [trial | {"disturbed": busy[0] if n < 2 else ""} for n, trial in enumerate(pairs)]
    fields = {"changes": {"compile.xla": True}, "reason": "joins operations", "why": "+30.0 %, spread 5.0 %"}
    parts = []
    for decision in ("kept", "rejected", "faster", "no difference", "running", "failed", "odd"):
        compared = typed(Comparison, fields | {"decision": decision, "trials": pairs, "gain": 0.3, "spread": None})
        parts += [f"---- {proof_comparisons.decision(compared, PLAIN)}", text(
            proof_comparisons.detail(compared, 90, 2, PLAIN))]  # fmt: skip
    fast = [trial | ({"samples_per_second": 900.0} if trial["outcome"] == "crashed" else {}) for trial in pairs]
    for learning in ({"note": "no word"}, {"note": "", "samples": 1, "loss_a": 0.5}):
        compared = typed(Comparison, fields | {"decision": "kept", "trials": [], "learning": learning})
        parts += ["---- learning", text(proof_comparisons.detail(compared, 90, 9, PLAIN))]
    for rows, height in ((pairs, 6), (pairs, 7), (pairs[:5], 12), (disturbed, 14), (alike, 14), (fast, 14)):
        compared = typed(Comparison, fields | {"decision": "kept", "trials": rows, "gain": 0.1})
        parts += [f"---- {height} rows", text(proof_comparisons.detail(compared, 110, height, PLAIN))]
    assert "\n".join(parts) == snapshot
    assert proof_comparisons.gains(typed(Comparison, fields | {"trials": pairs})) == pytest.approx([0.5, 0.1])


def test_the_trials_of_a_diagnosis_are_rows_of_its_comparisons() -> None:
    def rows(**fields: Any) -> list[tuple[str, str, str]]:
        return [(proof_comparisons.changes(row), row.decision, "; ".join(row.notes or ()) or row.why)
                for row in proof_comparisons.compared(record(comparisons=[], **fields))]  # fmt: skip

    ablation: dict[str, Any] = {"trials": trials(("a", 100.0), ("b", 150.0)), "why": "too short"}
    without, profile = "without input: one repeated batch", "a profile of some steps"
    assert rows(state="running", ablation=ablation)[0][:2] == (without, "running")
    assert rows(state="running", ablation=ablation | {"input_cost": 0.3})[0][:2] == (without, "measured")
    assert rows(state="stopped", ablation=ablation)[0][:2] == (without, "measured")
    (trial,) = trials(("a", 90.0))
    ended = {"profile_trial": trial, "profile_missing": "XProf is not installed"}
    assert rows(state="running", profile_trial=trial)[0][:2] == (profile, "running")
    assert rows(state="running", **ended)[0][:2] == (profile, "failed")
    assert rows(state="done", **ended)[0][:2] == (profile, "failed")


# ---- searches ----------------------------------------------------------------------------------------------------


def test_searches_that_have_chosen_nothing_or_still_decide(snapshot: Drawn) -> None:
    refused = ENDED["comparisons"][0] | {"decision": "rejected", "why": "the loss is worse"}
    deciding = ENDED["comparisons"][0] | {"decision": "running", "trials": trials(("a", 100.0), ("b", 150.0))}
    none: dict[str, Any] = {"gain_total": None, "changes_kept": {}, "comparisons": []}
    sought = ENDED["search"]
    same = sought | {"best_speed": sought["before_speed"]}
    faster = running() | none | {"search": running()["search"] | {"best_speed": 900.0}}
    checks = [sought["losses"][0] | {"samples": 1000 * n, "decision": "worse" if n == 2 else "same"} for n in (1, 2, 3)]
    cases: dict[str, dict[str, Any]] = {
        "so far": faster, "so far, refused": faster | {"comparisons": [refused]},
        "losses": {"search": sought | {"losses": checks}}, "refused": none | {"comparisons": [refused]},
        "refused while it runs": running() | none | {"comparisons": [refused]},
        "deciding": running() | none | {"comparisons": [refused, deciding]}, "running": running() | none,
        "decided before": running() | none | {"comparisons": [deciding, refused]}, "as before": none | {"search": same},
        "because": {"ended_because": "the time is over"}, "nothing read": none | {"search": None, "state": "running"},
        "stopped": none | {"state": "stopped", "ended_because": "it was stopped"},
    }  # fmt: skip
    cases["no pair yet"] = running() | none | {"comparisons": [deciding | {"trials": []}]}
    parts = []
    for name, fields in cases.items():
        data = search(**fields)
        parts += [f"---- {name}, {tune.is_deciding(data)}", text(tune.head(data, 200.0, 110, PLAIN)),
                  text(tune.head(data, None, 60, PLAIN, True)), text(tune.options(data, 100, 9, PLAIN)),
                  text([tune.options_line(data, 100, PLAIN), tune.pairs_line(data, 100, PLAIN)]),
                  text(tune.pairs(data, 90, 6, PLAIN))]  # fmt: skip
    whole = proof.conclusion(search())
    repeated = "\n".join(plain(row) for row in tune.head(search(ended_because=whole), 200.0, 300, PLAIN))
    assert repeated.count(whole) == 1, "why it has ended is said once"
    assert "\n".join(parts) == snapshot


def test_the_last_pairs_of_a_search_decide() -> None:
    kept = ENDED["comparisons"][0] | {"gain": 0.5}
    refused = kept | {"decision": "rejected", "gain": 0.25}
    heads = [
        plain(tune.pairs(search(comparisons=pair), 90, 6, PLAIN)[0]) for pair in ([refused, kept], [kept, refused])
    ]
    assert [head.partition(" %")[0] for head in heads] == ["proven in pairs  +50.0", "measured in pairs  +25.0"]
    assert [len(tune.pairs(search(comparisons=[kept]), 90, height, PLAIN)) for height in (3, 6, 30)] == [3, 6, 30]


def test_the_gain_of_an_option_has_a_bar_once_it_is_final() -> None:
    going = search(**running())
    states = {option.stage: (option.state, tune.interval(option) is not None) for option in brought(going)}
    assert states == {"batch_size": ("kept", True), "precision": ("kept", True), "xla": ("trying", False),
                      "steps_per_execution": ("to come", False), "threads": ("to come", False),
                      "input": ("to come", False)}  # fmt: skip
    trying = brought(going)[0].__class__("xla", "trying", {}, 0.1, 0.01)
    assert tune.interval(trying) is None
    marked = plain(tune.options(search(), 100, 9, PLAIN)[0])
    assert marked == "what each option brought, vs. before (* no input)"
    only = copy.deepcopy(ENDED["search"])
    only["candidates"] = [each | {"gain": None} for each in only["candidates"]]
    assert plain(tune.options(search(search=only), 100, 9, PLAIN)[0]) == "what each option brought, vs. before"


def test_the_columns_of_the_leaderboard_by_its_width() -> None:
    least, start = "speed:10 start:10", "settings:18 speed:10 start:10"
    with_all = f"{least} gain:11 spread:9"
    for whole, columns in (
        (50, f"{start} outcome:14"), (51, f"{start} outcome:14"), (62, f"settings:28 {least} outcome:14"),
        (63, f"{start} gain:11 outcome:14"), (72, f"settings:27 {least} gain:11 outcome:14"),
        (73, f"{start} gain:11 memory:10 outcome:14"), (81, f"settings:26 {least} gain:11 memory:10 outcome:14"),
        (82, f"{start} gain:11 spread:9 memory:10 outcome:14"), (113, f"settings:49 {with_all} memory:10 outcome:14"),
        (114, f"settings:28 {with_all} bar:22 memory:10 outcome:14"),
        (137, f"settings:51 {with_all} bar:22 memory:10 outcome:14"),
        (138, f"settings:40 {with_all} bar:22 memory:10 outcome:14 why:12"),
        (200, f"settings:71 {with_all} bar:22 memory:10 outcome:14 why:43"),
    ):  # fmt: skip
        widths = leaderboard.widths(whole)
        assert " ".join(f"{name}:{width}" for name, width in widths.items()) == columns, whole


def test_a_candidate_with_its_newest_trials_and_its_last_end(snapshot: Drawn) -> None:
    data = search()
    ends = trials(("a", None), ("a", None), outcome="oom")
    ends[1] |= {"outcome": "timeout", "error": "too slow"}
    fields = recorded_search.candidate("xla", {"compile.xla": True}, None, None) | {"trials": ends}
    failed = typed(Candidate, fields | {"decision": "failed"})
    assert leaderboard.outcome(failed, data, PLAIN) == ("X time limit", "bad")
    many = typed(Candidate, fields | {
        "decision": "kept", "why": "+3.0 %", "reason": "joins operations", "without_input": True,
        "peak_bytes": 3 * 1024**3, "predicted_bytes": 2 * 1024**3,
        "trials": trials(("a", 90.0), ("a", 91.0), ("a", 92.0), ("a", 93.0)),
    })  # fmt: skip
    parts = [text(leaderboard.detail(each, 90, height, PLAIN)) for each in (failed, many) for height in (2, 3, 4, 9)]
    rows = ranked(data)
    of_pairs = [candidate for candidate in rows if candidate.stage == "pairs"]
    parts += [f"{candidate.number}: {leaderboard.interval(candidate)}" for candidate in (*of_pairs, rows[1])]
    for whole in (60, 82, 138, 160):
        columns = leaderboard.widths(whole)
        for candidate in rows[:4]:
            cells = leaderboard.cells(candidate, data, columns, PLAIN)
            parts.append(" | ".join(plain(cell.row) if cell.row else cell.text for cell in cells))
    assert "\n".join(parts) == snapshot


def test_the_running_trial_of_a_search_in_one_line() -> None:
    def line(now: Snapshot | None, width: int = 60) -> str:
        return plain(tune.trial_line("07-b\x1b", now, width))

    assert line(None) == "trial   none is running"
    begins = Snapshot(phase="compiling", phase_detail="XLA", phase_seconds=61.0)
    assert line(begins) == "trial   07-b?  compiling the first step 1:01"
    losses = {"loss": Line(array("d", [1.0, 2.0]), array("d", [0.5, 0.25]), last=0.25)}
    going = Snapshot(progress={"samples_per_second": 1234.5, "step_ms_p50": 12.34}, lines=losses)
    assert [line(going, width) for width in (55, 54, 41, 40, 30, 29, 23)] == [
        "trial   07-b?  1,234 samples/s  loss 0.25  step 12.3 ms", "trial   07-b?  1,234 samples/s  loss 0.25",
        "trial   07-b?  1,234 samples/s  loss 0.25", "trial   07-b?  1,234 samples/s", "trial   07-b?  1,234 samples/s",
        "trial   07-b?  loss 0.25", "trial   07-b?",
    ]  # fmt: skip
    assert line(Snapshot(progress={"samples_per_second": 5.0})) == "trial   07-b?  5 samples/s  loss -  step -"


def test_no_row_of_a_head_is_wider_than_its_screen_however_much_there_is_to_say() -> None:
    long = {"doing": "pair of trials, " * 20, "preset_name": "name" * 30, "ended_because": "it was stopped, " * 20}
    for state in ("running", "stopped", "failed"):
        for low in (False, True):
            rows = tune.head(search(**running() | long | {"state": state, "sweep": None}), 9.0, 60, PLAIN, low)
            rows += proof.head(record(**long, state=state), PROOF["started_t"] + 9.0, 60, PLAIN, low)
            assert max(map(length, rows)) <= 60, (state, low)
    assert head.wrapped("one two three four", 3) == ["one two", "three four"], "at least ten characters"


# ---- diagnoses ---------------------------------------------------------------------------------------------------


def test_stages_and_remedies_at_their_limits(snapshot: Drawn) -> None:
    def stages(*times: float | None, **more: Any) -> dict[str, Any]:
        names = ("load", "map", "batch")
        return {"stages": [{"name": name, "op": "Op", "ms_per_batch": time, "parallelism": n}
                           for n, (name, time) in enumerate(zip(names, times, strict=False), 1)]} | more  # fmt: skip

    waits, healthy = {"verdict": "input_bound", "sentence": "waits"}, {"verdict": "healthy", "sentence": "well"}
    remedies = [{"changes": {"input.cache": n}, "reason": f"reason {n}", "expected_gain": 1.5} for n in range(11)]
    parts = []
    for verdict, event, step in (
        (waits, stages(10.0, 0.049, 0.05), 5.0), (waits, stages(10.1, 3.0), 5.0), (healthy, stages(4.0, 3.0), 5.0),
        (healthy, stages(None, None), None), (healthy, stages(0.0, 1234.5, buffer_fill=0.0), 5.0),
        (waits | {"remedies": remedies[:1]}, {}, None), (waits | {"remedies": remedies}, {}, None),
        (waits | {"remedies": [{"changes": {}, "reason": "buy memory"}]}, {}, None),
        ({"verdict": "undecided", "sentence": "too few steps", "steps": 3}, {}, None),
    ):  # fmt: skip
        parts += ["----", text(diagnosis.rows(verdict, event, 100, PLAIN, step))]
    assert "\n".join(parts) == snapshot


def test_what_a_waiting_run_waits_for_in_lines_below_each_other() -> None:
    why = "all GPUs of this machine are used by other trainings"
    waits = Waiting("r7", 2, why=why, needs="2 GPUs", after="", count=3, since=10.0)
    rows = [plain(row).rstrip() for row in waiting.rows(waits, 71.0, 40, True)]
    assert rows[:8] == [
        "", "place         2 of 3", "needs         2 GPUs", "has waited    1:01", "starts        not known yet",
        "why           all GPUs of this machine", "              are used by other", "              trainings",
    ]  # fmt: skip
    assert waiting.rows(waits, 5.0, 40, True)[3] == waiting.rows(replace(waits, since=5.0), 5.0, 40, True)[3]


# ---- the machine -------------------------------------------------------------------------------------------------


def test_what_is_noteworthy_of_a_gpu() -> None:
    def rows(**fields: Any) -> list[str]:
        gpu = Gpu(0, energy_j=1.0, **fields)
        return [f"{row[1][1]}: {plain(row)}" for row in gpu_details.noteworthy_rows(gpu, 100, 9, PLAIN)]

    mine, other, hidden = (GpuProcess(n, f"p{n}", 1024.0**3, own) for n, own in ((1, True), (2, False), (3, None)))
    assert rows() == []
    assert rows(lease="free") == []
    assert rows(mig=()) == ["warn: MIG    on, no instances"]
    why = {"sm_active": "unsupported", "tensor_active": "no_permission", "dram_active": "unsupported"}
    alike = dict.fromkeys(why, "unsupported")
    said = [rows(memory_busy=0.3, reasons=reasons)[0].partition(" 30 %")[2][:19] for reasons in (why, alike)]
    assert said == [" " * 19, " others not offered"], "one reason for all of them"
    assert rows(lease="run r7") == ["value: lease  run r7"]
    assert rows(lease="run r7: get unstuck") == ["value: lease  run r7: get unstuck"]
    assert rows(lease="stuck: r7 has ended") == ["warn: lease  stuck: r7 has ended"]
    assert rows(processes=(mine, other, hidden)) == ["warn: also   p2 1.0 GiB"]
    assert rows(processes=(other,)) == [], "the run does not use this GPU"
    assert rows(processes=(other,), training=True) == ["warn: also   p2 1.0 GiB"]
    assert rows(processes=(hidden,), training=True) == [], "it may belong to the run"
    assert [len(rows(slowed={"power": share, "heat": 0.0})) for share in (0.0099, 0.01)] == [0, 1]


@pytest.mark.parametrize(("width", "shown"), [(61, 3), (60, 2), (47, 2), (46, 1), (31, 0)])
def test_the_memory_of_an_instance_is_shown_as_a_whole_or_not_at_all(width: int, shown: int) -> None:
    used = (1.0, 10.0, 0.5)
    gpu = Gpu(0, mig=tuple(Instance(n * 1024**3, 20.0 * 1024**3) for n in used))
    said = ["MIG    3 instances", "  1.0/20.0 GiB", "  10.0/20.0 GiB", "  0.5/20.0 GiB"]
    noteworthy = gpu_details.noteworthy_rows(gpu, width, 9, PLAIN)
    assert plain(noteworthy[0]) == "".join(said[: 1 + shown])
    assert plain(noteworthy[0]) in [plain(row) for row in gpu_details.whole(gpu, width, 20, PLAIN)]


def test_a_share_of_zero_is_shown_and_a_gauge_never_exceeds_what_is_used() -> None:
    now = Snapshot(host={"cpu": 0.5, "io_wait": 0.0})
    assert plain(host.host_line(now, 160, PLAIN)).split()[-4:] == ["disk", "wait", "0", "%"]
    assert [plain(gauge(10, used, 10.0, PLAIN, own, peak)) for used, own, peak in (
        (2.0, 5.0, None), (5.0, 2.0, None), (5.0, None, None), (5.0, 0.0, 8.0), (12.0, 12.0, 0.0), (0.0, None, 10.0))
    ] == ["##........", "##===.....", "#####.....", "=====..|..", "|#########", ".........|"]  # fmt: skip


def test_bars_of_equal_metrics_are_full_and_a_high_loss_stays_in_the_picture() -> None:
    whole = swept(trials=[done(1, 1e-3, 64, "cosine", 0.5), done(2, 1e-3, 32, "cosine", 0.5)])
    bars = [plain(row).count("=") for row in sweep.over_options(whole, 60, PLAIN)[1:]]
    assert bars == [60 - sweep.NAMES - sweep.FIGURES - 2] * 4
    faint, lowest, _ = rate.plot(rate_test()).curves
    assert max(faint.line.y) == pytest.approx(max(lowest.line.y) + 0.3 * (max(lowest.line.y) - min(lowest.line.y)))
