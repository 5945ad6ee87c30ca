"""The search for the fastest settings, on trainings whose figures are planted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.options import Options
from gputui.engine.proof import request
from gputui.engine.proof.request import Request
from gputui.engine.trials import proof_sentences
from gputui.engine.trials.comparing import BaselineFailed
from gputui.engine.trials.record import Record
from gputui.engine.trials.search_record import Candidate, Limits
from gputui.engine.trials.trial import Trial
from gputui.engine.tune import tune_request
from gputui.engine.tune.report.search_results import brought
from gputui.engine.tune.stages import recheck

from tests.support.proving import HERE, Planted, searching
from tests.support.typed import as_read, typed

MIB = 2**20
PIPELINE = "input.parallel_calls=off", "input.prefetch=off", "input.cache=off"


def asked(*settings: str, **limits: Any) -> Request:
    """A search from quickstart with batches of 32 of 1000 samples."""
    given = ("batch_size=32", "train.seed=1", *settings)
    return request.of_preset("tune", "quickstart", given, search=tune_request.checked(Limits(**limits)))


def device_speed(options: Options) -> float:
    """Rises with the batch size up to 64, is a fifth more with 4 steps together, and a tenth less with XLA."""
    batch, together = options.input.batch_size, options.compile.steps_per_execution
    speed = 1000 * {8: 0.6, 16: 0.7, 32: 0.8, 40: 0.88, 64: 1.0, 96: 1.01, 100: 1.01}[batch]
    return speed * (1.2 if together >= 4 else 1.0) * (0.9 if options.compile.xla is True else 1.0)


def fast_input(options: Options, before: int) -> Planted:
    taken = (10 + options.input.batch_size) * MIB
    return Planted(samples_per_second=device_speed(options), peak_memory_bytes=taken, loss=2.0)


def slow_input(most: float) -> Any:
    """No more samples a second than that, until they are cached."""

    def figures(options: Options, before: int) -> Planted:
        at_most = 10_000.0 if options.input.one_batch or options.input.cache == "memory" else most
        speed = device_speed(options)
        return Planted(samples_per_second=min(at_most, speed), input_wait=max(0.0, 1 - at_most / speed), loss=2.0)

    return figures


def test_each_option_is_tried_in_its_turn_and_only_what_is_faster_is_kept(tmp_path: Path) -> None:
    searcher, bench = searching(tmp_path / "p", asked(), fast_input)
    searcher.run()
    stages = list(dict.fromkeys(one.stage for one in searcher.search.candidates))
    assert stages == ["baseline", "ceiling", "batch_size", "steps_per_execution", "xla", "threads", "together"]
    assert searcher.record.changes_kept == {"input.batch_size": 64, "compile.steps_per_execution": 4}
    assert searcher.record.gain_total == pytest.approx(1.0 * 1.2 / 0.8)
    assert searcher.search.memory is not None
    assert searcher.search.memory.bytes_per_sample == pytest.approx(MIB)
    decided = searcher.record.comparisons[-1]
    assert (len(decided.good("a")), len(decided.good("b")), decided.decision) == (3, 3, "kept")
    assert len(bench.asked) < 24


def test_a_batch_that_is_hardly_larger_is_not_tried(tmp_path: Path) -> None:
    searcher, _ = searching(tmp_path / "p", asked(largest_batch=70, only=["batch_size", "xla"]), fast_input)
    searcher.run()
    sizes = [one.tried["input.batch_size"] for one in searcher.search.candidates if one.stage == "batch_size"]
    assert sizes == [64]


def test_a_slow_input_is_made_faster_until_its_ceiling_is_reached(tmp_path: Path) -> None:
    searcher, _ = searching(tmp_path / "p", asked(*PIPELINE), slow_input(700.0))
    searcher.run()
    search = searcher.search
    assert search.ceiling == pytest.approx(1200)
    assert search.best_speed == pytest.approx(1200)
    assert searcher.record.changes_kept["input.cache"] == "memory"
    assert [one.stage for one in search.candidates if one.tried and one.without_input] == [
        "batch_size",
        "batch_size",
        "steps_per_execution",
        "xla",
    ]  # the input would have hidden what they gain
    tried = [one for one in search.candidates if one.stage == "input" and one.tried]
    assert [one.decision for one in tried] == ["kept"]


def test_the_input_comes_first_where_the_training_waits_for_it(tmp_path: Path) -> None:
    """For more than a fifth of its time: what is advised for any input; if that does not help, all of its options."""
    searcher, _ = searching(tmp_path / "p", asked(*PIPELINE), slow_input(500.0))
    searcher.run()
    first = next(one for one in searcher.search.candidates if one.tried)
    assert (first.stage, first.tried["input.cache"], first.decision) == ("input", "memory", "kept")
    assert searcher.search.best_speed == pytest.approx(1200), "the other options follow"
    assert searcher.search.ceiling == pytest.approx(800), "as it was when the input was no longer waited for"

    searcher, _ = searching(tmp_path / "q", asked(*PIPELINE, leave=["input.cache"]), slow_input(500.0))
    searcher.run()
    stages = [one.stage for one in searcher.search.candidates if one.tried]
    assert stages.index("batch_size") == 5, "all options of the input come first"
    assert next(one for one in searcher.search.candidates if one.stage == "batch_size").without_input


def test_a_resumed_search_measures_nothing_twice_and_arrives_at_the_same(tmp_path: Path) -> None:
    wanted = asked()
    first, bench = searching(tmp_path / "p", wanted, fast_input)
    first.run()
    half = first.record.trials[:5]
    for trial in half:
        shutil.copytree(bench.folder / trial.run, tmp_path / "q" / "trials" / trial.run)
    again, more = searching(tmp_path / "q", wanted, fast_input, half)
    again.run()
    assert len(more.asked) == len(bench.asked) - 5
    assert again.record.changes_kept == first.record.changes_kept
    assert [one.tried for one in again.search.candidates] == [one.tried for one in first.search.candidates]


def test_what_dies_once_is_measured_again_in_the_decision_and_by_a_resumed_search(tmp_path: Path) -> None:
    """A trial for the loss and one of a pair; and the preset itself, which ends a search that is then gone on with."""
    whole, _ = searching(tmp_path / "p", asked(), fast_input)
    whole.run()
    of_loss, of_pair = whole.search.losses[0].trials[0].run, whole.record.comparisons[-1].good("a")[0].run
    dead = {int(of_loss[:2]) - 1, int(of_pair[:2])}  # the second a trial later, as the first is repeated

    def dying(options: Options, before: int) -> Planted:
        return Planted(outcome="crashed") if before in dead else fast_input(options, before)

    searcher, _ = searching(tmp_path / "q", asked(), dying)
    searcher.run()
    assert [trial.side for trial in searcher.record.trials if trial.outcome == "crashed"] == ["a", "a"]
    assert searcher.record.changes_kept == whole.record.changes_kept
    failed, _ = searching(tmp_path / "r", asked(), lambda options, before: Planted(outcome="crashed"))
    with pytest.raises(BaselineFailed, match="crashed"):
        failed.run()
    again, _ = searching(tmp_path / "r", asked(), fast_input, failed.record.trials)
    again.run()
    assert again.record.changes_kept == whole.record.changes_kept


@pytest.mark.parametrize("outcome", ["oom", "error", "timeout", "crashed"])
def test_no_trial_ends_the_search(tmp_path: Path, outcome: Any) -> None:
    def figures(options: Options, before: int) -> Planted:
        changed = options.input.batch_size != 32 or options.compile.steps_per_execution > 1
        return Planted(outcome=outcome) if changed or options.compile.xla is True else Planted()

    searcher, _ = searching(tmp_path / "p", asked(), figures)
    searcher.run()
    tried = [one for one in searcher.search.candidates if one.tried and one.stage != "threads"]
    assert {one.decision for one in tried} == {"failed"}
    assert all(outcome in one.why for one in tried)
    assert searcher.record.comparisons == []
    searcher.record.write()
    said = proof_sentences.conclusion(typed(Record, json.loads(searcher.record.path.read_text())))
    assert "nothing is faster" in said
    assert "nothing is faster" not in searcher.record.ended_because, "the conclusion says it"


def test_the_batch_size_is_bisected_until_no_larger_one_is_worth_a_trial(tmp_path: Path) -> None:
    """Memory of an unknown size ends above 80 samples."""

    def figures(options: Options, before: int) -> Planted:
        batch = options.input.batch_size
        return Planted(samples_per_second=1000.0 + 10 * batch) if batch <= 80 else Planted(outcome="oom")

    searcher, bench = searching(tmp_path / "p", asked(only=["batch_size"], largest_batch=400), figures)
    searcher.run()
    tried = list(dict.fromkeys(options.input.batch_size for options in bench.asked))
    assert tried[:5] == [32, 64, 128, 96, 80]
    assert searcher.record.changes_kept == {"input.batch_size": 80}


def test_a_preset_that_cannot_be_measured_ends_it(tmp_path: Path) -> None:
    searcher, _ = searching(tmp_path / "p", asked(), lambda options, before: Planted(outcome="error"))
    with pytest.raises(BaselineFailed, match="error"):
        searcher.run()


def test_only_what_the_limits_allow_is_tried(tmp_path: Path) -> None:
    limits = {"only": ["batch_size", "xla"], "leave": ["xla"], "largest_batch": 64}
    searcher, bench = searching(tmp_path / "p", asked(**limits), fast_input)
    searcher.run()
    assert {options.input.batch_size for options in bench.asked} == {32, 64}
    assert {options.compile.xla for options in bench.asked} == {bench.asked[0].compile.xla}
    assert HERE.cpus == 2


def test_what_chance_has_rejected_is_measured_once_more(tmp_path: Path) -> None:
    """The first trial with 31 steps together has bad luck; 16 of them, the fastest, follow when 31 have gained."""
    unlucky: list[Options] = []

    def figures(options: Options, before: int) -> Planted:
        together = options.compile.steps_per_execution
        speed = 10_000 * {1: 1.0, 4: 1.3, 16: 1.4, 31: 1.2}[together]
        if together == 31 and not unlucky:
            unlucky.append(options)
            speed *= 0.82
        return Planted(samples_per_second=speed, loss=2.0)

    searcher, bench = searching(tmp_path / "p", asked(only=["steps_per_execution"]), figures)
    searcher.run()
    most = next(one for one in searcher.search.candidates if one.tried == {"compile.steps_per_execution": 31})
    assert [round(trial.samples_per_second or 0) for trial in most.good] == [9840, 12_000]
    assert searcher.record.changes_kept == {"compile.steps_per_execution": 16}
    assert len(bench.asked) < 16


@pytest.mark.parametrize("python_share", [0.066, 0.0])
def test_waits_tell_a_gain_from_a_machine_that_was_slower(tmp_path: Path, python_share: float) -> None:
    """4 steps in one execution save what Python takes; in their first trial the machine is slower just then."""
    with_four: list[Options] = []

    def figures(options: Options, before: int) -> Planted:
        if options.compile.steps_per_execution == 1:
            return Planted(samples_per_second=400, python_share=python_share, loss=2.0)
        with_four.append(options)
        return Planted(samples_per_second=352 if len(with_four) == 1 else 424, python_share=0.0, loss=2.0)

    searcher, _ = searching(tmp_path / "p", asked(only=["steps_per_execution"]), figures)
    searcher.run()
    four = next(one for one in searcher.search.candidates if one.tried == {STEPS: 4})
    if python_share:
        assert searcher.search.best == {STEPS: 4}
        assert four.gain_by_waits == pytest.approx(1 / 0.934 - 1)
        assert four.why.endswith("(+7.1 % by its waits)")
    else:
        assert (four.decision, len(four.trials)) == ("rejected", 1)
        assert four.gain == pytest.approx(-0.12)


NEARLY = {"compile.steps_per_execution": 4, "input.parallel_calls": "auto", "input.prefetch": "auto"}


def little_each(together: float) -> Any:
    """Steps in one execution and a faster input are within the spread of trials alone; all at once they are not."""

    def figures(options: Options, before: int) -> Planted:
        steps, given = options.compile.steps_per_execution, options.input
        faster = steps == 4 and given.parallel_calls == "auto" and given.prefetch == "auto"
        speed = together if faster else {1: 1.0, 4: 0.965}[steps] * (1.015 if given.prefetch == "auto" else 1.0)
        return Planted(samples_per_second=400 * speed, input_wait=0.2, loss=2.0)

    return figures


@pytest.mark.parametrize(("together", "kept"), [(1.09, True), (0.98, False)])
def test_near_misses_are_tried_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: float, kept: bool
) -> None:
    """In one trial; where that does not gain, one of them is measured again alone, for which there is time here."""
    monkeypatch.setattr(recheck, "SHARE", 0.75)
    wanted = asked(*PIPELINE[:2], only=["steps_per_execution", "input"], leave=["input.cache", "prefetch_to_device"])
    searcher, _ = searching(tmp_path / "p", wanted, little_each(together))
    searcher.run()
    combined = [one for one in searcher.search.candidates if one.stage == "together"]
    assert [one.tried for one in combined] == [NEARLY]
    assert searcher.search.best == (NEARLY if kept else {})
    alone = [one for one in searcher.search.candidates if one.decision == "rejected" and len(one.trials) > 1]
    assert searcher.search.candidates[-1] is combined[0]
    assert len(alone) == (0 if kept else 1)
    searcher.record.write()
    read = as_read(json.loads(searcher.record.path.read_text()))
    said = {one.stage: (one.state, one.settings) for one in brought(read)}
    assert said["steps_per_execution"] == (("kept", {STEPS: 4}) if kept else ("nothing", {}))
    assert said.get("together") == (("kept", NEARLY) if kept else None)
    again, more = searching(tmp_path / "p", wanted, little_each(together), searcher.record.trials)
    again.run()
    assert (again.search.best, more.asked) == (searcher.search.best, [])


def rejected(tried: dict[str, Any], gain: float, **more: Any) -> Candidate:
    """A candidate with one trial."""
    trials = [Trial(run="r", side="s", repeat=1, outcome=more.pop("outcome", "ok"))]
    return Candidate(stage="xla", settings={}, tried=tried, gain=gain, decision="rejected", trials=trials, **more)


def test_what_was_slower_than_its_spread_allows_is_no_part_of_a_combination() -> None:
    one, other, slow = (rejected({name: True}, gain) for name, gain in (("x", 0.017), ("y", -0.038), ("z", -0.05)))
    assert recheck.may_gain_together([one, other, slow], noise=0.03) == [one, other]
    assert recheck.may_gain_together([one, slow], noise=0.03) == [], "although their sum is within it"
    assert recheck.may_gain_together([one, one], noise=0.03) == [], "the same option twice"
    many = [rejected({str(number): True}, -0.029) for number in range(4)]
    assert recheck.may_gain_together(many, noise=0.03) == many[:2], "more of them are no longer chance"


def test_only_what_another_trial_may_find_faster_is_a_near_miss(tmp_path: Path) -> None:
    """Not what takes too much memory however fast it is, nor what was clearly slower when it was tried once more."""
    screening = searching(tmp_path / "p", asked("xla=off"), fast_input)[0].screening
    screening.may_take = 100.0
    near, full = rejected({STEPS: 4}, -0.02, peak_bytes=90), rejected({STEPS: 16}, 0.2, peak_bytes=110)
    before, again = rejected({XLA: True}, -0.01), rejected({XLA: True}, -0.3, outcome="slower")
    screening.search.candidates = [full, before, near]
    assert recheck.near_misses(screening) == [before, near]
    screening.search.candidates.append(again)
    assert recheck.near_misses(screening) == [near]


def test_options_that_gained_nothing_come_first_in_the_second_look(tmp_path: Path) -> None:
    """Of another value of an option that has gained one trial with the present settings is enough; batches grow on."""
    screening = searching(tmp_path / "p", asked("xla=off"), fast_input)[0].screening
    kept = Candidate(stage="steps", settings={}, tried={STEPS: 16, BATCH: 64}, decision="kept")
    fewer, xla, batch = rejected({STEPS: 4}, 0.01), rejected({XLA: True}, -0.02), rejected({BATCH: 128}, -0.01)
    for one in (fewer, xla, batch):
        one.settings = {"another": 1}
    screening.search.candidates = [kept, fewer, xla, batch]
    assert recheck.near_misses(screening) == [batch, xla, fewer]
    for one in (fewer, xla, batch):
        one.settings = one.tried
    assert recheck.near_misses(screening) == [batch, xla]


def with_overhead(device_ms: dict[tuple[str, bool], float], overhead_ms: float = 1.0) -> Any:
    """Steps of 32 samples: the device's time by precision and XLA, or Python's beside it where that is longer."""

    def figures(options: Options, before: int) -> Planted:
        device = device_ms[options.precision.policy, options.compile.xla is True]
        step_ms = max(device, overhead_ms / options.compile.steps_per_execution)
        return Planted(samples_per_second=32_000 / step_ms, loss=2.0)

    return figures


SINGLE, MIXED = "float32", "mixed_bfloat16"
STEPS, POLICY, XLA = "compile.steps_per_execution", "precision.policy", "compile.xla"
BATCH = "input.batch_size"


def test_what_one_option_hides_of_another_is_found(tmp_path: Path) -> None:
    """Python's time hides the device's; XLA undoes what the precision gains, or lets it gain at all."""
    cases: list[tuple[str, dict[tuple[str, bool], float], dict[str, Any]]] = [
        ("all gains are hidden by Python", {(SINGLE, False): 0.5, (SINGLE, True): 0.4, (MIXED, False): 0.3,
                                            (MIXED, True): 0.2}, {STEPS: 31, POLICY: MIXED, XLA: True}),
        ("XLA alone is faster than the precision", {(SINGLE, False): 2.0, (SINGLE, True): 1.2, (MIXED, False): 1.6,
                                                    (MIXED, True): 1.9}, {XLA: True}),
        ("the precision gains with XLA only", {(SINGLE, False): 2.0, (SINGLE, True): 1.6, (MIXED, False): 2.2,
                                               (MIXED, True): 1.1}, {POLICY: MIXED, XLA: True}),
        ("a faster device shows Python's time", {(SINGLE, False): 1.1, (SINGLE, True): 1.1, (MIXED, False): 0.4,
                                                 (MIXED, True): 0.9}, {STEPS: 31, POLICY: MIXED}),
    ]  # fmt: skip
    for number, (what, device_ms, fastest) in enumerate(cases):
        limits = {"only": ["steps_per_execution", "precision", "xla"], "precisions": [MIXED]}
        searcher, _ = searching(tmp_path / str(number), asked("xla=off", **limits), with_overhead(device_ms))
        searcher.run()
        assert searcher.search.best == fastest, what
        assert len([trial for one in searcher.search.candidates for trial in one.trials]) <= 12, what


def test_on_a_gpu_precision_and_xla_come_before_the_steps_in_one_execution(tmp_path: Path) -> None:
    """Also where Python's time hides what these gain at first."""
    device_ms = {(SINGLE, False): 0.5, (SINGLE, True): 0.4, (MIXED, False): 0.3, (MIXED, True): 0.2}
    on_cpu: Callable[[Options, int], Planted] = with_overhead(device_ms)

    def on_gpu(options: Options, before: int) -> Planted:
        return replace(on_cpu(options, before), compute_capability=(9, 0))

    limits = {"only": ["steps_per_execution", "precision", "xla"], "precisions": [MIXED]}
    searcher, _ = searching(tmp_path / "p", asked("xla=off", **limits), on_gpu)
    searcher.run()
    tried = [next(iter(one.tried)) for one in searcher.search.candidates if one.tried]
    assert list(dict.fromkeys(tried)) == [POLICY, XLA, STEPS]
    assert searcher.search.best == {STEPS: 31, POLICY: MIXED, XLA: True}


def test_what_was_clearly_slower_is_not_tried_once_more(tmp_path: Path) -> None:
    """XLA on top of the precision, then instead of it; not again when the steps in one execution have gained."""
    slow_xla = {(SINGLE, False): 1.1, (SINGLE, True): 4.4, (MIXED, False): 0.4, (MIXED, True): 4.9}
    limits = {"only": ["steps_per_execution", "precision", "xla"], "precisions": [MIXED]}
    searcher, _ = searching(tmp_path / "p", asked("xla=off", **limits), with_overhead(slow_xla))
    searcher.run()
    tried = [one.tried for one in searcher.search.candidates if one.stage == "xla"]
    assert tried == [{XLA: True}, {XLA: True, POLICY: SINGLE}]
    assert searcher.search.best == {STEPS: 31, POLICY: MIXED}


def test_no_execution_is_longer_than_half_a_second(tmp_path: Path) -> None:
    """A training is stopped and shown after an execution; the time that Python takes is little beside so long steps."""
    for step_ms, counts in ((40.0, [4]), (130.0, []), (1.0, [31])):
        limits = {"only": ["steps_per_execution"]}
        figures = with_overhead({(SINGLE, False): step_ms}, overhead_ms=0.0)
        searcher, _ = searching(tmp_path / str(step_ms), asked("xla=off", **limits), figures)
        searcher.run()
        tried = [one.tried[STEPS] for one in searcher.search.candidates if one.tried]
        assert list(dict.fromkeys(tried)) == counts, step_ms


def test_a_loss_that_is_clearly_worse_is_not_chosen_unless_allowed(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        planted = fast_input(options, before)
        planted.loss = 2.0 if options.input.batch_size == 32 else 2.5
        return planted

    careful, _ = searching(tmp_path / "p", asked(), figures)
    careful.run()
    assert careful.record.changes_kept == {"compile.steps_per_execution": 4}
    assert "not chosen" in careful.search.learning
    bold, _ = searching(tmp_path / "q", asked(allow_worse_loss=True), figures)
    bold.run()
    assert bold.record.changes_kept["input.batch_size"] == 64
    assert "allowed" in bold.search.learning
