"""The learning-rate range test: the suggestion by a curve, the decision by pairs of losses, and the whole of it."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from tests.doors.engine import (
    folder,
    rate_at,
    suggest,
)
from tests.support.front_door import gputui
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
    assert "learns better than the preset's 1e-05\n" in done.stdout
    assert "learning_rate:" in (tmp_path / "tuned.yaml").read_text()
