"""The candidates of a search: which are left out, ended or measured again, and what the record says of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.options import Options
from gputui.engine.presets import Preset
from gputui.engine.trials.comparing import BaselineFailed, Stopped
from gputui.engine.trials.search_record import Candidate, Limits, Search
from gputui.engine.trials.trial import Trial
from gputui.engine.tune.candidates.screening import Screening
from gputui.engine.tune.candidates.search_trials import OutOfTime, SideBySide, TrialRequest, Trials, undisturbed
from gputui.engine.tune.candidates.search_trials import Place as Gpu

from tests.support.proving import Figures, Planted, PlantedBench

XLA = {"compile.xla": True}


class Site:
    """A screening of a preset with batches of 32, whose doings are noted; `left` are the seconds of the search."""

    def __init__(
        self,
        path: Path,
        figures: Figures,
        earlier: Sequence[Trial] = (),
        conflict: Callable[[Preset], str] = lambda _: "",
    ) -> None:
        self.left, self.doings = 1000.0, list[str]()
        self.bench = PlantedBench(path / "trials", figures)
        self.trials = Trials(self.bench, earlier, lambda: 1000.0 - self.left, 1000.0, 14.0)
        self.search = Search(limits=Limits())
        preset = presets.resolve("quickstart", ["batch_size=32", "xla=false", "train.seed=1"])
        self.screening = Screening(self.trials, self.search, preset, self.doings.append, conflict, 2.0)

    def rows(self) -> list[tuple[str, str, int]]:
        return [(each.decision, each.why, len(each.trials)) for each in self.search.candidates]


def speeds(speed_of: Callable[[Any], float], **more: Any) -> Figures:
    return lambda options, before: Planted(speed_of(options), **more)


def test_a_candidate_that_cannot_be_trained_here_is_left_out_with_the_reason(tmp_path: Path) -> None:
    def conflict(preset: Preset) -> str:
        return "no GPU" if preset.options.compile.xla is True else ""

    site = Site(tmp_path, speeds(lambda options: 1000.0), conflict=conflict)
    site.screening.measure_best("baseline", "as it is", without_input=False)
    assert site.screening.attempt("xla", XLA, "r", predicted_bytes=7).trials == []
    wrong = site.screening.attempt("batch_size", {"input.batch_size": -1})
    assert site.rows() == [("kept", "", 1), ("left out", "no GPU", 0), ("left out", wrong.why, 0)]
    assert wrong.why.startswith("-1 does not fit")
    assert "\n" not in wrong.why
    assert site.screening.trial_request(XLA) is None
    assert site.screening.trial_request({"input.batch_size": -1}) is None
    site.screening.leave_out("batch_size", {"input.batch_size": 64}, "too large", 9)
    left = site.search.candidates[-1]
    assert left == Candidate(
        stage="batch_size", settings={"input.batch_size": 64}, tried={"input.batch_size": 64}, decision="left out",
        why="too large", predicted_bytes=9,
    )  # fmt: skip


@pytest.mark.parametrize(("fault", "words"), [(Stopped, "a stop was requested"), (OutOfTime, "no time was left")])
def test_a_stop_or_the_end_of_the_time_is_told_of_the_candidate_that_it_ends(
    tmp_path: Path, fault: type[Exception], words: str
) -> None:
    """It comes when a candidate has been measured once that seems 5 % faster, which may be chance."""
    site = Site(tmp_path, speeds(lambda options: 1050.0 if options.compile.xla is True else 1000.0))
    site.screening.measure_best("baseline", "as it is", without_input=False)

    def end(seconds: float) -> None:
        if fault is Stopped:
            site.bench.stop.ask()
        else:
            site.left = 0.0

    site.bench.passes = end
    with pytest.raises(fault):
        site.screening.attempt("xla", XLA)
    with pytest.raises(fault):
        site.screening.attempt("batch_size", {"input.batch_size": 64})
    assert site.rows()[1:] == [("rejected", f"+5.0 %: {words} to measure it once more", 1), ("left out", words, 0)]
    assert site.doings == [
        "baseline: as it is", "", "xla: trying xla=true", "xla: trying xla=true, once more",
        "batch size: trying batch_size=64",
    ]  # fmt: skip


def test_a_crash_is_measured_again_and_what_would_fail_again_is_not(tmp_path: Path) -> None:
    outcomes: dict[Any, int] = {"crashed": 2, "oom": 1, "error": 1, "timeout": 1}
    for outcome, count in outcomes.items():

        def ends(options: Options, before: int, outcome: Any = outcome) -> Planted:
            return Planted(outcome=outcome if options.compile.xla is True else "ok")

        site = Site(tmp_path / outcome, ends)
        site.screening.measure_best("baseline", "as it is", without_input=False)
        row = site.screening.attempt("xla", XLA)
        assert (row.decision, len(row.trials)) == ("failed", count), outcome
        assert row.why == f"{outcome}: {row.trials[-1].error}"
        assert row.samples_per_second is None
    site = Site(tmp_path / "best", lambda options, before: Planted(outcome="error", error="no file"))
    with pytest.raises(BaselineFailed, match="the training could not be measured; the last was error: no file"):
        site.screening.measure_best("baseline", "as it is", without_input=False)
    assert site.rows() == [("failed", "error: no file", 1)]


def test_a_probe_says_nothing_of_the_speed(tmp_path: Path) -> None:
    site = Site(tmp_path, lambda options, before: Planted(
        peak_memory_bytes=800, outcome="oom" if options.input.batch_size > 99 else "ok"))  # fmt: skip
    site.screening.peak_figure = "peak_process_bytes"
    fits = site.screening.probe("batch_size", {"input.batch_size": 64}, "the largest", 700)
    ends = site.screening.probe("batch_size", {"input.batch_size": 128}, "the largest", 900)
    for row, expected in ((fits, ("measured", "only its memory", None, 800, 700)),
                          (ends, ("failed", f"oom: {ends.trials[0].error}", None, None, 900))):  # fmt: skip
        assert (row.decision, row.why, row.samples_per_second, row.peak_bytes, row.predicted_bytes) == expected
    assert [options.run.measure_seconds for options in site.bench.asked] == [0.01, 0.01]
    assert site.screening.best.settings == {}, "nothing is chosen by its memory"


def test_settings_without_the_input_are_measured_on_one_batch_and_come_back_with_it(tmp_path: Path) -> None:
    site = Site(tmp_path, speeds(lambda options: (3000.0 if options.input.one_batch else 1000.0)
                                 * (1.5 if options.compile.xla is True else 1.0)))  # fmt: skip
    screening = site.screening
    screening.measure_best("baseline", "as it is", without_input=False)
    with_input = screening.best
    screening.measure_best("ceiling", "no input", without_input=True)
    kept = screening.attempt("xla", XLA)
    assert (kept.decision, kept.without_input) == ("kept", True)
    assert kept.gain == pytest.approx(0.5)
    assert [options.input.one_batch for options in site.bench.asked] == [False, True, True]
    assert screening.best.speed == pytest.approx(4500.0)
    assert screening.best.preset.options.input.one_batch is False, "it is no setting of the preset"
    assert screening.settings_with({"compile.xla": False, "input.cache": "off"}) == {"input.cache": "off"}
    screening.resume(with_input)
    assert (screening.without_input, screening.best.settings) == (False, {})
    assert screening.best.speed == pytest.approx(1000.0)
    assert screening.has({"compile.xla": False})
    assert not screening.has(XLA)


# ---- trials -----------------------------------------------------------------------------------------


def test_only_successful_trials_say_how_long_the_next_one_takes(tmp_path: Path) -> None:
    site = Site(tmp_path, lambda options, before: Planted(outcome="oom" if before == 0 else "ok"))
    site.bench.seconds_of = lambda before: (99.0, 40.0, 20.0, 30.0)[before]
    preset = presets.defaults()
    expected = []
    for repeat in range(1, 5):
        site.trials.measure(preset, "s", repeat)
        expected.append(site.trials.trial_seconds)
    assert expected == [14.0, 20.0, 20.0, 25.0], "the first one that succeeds has imported TensorFlow"
    site.bench.seconds_of = lambda before: 500.0
    site.trials.learn(preset, "a", 1, (1, 5), 10.0)
    assert site.trials.trial_seconds == 25.0, "a training for the loss is longer"


@pytest.mark.parametrize(
    ("side", "outcome", "again"),
    [("s", "ok", False), ("s", "timeout", False), ("s", "crashed", True), ("a", "timeout", True), ("b", "oom", False)],
)
def test_a_trial_is_measured_again_only_if_chance_may_have_ended_it(
    tmp_path: Path, side: str, outcome: Any, again: bool
) -> None:
    site = Site(tmp_path / "p", lambda options, before: Planted(outcome=outcome))
    preset = presets.defaults()
    row = site.trials.measure(preset, side, 1)
    assert site.trials.remembers(preset, side, 1) is not again
    assert site.trials.measure(preset, side, 1).outcome == outcome
    assert len(site.bench.asked) == 1 + again
    resumed = Site(tmp_path / "q", lambda options, before: Planted(), [row])
    resumed.trials.measure(preset, side, 1)
    assert len(resumed.bench.asked) == again, "also by a resumed search"
    for other in ((preset, side, 2), (preset, "x", 1), (presets.defaults(["batch_size=7"]), side, 1)):
        assert not resumed.trials.remembers(*other)
    assert not resumed.trials.remembers(preset, side, 1, seconds=2.0), "measured for another time"


@pytest.mark.parametrize(("side", "again"), [("s", False), ("a", True)])
def test_a_crash_whose_repetition_was_successful_is_measured_again_only_in_a_pair(
    tmp_path: Path, side: str, again: bool
) -> None:
    site = Site(tmp_path / "p", lambda options, before: Planted(outcome="crashed" if before == 0 else "ok"))
    preset = presets.defaults()
    rows = [site.trials.measure(preset, side, repeat) for repeat in (1, 2)]
    resumed = Site(tmp_path / "q", lambda options, before: Planted(), rows)
    assert resumed.trials.remembers(preset, side, 1) is not again
    assert resumed.trials.remembers(preset, side, 2)
    alone = Site(tmp_path / "r", lambda options, before: Planted(), rows[:1])
    assert not alone.trials.remembers(preset, side, 1)


def test_the_length_of_the_losses_is_that_of_the_presets_first_training(tmp_path: Path) -> None:
    site, preset = Site(tmp_path, lambda options, before: Planted()), presets.defaults()
    assert site.trials.length_known(preset) is None
    site.trials.learn(preset, "b", 1, (9, 9), 10.0)
    assert site.trials.length_known(preset) is None, "side b may have another batch"
    site.trials.learn(preset, "a", 1, (3, None), 10.0)
    assert site.trials.length_known(preset) == (3, None)
    assert site.trials.length_known(presets.defaults(["batch_size=7"])) is None
    site.trials.learn(preset, "a", 1, (3, None), 10.0)
    assert len(site.bench.asked) == 2
    minutes = [options.run.max_minutes for options in site.bench.asked]
    assert minutes == pytest.approx([20.0 / 60] * 2), "at most twice the expected time"


def test_trials_side_by_side_have_a_gpu_each_and_speeds_of_the_first_one(tmp_path: Path) -> None:
    judged: list[list[float]] = []

    def judge(speeds: Sequence[float]) -> bool:
        judged.append(list(speeds))
        return False

    site = Site(tmp_path, speeds(lambda options: 500.0))
    side_by_side = SideBySide(site.trials, site.bench.machine)
    preset = presets.defaults()
    asked = [TrialRequest(preset, "s", 2.0), TrialRequest(preset, "s", 2.0, repeat=2, judge=judge)]
    rows = side_by_side.measure(asked, [Gpu(0), Gpu("GPU-1", 0.5)])
    assert [(row.repeat, row.gpu_speed) for row in rows] == [(1, 1.0), (2, 0.5)]
    assert [row.speed for row in rows] == pytest.approx([500.0, 1000.0])
    assert judged == [[1000.0] * 3]
    assert sorted(map(str, (options.device.visible for options in site.bench.asked))) == ["['GPU-1']", "[0]"]
    assert site.trials.remembers(preset, "s", 2, seconds=2.0)
    places = [Gpu(0), Gpu(1), Gpu(2), Gpu(3)]
    left = undisturbed(places, [100.0, 95.0, 94.9, None], alone=100.0)
    assert left == [Gpu(0, 1.0), Gpu(1, 0.95)]
