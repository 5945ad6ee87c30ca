"""What the record of a proof says while it goes on, and what follows from it later, with planted trials."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.compare.same_code import CodeRow
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.options import Options
from gputui.engine.proof import folder, improved_preset, process, proof_start, request
from gputui.engine.proof.markdown import as_markdown
from gputui.engine.proof.request import ProofError
from gputui.engine.runs import runs_folder
from gputui.engine.runs.liveness import Liveness
from gputui.engine.scaling import copies, scaling_request
from gputui.engine.scaling.rounds import Rounds
from gputui.engine.trials import proof_sentences, scaling_sentences
from gputui.engine.trials.rate_record import RateSettings, RateTest
from gputui.engine.trials.record import Record
from gputui.engine.trials.trial import Trial
from gputui.engine.trials.trial_preset import PROBE_SECONDS, as_trial
from gputui.engine.trials.trial_runner import Stop, TrialRunner

from tests.support.proving import HERE, Planted, PlantedBench, proving
from tests.support.recorded_proof import write_proof
from tests.support.typed import typed

SIXTEEN = "compile.steps_per_execution=16"


def test_the_expected_time_of_a_proof_falls_with_each_trial(tmp_path: Path) -> None:
    """Each of six trials takes 10 s, which pass for the record at once."""
    told: list[tuple[float, str]] = []
    asked = request.of_change("quickstart", [SIXTEEN])

    def figures(options: Options, before: int) -> Planted:
        record = made.record
        told.append(((record.budget_seconds or 0.0) - record.elapsed, record.doing))
        return Planted(1000.0)

    made = proving(tmp_path / "p", asked, figures)

    def pass_by(seconds: float) -> None:
        made.record.started_mark -= seconds

    made.bench.passes = pass_by
    made.prover.prove()
    assert [left for left, _ in told][2:] == pytest.approx([40.0, 30.0, 20.0, 10.0], abs=3.0)
    without, with_ = "without steps_per_execution=16", "with steps_per_execution=16"
    assert [doing for _, doing in told] == [
        f"repeat 1 of 3: {without}", f"repeat 1 of 3: {with_}", f"repeat 2 of 3: {with_}",
        f"repeat 2 of 3: {without}", f"repeat 3 of 3: {without}", f"repeat 3 of 3: {with_}",
    ]  # fmt: skip
    assert made.record.budget_most_seconds is None, "no other trials may follow"
    assert made.record.doing == f"repeat 3 of 3: {with_}", "the last words stay until others follow"


def test_a_measurement_of_scaling_says_what_it_does_and_how_long_it_takes(tmp_path: Path) -> None:
    preset = presets.defaults(["device.logical_devices=2", "batch_size=64"])
    asked = request.of_opened(
        "scaling", preset, None, scaling=scaling_request.scaling_settings(preset, HERE, (1, 2), "per-replica")
    )
    told: list[tuple[float, str]] = []

    def figures(options: Options, before: int) -> Planted:
        told.append(((record.budget_seconds or 0.0) - record.elapsed, record.doing))
        return Planted(1000.0, outcome="crashed" if before in (2, 3) else "ok")

    (tmp_path / "p").mkdir()
    record, bench = folder.empty_record(tmp_path / "p", asked), PlantedBench(tmp_path / "p" / "trials", figures)

    def pass_by(seconds: float) -> None:
        record.started_mark -= seconds

    bench.passes = pass_by
    Rounds(asked, record, bench).measure()
    one, two = "1 replica", "2 replicas"
    assert [doing for _, doing in told] == [
        f"round {n} of 3: {what}" for n, what in ((1, one), (1, two), (2, two), (2, two), (2, one), (3, one))
    ]
    assert [left for left, _ in told][2:] == pytest.approx([40.0, 30.0, 20.0, 10.0], abs=3.0)
    points = scaling_sentences.points(record)
    assert [(point.decision, point.why) for point in points] == [
        ("measured", ""), ("failed", proof_sentences.outcome(points[1].trials[-1]))]  # fmt: skip
    assert [trial.key for point in points for trial in point.trials] == [
        "1 1 1", "1 2 1", "1 3 1", "2 1 1", "2 2 1", "2 2 2"]  # fmt: skip
    assert record.scaling is not None
    assert record.scaling.rounds == 3


@pytest.mark.parametrize(("common", "outcome"), [(2.5, "ok"), (2.49, "error")])
def test_copies_have_to_train_together_for_half_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, common: float, outcome: str
) -> None:
    monkeypatch.setattr(copies, "together", lambda runs: (0.0, common, 1000.0, 20.0))
    bench = PlantedBench(tmp_path / "trials", lambda options, before: Planted(500.0, input_wait=0.25))
    row = copies.measure(bench, presets.defaults(["batch_size=50"]), 2, 1, 5.0)
    assert (row.outcome, row.samples_per_second) == (outcome, 1000.0 if outcome == "ok" else 500.0)
    if outcome == "ok":
        assert (row.step_ms, row.input_wait, row.disturbed) == (100.0, 0.25, ""), "of each copy"


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        ("oom", "round 2: oom: no room"),
        ("ok", "round 2: 1,000 samples/s, step 64 ms, input wait 5 %, whole time 9.0 s"),
    ],
)
def test_a_trial_of_a_round_is_a_line(outcome: str, text: str) -> None:
    error = None if outcome == "ok" else "no room"
    row = Trial(side="2", repeat=2, run="01-2", outcome=outcome, samples_per_second=1000.0, step_ms=64.0,
                input_wait=0.05, seconds=9.0, error=error)  # fmt: skip
    assert scaling_sentences.trial(row) == text


# ---- trials -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "timed"), [(PROBE_SECONDS, False), (2 * PROBE_SECONDS, True), (None, True)])
def test_only_a_probe_may_end_without_a_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float | None, timed: bool
) -> None:
    asked: list[bool] = []

    def carried_out(self: TrialRunner, prepare: Any, side: str, repeat: int, judge: Any, timed: bool) -> Trial:
        asked.append(timed)
        return Trial(side=side, repeat=repeat, run="01-a", outcome="ok")

    monkeypatch.setattr(TrialRunner, "_carried_out", carried_out)
    with TrialRunner(tmp_path, tmp_path, 1, 5.0, HERE, Stop()) as bench:
        bench.measure(presets.defaults(), "a", 1, seconds=seconds)
    assert asked == [timed]


@pytest.mark.parametrize(
    ("given", "most_seconds", "minutes"),
    [("null", float("inf"), 16.2), ("20", float("inf"), 16.2), ("3", float("inf"), 4.2), ("3", 60.0, 1.0)],
)
def test_a_trial_has_a_quarter_of_an_hour_to_start_and_many_times_its_measured_seconds(
    given: str, most_seconds: float, minutes: float
) -> None:
    preset = presets.defaults([f"run.max_minutes={given}"])
    made = as_trial(preset, 7, 6.0, HERE, most_seconds=most_seconds).options
    assert made.run.max_minutes == pytest.approx(minutes)
    assert (made.train.seed, made.train.epochs, made.run.measure_seconds, made.run.profile) == (7, 1, 6.0, "off")


# ---- the folder -------------------------------------------------------------------------------------

ELSEWHERE = {"host": "node7", "boot_id": "another", "pid_namespace": "1"}


@pytest.mark.parametrize(
    ("ago", "state", "live"),
    [(30.0, "running", Liveness(engine=True, host="node7")), (-30.0, "running", Liveness(engine=True, host="node7")),
     (90.0, "crashed", Liveness())],
)  # fmt: skip
def test_a_proof_of_another_machine_goes_on_while_its_record_is_new(
    home: Path, ago: float, state: str, live: Liveness
) -> None:
    now = time.time()
    proof = write_proof(home, state="running", pid=1, started_t=now - 500.0 - ago, seconds=500.0, **ELSEWHERE)
    assert (proof.state, proof.liveness(proof.record)) == (state, live)
    if state == "running":
        with pytest.raises(ProofError) as refused:
            folder.request_stop(proof)
        assert str(refused.value) == (f"{proof.id} is running on node7; stop it there: gputui proof {proof.id} --stop")


def test_two_proofs_or_a_run_of_the_same_second_have_names_of_their_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "strftime", lambda form: "20261127-010203")
    asked = request.of_opened("ab", presets.defaults(), None)
    (runs_folder() / "20261127-010203-default-2").mkdir(parents=True)
    (home / "queue").mkdir()
    (home / "queue" / "20261127-010203-default-3.json").write_text("{}")
    assert [folder.create(asked).id for _ in range(2)] == ["20261127-010203-default", "20261127-010203-default-4"]


def test_a_part_of_an_id_that_several_proofs_have_names_none(home: Path) -> None:
    names = [write_proof(home, f"2026112{n}-130000-cnn").id for n in range(4)]
    with pytest.raises(ProofError) as refused:
        folder.find("cnn")
    first = ", ".join(proof.id for proof in folder.proofs()[:3])
    assert str(refused.value) == f"'cnn' matches 4 proofs ({first} ...); give more of the id"
    assert folder.find(names[1]).id == names[1]
    assert folder.find("20261122").id == names[2]


@pytest.mark.parametrize(
    ("fields", "more", "text"),
    [
        ({"kind": "loop"}, {}, "P is not a search; only what gputui tune has started can be resumed"),
        ({"ended_because": "all was tried"}, {}, "P has ended (all was tried); gputui proof P shows it"),
        ({"ended_because": ""}, {"with_more": "give more minutes"}, "P has ended; give more minutes"),
        ({"ended_because": ""}, {"has_more": True}, ""),
        ({"state": "stopped"}, {}, ""),
    ],
)
def test_why_a_proof_is_not_resumed(home: Path, fields: dict[str, Any], more: dict[str, Any], text: str) -> None:
    proof = write_proof(home, **{"kind": "tune"} | fields)
    asked = request.of_opened(fields.get("kind", "tune"), presets.defaults(), None)
    (proof.path / "request.json").write_text(asked.to_json())

    def why() -> str:
        try:
            proof_start.refuse_to_resume(proof, "tune", "a search", "gputui tune", **more)
        except ProofError as fault:
            return str(fault)
        return ""

    assert why() == text.replace("P ", f"{proof.id} ")
    if not text:
        (home / "queue").mkdir()
        (home / "queue" / f"{proof.id}.json").write_text('{"kind": "proof", "state": "waiting"}')
        assert why() == f"{proof.id} waits in the queue; gputui queue shows why"


def test_a_resumed_proof_that_had_failed_measures_again_what_had_failed(home: Path) -> None:
    asked = request.of_opened("tune", presets.defaults(), None)
    rows: list[dict[str, Any]] = [
        {"side": "a", "repeat": 1, "run": f"0{n}-a", "outcome": outcome}
        for n, outcome in enumerate(("ok", "error", "oom"), 1)
    ]
    for state, outcomes in (("failed", ["ok"]), ("stopped", ["ok", "error", "oom"])):
        proof = write_proof(home, f"20261127-{state}", state=state, pid=1, comparisons=[], baseline_trials=rows)
        record = folder.empty_record(proof.path, asked)
        kept = [trial.outcome for trial in process._go_on(proof.path, record)]
        assert kept[:1] == outcomes[:1]
        assert [outcome for outcome in kept if outcome != "ok"] == outcomes[1:], kept
        assert record.elapsed == pytest.approx(262.0, abs=5.0), "its earlier time counts"


def test_the_machine_of_a_proof_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request.of_opened("ab", presets.defaults(), None)
    monkeypatch.setattr(this_machine, "read", lambda: Machine((), "none planted", 2, 16 * 2**30))
    record = folder.empty_record(tmp_path, asked)
    site = process._site(tmp_path, asked, record, Stop(), [])
    known = {name: record.machine[name] for name in ("cpus", "memory_bytes", "gpus", "no_gpu_reason")}
    assert known == {"cpus": 2, "memory_bytes": 16 * 2**30, "gpus": [], "no_gpu_reason": "none planted"}
    assert (site.bench.seed, site.bench.measure_seconds) == (asked.seed, asked.measure_seconds)


# ---- reports ----------------------------------------------------------------------------------------


def test_the_section_of_a_comparison_is_what_was_tried_and_what_came_of_it() -> None:
    trials = [{"side": side, "repeat": 1, "run": f"01-{side}", "outcome": "ok"} for side in "ab"]
    without = {"changes": {"compile.xla": True}, "decision": "failed", "why": "oom", "reason": "r"}
    learning = {"note": "n", "samples": 10, "loss_a": 1.0, "loss_b": 2.0}
    measured = without | {"decision": "kept", "why": "", "trials": trials, "expected_gain": 1.5, "learning": learning}

    def sections(kind: str) -> list[str]:
        record = typed(Record, {"kind": kind, "state": "done", "repeats": 3, "comparisons": [without, measured]})
        _, first, second = as_markdown(record).partition("## The preset")[0].split("\n## ")
        return [first.strip(), second.strip()]

    table = "| trial | side | repeat | whole time | outcome |\n| --- | --- | --- | --- | --- |\n"
    rows = "| 01-a | without | 1 | 0.0 s | ok |\n| 01-b | with | 1 | 0.0 s | ok |"
    losses = "Note: n; loss after 10 samples: 1 without, 2 with."
    assert sections("loop") == [
        "1. `xla=true`: failed\n\nWhy tried: r. Result: oom.",
        "2. `xla=true`: kept\n\nWhy tried: r. Expected: at most 1.50 times as fast. Result: none.\n\n"
        f"{table}{rows}\n\n{losses}",
    ]
    assert sections("tune")[0] == "Proof: `xla=true`: failed\n\nWhy tried: r. Result: oom."
    assert sections("ab")[0] == "`xla=true`: failed\n\nResult: oom."


@pytest.mark.parametrize(
    ("fields", "text"),
    [({"state": "running"}, "it is being read"), ({"state": "done"}, "no profile: it was not read"),
     ({"state": "running", "profile_missing": "m"}, "no profile: m")],
)  # fmt: skip
def test_why_there_is_no_profile(fields: dict[str, Any], text: str) -> None:
    assert proof_sentences.profile_in_brief(typed(Record, fields)) == [text]


def test_the_cell_of_a_run_names_two_of_its_files() -> None:
    row = CodeRow(("a1", "", "c3", "d4"), ((), ("x.py", "y.py"), ("x.py", "y.py", "z.py"), None), (0, 1, 2, 3))
    assert [row.text(place) for place in range(4)] == [
        "a1", "differs: x.py, y.py", "differs: x.py, y.py +1 (c3)", "d4"]  # fmt: skip
    assert replace(row, differing=((), (), (), ())).text(2) == "same (c3)"


def test_the_report_says_how_the_whole_gain_was_measured() -> None:
    kept = {"changes": {"compile.xla": True}, "decision": "kept", "gain": 0.5}
    sides = {"before": {"samples_per_second": 100.0}, "after": {"samples_per_second": 164.0}, "gain_total": 1.5}

    def said(kind: str, count: int, **more: Any) -> str:
        record = typed(Record, {"kind": kind, "state": "done", "repeats": 3, "comparisons": [kept] * count, **sides}
                       | more)  # fmt: skip
        return as_markdown(record).partition("## Before and after")[2].strip()

    one = "1.50 times as fast (the median gain of the pairs; the table has the figures of that pair)."
    assert one in said("loop", 1)
    assert "1.50 times as fast (the smaller of two figures: the gains of what is kept, multiplied," in said("loop", 2)
    assert one in said("ab", 1)
    after = {"preset_after": "train: {}\n"}
    assert said("loop", 1, **after).endswith("## The resulting preset\n\n```yaml\ntrain: {}\n```")
    named = said("loop", 1, **after, changes_kept={"compile.xla": True})
    assert named.endswith("## The resulting preset (xla=true)\n\n```yaml\ntrain: {}\n```")


def test_the_comments_of_a_schedule_that_follows_the_batch() -> None:
    changes = {"input.batch_size": 64, "train.learning_rate": 0.002, "train.decay_steps": 50, "train.warmup_steps": 7}

    def comments(**limits: Any) -> dict[str, str]:
        search = {"limits": {"learning_rate": "sqrt"} | limits}
        record = typed(Record, {"kind": "tune", "state": "done", "changes_kept": changes, "search": search,
                                "gain_total": 1.5})  # fmt: skip
        return improved_preset.reasons(record, {})

    rate = "scaled by the square root of the batch size"
    as_many = "as many samples as before, with another batch size"
    assert comments() == {
        "train.learning_rate": rate, "train.decay_steps": as_many, "train.warmup_steps": as_many}  # fmt: skip
    given = comments(warmup_steps=7)
    assert given["train.warmup_steps"] == "asked for, with the scaled learning rate"
    assert comments(learning_rate="keep") == {}


def test_the_comment_of_a_batch_size_names_the_fastest_that_learns_worse() -> None:
    checks = [{"settings": {"input.batch_size": batch}, "decision": decision, "of": "validation", "loss_a": 0.5,
               "loss_b": 0.25} for batch, decision in ((512, "worse"), (128, "worse"), (64, "no worse"))]  # fmt: skip
    changes = {"input.batch_size": 64}
    record = typed(Record, {"kind": "tune", "state": "done", "changes_kept": changes, "search": {"losses": checks}})
    assert improved_preset.reasons(record, {}) == {
        "input.batch_size": "512 is faster and learns worse; validation loss 0.25, 0.5 with the preset's"
    }


def test_a_request_that_measures_nothing_or_chooses_its_gpus_is_known() -> None:
    made = request.of_opened("ab", presets.defaults(), None)
    with pytest.raises(ProofError, match="the seconds to measure must be more than 0"):
        request.refuse(replace(made, measure_seconds=0.0), HERE)
    with pytest.raises(ProofError, match="at least 3 repeats are needed: fewer do not show their spread"):
        request.refuse(replace(made, repeats=2), HERE)
    request.refuse(replace(made, repeats=3, measure_seconds=0.1), HERE)
    request.refuse(replace(made, kind="diagnosis", repeats=1), HERE)
    free = request.of_opened("ab", presets.defaults(["device.visible=free:1"]), None)
    assert (free.chooses_gpus, made.chooses_gpus) == (True, False)
    seeds = [request.of_opened("ab", presets.defaults([f"train.seed={seed}"]), None).seed for seed in (0, 7)]
    assert seeds == [0, 7]
    drawn = {request.of_opened("ab", presets.defaults(["train.seed=null"]), None).seed for _ in range(5)}
    assert len(drawn) > 1, "without one it is drawn"
    assert replace(made, preset="train: {no: 1}\n").chooses_gpus is False, "that is reported when it is used"
    note = "note: input.cache: trials are measured with a filled cache; the preset trains one pass"
    for epochs, noted in ((1, True), (2, False)):
        once = request.of_opened("ab", presets.defaults([f"train.epochs={epochs}"]), None)
        assert (note in request.remarks(replace(once, changes={"input.cache": "memory"}), HERE)) is noted


def test_one_copy_is_measured_for_the_given_time_and_keeps_its_disturbance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Disturbed(PlantedBench):
        def measure(self, *given: Any, **more: Any) -> Trial:
            row = super().measure(*given, **more)
            row.disturbed = "heat"
            return row

    monkeypatch.setattr(copies, "together", lambda runs: (0.0, 3.0, 1000.0, 10.0))
    bench = Disturbed(tmp_path / "trials", lambda options, before: Planted(500.0))
    assert copies.measure(bench, presets.defaults(), 1, 1, 3.0).disturbed == "heat"
    assert bench.asked[0].run.measure_seconds == 3.0
    assert copies.measure(bench, presets.defaults(), 2, 1, 3.0).disturbed == "", "the other copy"


def test_replicas_that_share_a_gpu_are_said_to_do_so() -> None:
    gpu = replace(HERE, gpus=(Gpu(0, "GPU-0", "a GPU", (9, 0), 80 * 2**30),))
    parts = presets.defaults(["device.logical_devices=2", "batch_size=64"])
    assert scaling_request.scaling_settings(parts, gpu, (1, 2), "per-replica").shared == "replicas share a GPU"


def test_the_suggestion_of_a_range_test_is_a_change_of_the_preset() -> None:
    test = RateTest(settings=RateSettings(), before=0.001)
    assert (test.changes, replace(test, suggested=0.01).changes) == ({}, {"train.learning_rate": 0.01})


def test_a_measurement_waits_until_nothing_is_in_its_way_and_names_each_obstacle_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = request.of_opened("ab", presets.defaults(), None)
    obstacles = ["the run a", "the run a", "the run b", ""]
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(proof_start, "blocks", lambda request, here, but=None: obstacles.pop(0))
    told: list[str] = []
    proof_start.wait(made, told.append, lambda: False)
    assert (told, obstacles) == (["waiting: the run a", "waiting: the run b"], [])
    obstacles.append("the run c")
    proof_start.wait(made, told.append, lambda: True)
    assert obstacles == ["the run c"], "it is given up before it looks"
    with pytest.raises(proof_start.BlockedError) as blocked:
        proof_start.begin(made, trains_on=HERE)
    assert str(blocked.value) == (
        "the run c: figures measured at the same time would be worthless; wait for it (--wait), or give --anyway"
    )
    free = request.of_opened("ab", presets.defaults(["device.visible=free:1"]), None)
    assert str(proof_start.BlockedError(free, "no GPU is free")) == "no GPU is free\nwait for it (--wait)"
    launched: list[object] = []
    monkeypatch.setattr(proof_start, "launch", launched.append)
    proof_start.begin(made, anyway=True, trains_on=HERE)
    assert launched == [made]
