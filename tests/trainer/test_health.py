"""When the weights are checked, and what follows: with stand-ins for the model and the time."""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.measure import health
from gputui.engine.trainer.measure.health import Health

HINT = "lower train.learning_rate, set train.global_clip_norm=1, or look for NaN in the data"


class Checked:
    """A model of one weight whose checks take `seconds` each, and everything that its `Health` reports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, every: int | str = "auto", stop_on_nan: bool = True) -> None:
        self.now, self.seconds, self.finite = 100.0, 0.0, True
        self.checks: list[float] = []
        self.told: list[Any] = []
        self.health = Health(self, every, stop_on_nan, self, self.waiting)  # type: ignore[arg-type]
        self.optimizer = SimpleNamespace()
        monkeypatch.setattr(health, "time", self)

    @property
    def weights(self) -> list[Any]:
        self.checks.append(self.now)
        self.now += self.seconds
        value = tf.constant([1.0, 2.0 if self.finite else math.inf])
        return [SimpleNamespace(dtype="float32", trainable=True, value=value)]

    def perf_counter(self) -> float:
        return self.now

    def warn(self, *words: str) -> None:
        self.told.append(words)

    def reset_metrics(self) -> None:
        self.told.append("metrics reset")

    @contextlib.contextmanager
    def waiting(self) -> Any:
        self.told.append("waits")
        yield


def test_weights_are_checked_every_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = Checked(monkeypatch, every=10)
    checked.health.check(0)  # makes the function
    steps = []
    for step in range(4, 40, 4):
        before = len(checked.checks)
        checked.health.check_by_steps(step)
        steps += [step] * (len(checked.checks) > before)
    assert steps == [12, 24, 36]
    assert checked.told == ["waits"] * 4
    by_cost = Checked(monkeypatch)
    by_cost.health.check_by_steps(10**6)
    assert by_cost.told == []
    checked.now = 1e9
    checked.health.check_by_cost(38, {"loss": 1.0})
    assert len(checked.told) == 4, "it is checked by steps"
    checked.health.check_by_steps(45)
    checked.health.check_by_steps(46)
    assert len(checked.told) == 5


def test_by_their_cost_checks_take_a_two_hundredth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = Checked(monkeypatch)
    checked.health.check(0)  # makes the function
    checked.seconds = 0.25
    checked.health.check_by_cost(1, {})
    ended = checked.now
    for seconds, count in ((49.9, 2), (50.1, 3)):
        checked.now = ended + seconds
        checked.health.check_by_cost(2, {"loss": 1.0})
        assert len(checked.told) == count, seconds


def test_several_workers_only_wish_for_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = Checked(monkeypatch)
    checked.health.together = True
    assert not checked.health.wants_check
    checked.health.check_by_cost(1, {})
    assert (checked.health.wants_check, checked.told) == (True, [])


def test_a_weight_that_is_not_finite_ends_the_training_or_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    what = "weights are not finite (NaN or infinity), first seen at step 9; they were still finite at step {}"
    for good in (5, 7):
        checked = Checked(monkeypatch)
        checked.health.begin(5)
        if good == 7:
            checked.health.check(7)
        checked.finite = False
        with pytest.raises(TrainerError) as raised:
            checked.health.check(9)
        assert (raised.value.kind, str(raised.value), raised.value.hint) == ("nan", what.format(good), HINT)
    warned = Checked(monkeypatch, stop_on_nan=False)
    warned.finite = False
    warned.health.check(9, {"loss": math.nan})
    assert warned.told == ["waits", ("nan", what.format(0), HINT, "train.stop_on_nan")]
    warned.health.own_optimizer = True
    own = "in your code lower the optimizer's learning rate, give it global_clipnorm=1, or look for NaN in the data"
    warned.health.check(9)
    assert warned.told[-1][2] == own


@pytest.mark.parametrize("stop_on_nan", [True, False])
def test_a_loss_of_nan_with_finite_weights_starts_its_mean_again(
    stop_on_nan: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = Checked(monkeypatch, stop_on_nan=stop_on_nan)
    checked.seconds = 1.0
    checked.health.check(1, {"loss": 0.5})
    checked.health.check(2)
    assert checked.told == ["waits", "waits"]
    checked.health.check_by_cost(3, {"loss": math.nan})  # also before a check is due
    message = "the running loss was NaN at step 3 with finite weights; "
    assert checked.told[2:] == [
        "waits", ("loss_restarted", message + "its mean starts again from here"), "metrics reset",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "trainable", "parts", "alive"),
    [
        ("float32", True, [0.0], True),
        ("float32", True, [math.nan], False),
        ("float16", True, [math.inf], False),
        ("int32", False, [1], True),
        ("float32", True, [0.0, math.nan], True),  # its replicas are equal
        ("float32", False, [0.0, math.nan], False),  # these differ
    ],
)
def test_all_float_weights_of_this_process_are_checked(
    dtype: str, trainable: bool, parts: list[float], alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [tf.constant([1, part], dtype) for part in parts]
    value = SimpleNamespace(values=values) if len(parts) > 1 else values[0]
    good = SimpleNamespace(dtype="float32", trainable=True, value=tf.zeros([3]))
    model: Any = SimpleNamespace(weights=[good, SimpleNamespace(dtype=dtype, trainable=trainable, value=value), good])
    report: Any = None
    assert Health(model, "auto", True, report, contextlib.nullcontext).alive(1) is alive


def test_the_scale_of_the_loss_and_the_steps_it_skipped_are_those_of_the_optimizer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = Checked(monkeypatch)
    checked.optimizer._iterations = tf.constant(7)
    assert (checked.health.loss_scale(), checked.health.skipped_steps(10)) == (None, None)
    checked.optimizer.dynamic_scale = tf.constant(1024.0)
    assert (checked.health.loss_scale(), checked.health.skipped_steps(10)) == (1024.0, 3)
    checked.optimizer.inner_optimizer = SimpleNamespace(_iterations=tf.constant(6))
    assert checked.health.skipped_steps(10) == 4
