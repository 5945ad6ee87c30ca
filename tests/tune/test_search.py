"""The search for the fastest settings that learn as well, on trainings whose figures are planted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    Limits,
    Options,
    brought,
    tune_request,
)
from tests.doors.engine import proof_request as request
from tests.doors.engine import proof_request_Request as Request
from tests.doors.engine import stages as recheck
from tests.support.proving import HERE, Planted, searching
from tests.support.recorded_proof import as_read

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


def test_only_what_the_limits_allow_is_tried(tmp_path: Path) -> None:
    limits = {"only": ["batch_size", "xla"], "leave": ["xla"], "largest_batch": 64}
    searcher, bench = searching(tmp_path / "p", asked(**limits), fast_input)
    searcher.run()
    assert {options.input.batch_size for options in bench.asked} == {32, 64}
    assert {options.compile.xla for options in bench.asked} == {bench.asked[0].compile.xla}
    assert HERE.cpus == 2


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


def with_overhead(device_ms: dict[tuple[str, bool], float], overhead_ms: float = 1.0) -> Any:
    """Steps of 32 samples: the device's time by precision and XLA, or Python's beside it where that is longer."""

    def figures(options: Options, before: int) -> Planted:
        device = device_ms[options.precision.policy, options.compile.xla is True]
        step_ms = max(device, overhead_ms / options.compile.steps_per_execution)
        return Planted(samples_per_second=32_000 / step_ms, loss=2.0)

    return figures


SINGLE, MIXED = "float32", "mixed_bfloat16"
STEPS, POLICY, XLA = "compile.steps_per_execution", "precision.policy", "compile.xla"


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


def test_xla_is_also_tried_instead_of_the_precision(tmp_path: Path) -> None:
    """With the mixed precision, which is faster alone, XLA is slow."""
    device_ms = {(SINGLE, False): 2.0, (SINGLE, True): 1.2, (MIXED, False): 1.6, (MIXED, True): 1.9}
    wanted = asked("xla=off", only=["precision", "xla"], precisions=[MIXED])
    searcher, _ = searching(tmp_path / "p", wanted, with_overhead(device_ms))
    searcher.run()
    assert searcher.search.best == {XLA: True}


def asked_learning(*settings: str, **more: Any) -> Request:
    """A search for the batch size and the steps per execution, from batches of 32."""
    limits: dict[str, Any] = {"only": ["batch_size", "steps_per_execution"], "largest_batch": 128, **more}
    given = ("batch_size=32", "train.seed=1", *settings)
    return request.of_preset("tune", "quickstart", given, search=tune_request.checked(Limits(**limits)))


def figures(options: Options, before: int) -> Planted:
    """Four times as fast with batches of 128, which learn worse unless the learning rate is larger, too."""
    batch, together = options.input.batch_size, options.compile.steps_per_execution
    learns = batch <= 64 or options.train.learning_rate > 0.004
    speed = 1000 * batch / 32 * (1.2 if together >= 4 else 1.0)
    return Planted(samples_per_second=speed, loss=0.5 if learns else 0.6)


def searched(path: Path, wanted: Request, planted: Any = figures) -> dict[str, Any]:
    """What a search has recorded."""
    searcher, _ = searching(path, wanted, planted)
    searcher.run()
    searcher.record.state = "done"
    searcher.record.write("ended")
    data: dict[str, Any] = {**vars(searcher.record), "search": searcher.search}
    return data


def test_the_learning_rate_follows_the_batch_where_the_user_wants_it(tmp_path: Path) -> None:
    found = searched(tmp_path / "p", asked_learning(learning_rate="linear", warmup_steps=7))
    assert [one.decision for one in found["search"].losses] == ["no worse"]
    assert found["changes_kept"] == {
        "input.batch_size": 128,
        "compile.steps_per_execution": 7,
        "train.learning_rate": 0.008,
        "train.warmup_steps": 7,
    }


@pytest.mark.parametrize(("outcome", "decision"), [("oom", "failed"), ("crashed", "not judged")])
def test_settings_that_cannot_be_trained_to_the_end_are_not_chosen(tmp_path: Path, outcome: Any, decision: str) -> None:
    def ending(options: Options, before: int) -> Planted:
        planted = figures(options, before)
        if options.run.measure_seconds is None and options.input.batch_size == 128:
            planted.outcome = outcome
        return planted

    bold = searched(tmp_path / "bold", asked_learning(allow_worse_loss=True), ending)
    assert bold["changes_kept"]["input.batch_size"] == {"failed": 64, "not judged": 128}[decision], "it was no loss"
    found = searched(tmp_path / "p", asked_learning(), ending)
    check = found["search"].losses[0]
    assert check.decision == decision
    assert [trial.side for trial in check.trials] == ["a", "b"] if decision == "failed" else ["a", "b", "b"]
    assert check.why == f"{outcome}: planted" if decision == "failed" else check.why.startswith("crashed: ")
    chosen = {"failed": 64, "not judged": 128}[decision]
    assert found["changes_kept"]["input.batch_size"] == chosen
    if decision == "not judged":
        assert found["search"].learning == "whether it learns as well is not known"


def test_pairs_that_leave_it_undecided_are_followed_by_as_many_more_as_their_spread_asks_for(tmp_path: Path) -> None:
    def uneven(options: Options, before: int) -> Planted:
        """The gains of the first pairs lie far apart."""
        planted = figures(options, before)
        pairs.append(options.run.measure_seconds == 5.0)
        if sum(pairs) == 3 and planted.samples_per_second > 1200:
            planted.samples_per_second *= 2.5
        return planted

    pairs: list[bool] = []
    found = searched(tmp_path / "p", asked_learning(largest_batch=64), uneven)
    (comparison,) = found["comparisons"]
    assert comparison.decision == "kept", comparison.why
    assert len(comparison.trials) == 12

    def slow(options: Options, before: int) -> Planted:
        """The time is over in the first of the further pairs."""
        planted = uneven(options, before)
        searcher.record.started_mark -= 10_000 if sum(pairs) == 7 else 0
        return planted

    pairs.clear()
    searcher, _ = searching(tmp_path / "q", asked_learning(largest_batch=64), slow)
    searcher.run()
    (comparison,) = searcher.record.comparisons
    assert (comparison.decision, len(comparison.trials)) == ("undecided", 7)
    assert "more pairs would be needed" in comparison.why, "what was measured until then is judged"
    assert "no time was left for further pairs" in comparison.why
    assert searcher.search.unproved == comparison.changes
