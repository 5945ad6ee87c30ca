"""What a search makes of its minutes: they are shared out before it starts, and it never ends empty-handed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.options import Options
from gputui.engine.proof import folder, request
from gputui.engine.proof.request import ProofError, Request
from gputui.engine.trials.search_record import Limits
from gputui.engine.tune import tune_request
from gputui.engine.tune.time_plan import DECISION_SHARE, TimePlan
from gputui.tui import cli

from tests.support.proving import Planted, searching_in_time

PIPELINE = "input.parallel_calls=off", "input.prefetch=off", "input.cache=off"
CACHE = "input.cache"


def asked(*settings: str, **limits: Any) -> Request:
    given = ("batch_size=32", "train.seed=1", *settings)
    return request.of_preset("tune", "quickstart", given, search=tune_request.checked(Limits(**limits)))


def slow_input(options: Options, before: int) -> Planted:
    """Eight times as fast once the samples are cached; two trials of the same settings differ by 2 %."""
    speed = 7000.0 if options.input.one_batch or options.input.cache == "memory" else 874.0
    wait = 0.0 if speed == 7000.0 else 0.875
    return Planted(samples_per_second=speed * (1.02 if before % 2 else 1.0), input_wait=wait, loss=2.0)


def start_slowly(before: int) -> float:
    """The first trial imports TensorFlow on a busy machine."""
    return 34.0 if before == 0 else 12.0


@pytest.mark.parametrize("minutes", [0.7, 1, 2, 4, 5, 10, 60])
@pytest.mark.parametrize("trial", [2.5, 8.0, 14.0, 35.0])
def test_at_least_half_of_the_minutes_are_for_trials(minutes: float, trial: float) -> None:
    plan = TimePlan.of(Limits(minutes=minutes), trial, measure_seconds=5.0, repeats=3)
    assert plan.decision_seconds <= DECISION_SHARE * 60 * minutes
    assert plan.changes or 60 * minutes < 2 * trial
    assert plan.pairs in (0, 2, 3)


def test_what_the_minutes_buy_is_said_with_a_length_that_works() -> None:
    def words(minutes: float, **more: Any) -> str:
        return TimePlan.of(Limits(minutes=minutes, **more), 12.0, measure_seconds=5.0, repeats=3).in_words()

    assert words(1) == (
        "1 minute: about 3 changes, no proof, no comparison of losses; 5 minutes: about 10 changes and the proof"
    )
    assert words(6) == "6 minutes: about 13 changes and the proof"
    assert words(10) == "10 minutes: all changes (about 15) and the proof"
    assert words(10, wide="after") == "10 minutes: about 29 changes and the proof"
    assert words(10, only=["xla"]) == "10 minutes: all changes (about 1) and the proof"
    assert words(0.5, only=["xla"]).endswith("; 4 minutes: all changes (about 1) and the proof")
    assert "2 pairs of trials, which prove only a large gain" in words(2.6)


def test_as_many_pairs_are_planned_as_fit() -> None:
    plans = [TimePlan.of(Limits(minutes=minutes), 12.0, measure_seconds=5.0, repeats=10) for minutes in range(1, 13)]
    for plan in plans:
        fits = [count for count in range(2, 11) if plan.seconds_of(count) <= DECISION_SHARE * plan.limit]
        assert plan.pairs == max(fits, default=0)
    assert 2 < plans[4].pairs < 10
    assert f"changes and {plans[4].pairs} pairs of trials" in plans[4].in_words()
    assert "large gain" not in plans[4].in_words()


def test_five_minutes_are_enough_for_the_input_and_for_its_proof(tmp_path: Path) -> None:
    searcher, bench = searching_in_time(tmp_path / "p", asked(*PIPELINE, minutes=5), slow_input, start_slowly)
    searcher.run()
    assert bench.asked[1].input.cache == "memory", "what the training waits for is tried first"
    record = searcher.record
    assert record.changes_kept[CACHE] == "memory"
    assert record.gain_total == pytest.approx(8.0, rel=0.05)
    assert record.comparisons[-1].why.endswith("in both pairs, which agree by far")
    assert len(record.comparisons[-1].trials) == 4, "no third pair"
    assert searcher.search.unproved == {}
    assert record.elapsed < 1.1 * 300


def test_a_third_pair_that_the_time_does_not_allow_leaves_settings_that_more_minutes_prove(tmp_path: Path) -> None:
    """The pairs differ too much for two to be enough, and each takes far longer than the trials before."""

    def figures(options: Options, before: int) -> Planted:
        planted = slow_input(options, before)
        planted.samples_per_second *= (1.0, 1.3, 0.9)[before % 3]
        return planted

    def slower_pairs(before: int) -> float:
        return start_slowly(before) if searcher.search.stage != "decision" else 90.0

    wanted = asked(*PIPELINE, minutes=5, only=["input"])
    searcher, _ = searching_in_time(tmp_path / "p", wanted, figures, slower_pairs)
    searcher.run()
    record = searcher.record
    assert record.comparisons[-1].decision == "undecided"
    assert "no time was left for further pairs" in record.comparisons[-1].why
    assert searcher.search.unproved[CACHE] == "memory"
    assert record.changes_kept == {}

    known, seconds = record.trials, record.elapsed
    longer = replace(wanted, search=replace(wanted.search or Limits(), minutes=seconds / 60 + 5))
    searcher, bench = searching_in_time(tmp_path / "p", longer, figures, slower_pairs, known)
    searcher.record.started_mark -= seconds
    bench._last = len(known)
    searcher.run()
    assert searcher.record.changes_kept[CACHE] == "memory"
    assert searcher.search.unproved == {}
    measured_anew = [trial for trial in searcher.record.comparisons[-1].trials if trial not in known]
    assert 0 < len(measured_anew) < 6, "the pairs of the first sitting count"


def test_two_minutes_try_something_on_a_busy_machine_that_needs_most_of_them_for_the_first_trial(
    tmp_path: Path,
) -> None:
    """Not the training without its input, of which its waits say that it is no faster."""

    def figures(options: Options, before: int) -> Planted:
        return Planted(samples_per_second=1000.0 * options.input.batch_size / 32, loss=2.0)

    wanted = asked(minutes=2)
    searcher, _ = searching_in_time(tmp_path / "p", wanted, figures, lambda before: 75.0 if before == 0 else 20.0)
    searcher.run()
    assert [one.stage for one in searcher.search.candidates][:2] == ["baseline", "batch_size"]
    assert searcher.search.candidates[1].decision == "kept"
    assert searcher.search.unproved == {"input.batch_size": 100}


def test_two_minutes_try_something_and_claim_nothing(tmp_path: Path) -> None:
    searcher, _ = searching_in_time(tmp_path / "p", asked(*PIPELINE, minutes=2), slow_input, start_slowly)
    searcher.run()
    assert any(one.decision == "kept" for one in searcher.search.candidates if one.tried)
    record = searcher.record
    assert record.changes_kept or searcher.search.unproved
    assert record.elapsed < 1.1 * 120 + 12


def test_a_search_for_the_batch_size_uses_its_minutes_although_its_first_trial_was_slow(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        batch = options.input.batch_size
        return Planted(samples_per_second=1000 * batch / (batch + 60), loss=2.0, peak_memory_bytes=batch * 2**20)

    wanted = asked(minutes=4, only=["batch_size"], memory_bytes=1_200_000_000)
    searcher, _ = searching_in_time(tmp_path / "p", wanted, figures, start_slowly)
    searcher.run()
    assert len([one for one in searcher.search.candidates if one.tried and one.trials]) >= 3
    assert searcher.search.best
    assert searcher.record.changes_kept or searcher.search.unproved
    assert searcher.search.losses, "the comparison of losses is shortened, and not left out"


def test_no_candidate_of_a_search_that_has_ended_is_told_as_being_measured(tmp_path: Path) -> None:
    """The time is over when a gain that may be chance is to be measured once more."""

    def figures(options: Options, before: int) -> Planted:
        speed = 1000.0 * (1.05 if options.input.batch_size == 64 else 1.0)
        if options.input.batch_size == 64:
            searcher.record.started_mark -= 1000
        return Planted(samples_per_second=speed, loss=2.0)

    searcher, _ = searching_in_time(tmp_path / "p", asked(only=["batch_size"]), figures, start_slowly)
    searcher.run()
    (one,) = [one for one in searcher.search.candidates if one.tried and one.trials]
    assert (one.decision, one.why) == ("rejected", "+5.0 %: no time was left to measure it once more")


@pytest.mark.usefixtures("home")
def test_only_minutes_that_try_nothing_are_refused() -> None:
    wanted = asked(minutes=2)
    assert tune_request.refuse(wanted) is wanted
    with pytest.raises(
        ProofError, match=r"too few: .* take about 0\.\d min here; give more minutes \(\d minutes: about"
    ):
        tune_request.refuse(asked(minutes=0.01))


@pytest.mark.usefixtures("home")
def test_settings_that_are_not_proved_are_saved_with_a_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("description: mine\ninput: {batch_size: 32, cache: off}\ntrain: {seed: 1}\n")
    wanted = request.of_preset("tune", "mine.yaml", PIPELINE, search=Limits(minutes=1.5, only=["input"]))
    made = folder.create(wanted)
    searcher, _ = searching_in_time(made.path, wanted, slow_input, start_slowly)
    searcher.run()
    searcher.record.state = "done"
    searcher.record.write("ended")
    assert searcher.record.comparisons == [], "not even two pairs would have ended in time"
    assert cli.run(["proof", made.id]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "it seems faster with parallel_calls=auto, prefetch=auto, " in said
    assert ", which is not proved: +7" in said
    assert f"gputui tune --resume {made.id} --minutes 2 gives it more time, to prove them" in said
    assert "saves the fastest preset, marked as not proved" in said
    assert cli.run(["proof", made.id, "-o", "best.yaml"]) == 0
    assert "not proved, as its first line says" in capsys.readouterr().out
    text = (tmp_path / "best.yaml").read_text()
    assert text.startswith("# tuned: ")
    assert "not proved: +7" in text.splitlines()[0]
    saved = presets.resolve("best.yaml")
    assert (saved.options.input.cache, saved.description) == ("memory", "mine (tuned, not proved)")
