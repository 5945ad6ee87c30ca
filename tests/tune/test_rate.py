"""The learning-rate range test: the suggestion by a curve, the decision by pairs of losses, and the whole of it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.doors.engine import (
    BaselineFailed,
    EventWriter,
    Measurement,
    Options,
    RateSettings,
    RateTest,
    Record,
    Run,
    as_markdown,
    events,
    folder,
    improved_preset,
    presets,
    proof_sentences,
    rate_at,
    suggest,
    tune_rate_test,
    tune_request,
)
from tests.doors.tui import PLAIN, length, plain
from tests.doors.tui import rate as drawing
from tests.support import proving
from tests.support.front_door import gputui
from tests.support.proving import HERE, Planted, PlantedBench, started
from tests.support.proving import forked_trials as forked_trials

STEPS = 300
RATES = [rate_at(step, 1e-6, 10, STEPS) for step in range(STEPS)]


def curve(best: float, noise: float, low: float = 0.3, seed: int = 1) -> list[float | None]:
    """Losses of a ramp that fall from 2.3 around `best` / 10 to `low` at `best`, and explode above."""
    draw = random.Random(seed)

    def loss(rate: float) -> float:
        fallen = 1 / (1 + (0.1 * best / rate) ** 3)
        return 2.3 + (low - 2.3) * fallen + (max(0.0, math.log10(rate / best)) * 4) ** 2 + draw.gauss(0, noise)

    return [loss(rate) for rate in RATES]


@pytest.mark.parametrize(("best", "noise"), [(1e-4, 0.05), (1e-2, 0.0), (0.3, 0.2)])
def test_the_suggestion_is_a_third_to_half_of_the_rate_with_the_lowest_loss(best: float, noise: float) -> None:
    made = suggest(RATES, curve(best, noise))
    assert made.rate is not None
    assert made.lowest_at is not None
    assert best / 2 < made.lowest_at < 2.5 * best
    assert made.lowest_at / 3.1 < made.rate < made.lowest_at / 1.9
    assert "falls fastest" in made.reason
    assert len(made.smoothed) < STEPS, "the curve ends where it has diverged"


@pytest.mark.parametrize(
    ("pairs", "decision", "words"),
    [
        ([(1.0, 0.5), (1.1, 0.5), (0.9, 0.45)], "better", "lower in 3 of 3 pairs, median -50.0 %"),
        ([(0.5, 1.0), (0.5, 1.1), (0.45, 0.9)], "worse", "lower in 0 of 3 pairs, median +100 %"),
        ([(1.0, 0.5), (0.5, 1.0), (1.0, 0.9)], "undecided", "is beyond chance"),
        ([(1.0, None), (1.0, 0.5), (1.0, 0.5)], "worse", "diverges with the suggestion in 1 of 3 pairs"),
        ([(None, 0.5), (None, 0.5), (None, 0.5)], "better", "the training diverges in all 3 pairs"),
        ([(-1.0, -2.0), (-1.0, -2.0), (-1.0, -2.0)], "not judged", "not above 0"),
    ],
)
def test_the_decision_is_that_of_the_pairs(
    pairs: Sequence[tuple[float | None, float | None]], decision: str, words: str
) -> None:
    test = RateTest(settings=RateSettings(), before=1e-3, suggested=1e-2, of="validation")
    tune_rate_test.decide(test, pairs)
    assert (test.decision, words in test.why) == (decision, True), test.why


def planted(
    path: Path, monkeypatch: pytest.MonkeyPatch, loss: Callable[[float, int], float | None], rate: float = 1e-3,
    inapplicable: str = "", minutes: float = 10.0, given: Sequence[str] = (), fails: float | None = None,
    late: float | None = None, broken: bool = False,
) -> tuple[Record, PlantedBench]:  # fmt: skip
    """A range test of quickstart with `rate`, whose trainings end with the loss that `loss` gives for rate and seed.

    With the rate `fails` they run out of memory, and with `late` they have time for two epochs. `broken`: the first
    step of the ramp gives weights that are not finite.
    """

    def leave(run: Run, options: Options, _given: Planted) -> None:
        train, losses = options.train, curve(1e-2, 0.05)
        writer = EventWriter(run.file("events.jsonl"), run.id)
        why = {"train.learning_rate": inapplicable} if inapplicable else {}
        writer.emit(
            started(options, 32) if not why else events.Started(**vars(started(options, 32)) | {"inapplicable": why})
        )
        ended: float | None = 0.5
        if train.schedule == "ramp":
            assert options.compile.steps_per_execution == 1
            assert (train.learning_rate, train.decay_rate, train.warmup_steps) == (10.0, 1e-7, 0)
            ended = None if broken else ended
            for step, value in enumerate([None] if broken else losses, 1):
                report = proving.progress(step, 1.0, Planted())
                writer.emit(events.Progress(**vars(report) | {"window_loss": value}), t=1000 + step / 100)
        else:
            assert train.schedule == "cosine"
            ended = loss(train.learning_rate, train.seed or 0)
        outcome: events.Outcome = "error" if ended is None else "ok"
        outcome = "oom" if train.learning_rate == fails else outcome
        outcome = "timeout" if train.learning_rate == late else outcome
        epochs = 2 if outcome == "timeout" else train.epochs
        for epoch in range(1, epochs + 1) if ended is not None else ():
            writer.emit(events.EpochEnd(epoch=epoch, step=epoch, metrics={"loss": 1.0, "val_loss": ended}, seconds=1.0))
        error = {"kind": "nan", "message": "weights are not finite", "hint": ""} if ended is None else None
        summary = events.Summary(outcome=outcome, global_batch_size=32, error=error)
        writer.emit(events.Finished(outcome=outcome, summary=asdict(summary)))
        writer.close()
        run.file("result.json").write_text(json.dumps(events.plain(asdict(summary))))

    monkeypatch.setattr(proving, "leave_learnt", leave)
    settings = RateSettings(minutes=minutes)
    asked = tune_request.range_test(presets.resolve("quickstart", [f"learning_rate={rate}", *given]), settings)
    proof = folder.create(asked)
    record, bench = folder.empty_record(proof.path, asked), PlantedBench(path / "trials", lambda *_given: Planted())
    tune_rate_test.measure(Measurement(asked, record, bench, HERE))
    record.state = "done"
    record.write()
    return record, bench


def test_pairs_have_new_seeds_and_equal_lengths_and_the_better_rate_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, bench = planted(tmp_path, monkeypatch, lambda rate, seed: (1.0 if rate == 1e-3 else 0.5) + seed % 7 / 100)
    test = record.rate
    assert test is not None
    ramp, *pairs = bench.asked
    assert [each.train.seed for each in pairs] == [(ramp.train.seed or 0) + add for add in (1, 1, 2, 2, 3, 3)]
    assert len({(each.train.epochs, each.train.steps_per_epoch) for each in pairs}) == 1
    assert {each.train.learning_rate for each in pairs} == {1e-3, test.suggested}
    assert (test.decision, len(test.rates), len(record.trials)) == ("better", STEPS, 7)
    assert proof_sentences.result(record).startswith(
        f"learning_rate={test.suggested:g} learns better than the preset's 0.001"
    )
    proof = folder.find("latest")
    assert proof.record == record, "what is written is what is read"
    improved_preset.save(proof, tmp_path / "tuned.yaml")
    text = (tmp_path / "tuned.yaml").read_text()
    assert f"learning_rate: {test.suggested:g}" in text
    assert "falls fastest" in text
    assert "seed " in as_markdown(record)
    rows = drawing.detail(test, 78, 24, PLAIN)
    assert len(rows) <= 24
    assert max(map(length, rows)) <= 78
    assert "1e-6" in "\n".join(map(plain, rows))


def test_ends_without_a_comparison_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suggested = suggest(RATES, curve(1e-2, 0.05)).rate or 0.0
    record, bench = planted(tmp_path / "a", monkeypatch, lambda *_given: 0.5, rate=1.2 * suggested)
    assert (record.rate and record.rate.decision, len(bench.asked)) == ("close", 1)
    assert (record.changes_kept, record.preset_after) == ({}, None), "the preset's rate is as good"
    record, bench = planted(tmp_path / "b", monkeypatch, lambda *_given: 0.5, minutes=0.2)
    assert (record.rate and record.rate.decision, record.changes_kept) == ("not judged", {})
    assert "give more --minutes" in proof_sentences.result(record)
    with pytest.raises(BaselineFailed, match=r"^no loss of the ramp is a finite number: weights are not finite"):
        planted(tmp_path / "d", monkeypatch, lambda *_given: 0.5, broken=True)
    with pytest.raises(BaselineFailed, match="your code has chosen the optimizer; let `build` return no optimizer"):
        planted(tmp_path / "c", monkeypatch, lambda *_given: 0.5, inapplicable="your code has chosen the optimizer")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.usefixtures("forked_trials")
def test_a_real_range_test_of_own_code_reports_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its chart is printed where there is no terminal, and the preset is saved."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import keras, numpy as np\n"
        "def build(context):\n"
        "    x = np.random.default_rng(0).normal(size=(320, 8)).astype('float32')\n"
        "    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])\n"
        "    return {'model': model, 'loss': 'mse', 'train': (x, x.sum(axis=1, keepdims=True))}\n"
    )
    (tmp_path / "rate.yaml").write_text(
        "workload: {entry: 'train.py:build'}\ninput: {batch_size: 32}\n"
        "train: {epochs: 5, learning_rate: 0.00001, seed: 3, validation_split: 0}\n"
    )
    words = ("--ramp-steps", "100", "--minutes", "3", "--anyway", "-o", "tuned.yaml")
    done = gputui("tune", "--preset", "rate.yaml", "--learning-rate-test", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    record = folder.find("latest").record
    assert record.rate is not None
    assert len(record.rate.losses) == 100
    assert record.rate.decision == "better", record.rate.why
    assert "learns better than the preset's 1e-05: training loss" in done.stdout
    assert "loss of the ramp" in done.stdout
    assert "learning_rate:" in (tmp_path / "tuned.yaml").read_text()
