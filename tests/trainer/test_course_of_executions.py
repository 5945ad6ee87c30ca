"""What a training does around each execution: with stand-ins for Keras' fit and for the graphs of the steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gputui.engine.trainer.common.stopping import StopRequested
from gputui.engine.trainer.fit.train_function import Executions
from gputui.engine.trainer.setup import xla
from gputui.engine.trainer.setup.xla import Xla

from tests.support.training import Build, Training

TINY = ("model=mlp", "width=0.05", "optimizer=sgd", "validation_split=0", "batch_size=8", "epochs=2")


class Loss:
    """The loss of an execution. The host waits for the device when it reads it, which is noted."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.calls.append("read")
        return np.asarray(1.5, dtype)


class Course:
    """The executions of a training in their order, as (first step, steps). Those `apart` are within brackets."""

    def __init__(self, training: Training, monkeypatch: pytest.MonkeyPatch, clock_at: int = -1) -> None:
        self.calls: list[Any] = []
        loop: Any = training.loop
        self.training, self.model = training, loop.built.model
        self.fits: list[tuple[int, int, int]] = []  # the first epoch of each, the one beyond its last, and its steps
        monkeypatch.setattr(Executions, "clock_is_due", property(lambda _: loop.step == clock_at))
        loop.executions.run = self._run
        loop.executions.run_clock_first = lambda *given: self._run(*given, "with the clock")
        loop.executions.trace = lambda *_: SimpleNamespace(graph=None)
        loop.parts.left_out = self._apart
        self.model.fit = self._fit

    def _run(self, _iterator: Any, step: int, count: int, *more: str) -> dict[str, Loss]:
        self.calls.append((step, count, *more))
        return {"loss": Loss(self.calls)}

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        self.calls.append("(")
        yield
        self.calls.append(")")

    def _fit(self, x: Any, callbacks: Any, initial_epoch: int, epochs: int, steps_per_epoch: int, **more: Any) -> None:
        iterator = iter(())
        self.fits.append((initial_epoch, epochs, steps_per_epoch))
        callbacks.on_train_begin()
        for epoch in range(initial_epoch, epochs):
            callbacks.on_epoch_begin(epoch)
            done = 0
            while done < steps_per_epoch:
                callbacks.on_train_batch_begin(done)
                self.model.train_function(iterator)
                done += next(call[1] for call in reversed(self.calls) if isinstance(call, tuple))
                callbacks.on_train_batch_end(done - 1)
            callbacks.on_epoch_end(epoch, {"loss": 1.5})
        callbacks.on_train_end()

    def trained(self) -> list[Any]:
        self.training.train()
        return self.calls

    def phases(self) -> list[tuple[str, str]]:
        found = [(event["phase"], event["detail"]) for event in self.training.events("phase")]
        return found[2:]  # after building data and model


def test_no_execution_goes_beyond_an_epoch(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Course(build(*TINY, "steps_per_epoch=5", "steps_per_execution=2"), monkeypatch)
    first, others = (0, 2), [(2, 2), (4, 1), (5, 2), (7, 2), (9, 1)]
    assert course.trained() == [first, "read", *others], "only the first one is waited for"
    assert course.phases() == [("compiling", "tracing"), ("training", "")]
    loop = course.training.loop
    assert (loop.step, loop.built.report.ended_by) == (10, "last_step")
    epochs = [(event["epoch"], event["step"], event["metrics"]) for event in course.training.events("epoch")]
    assert epochs == [(1, 5, {"loss": 1.5}), (2, 10, {"loss": 1.5})]


def test_what_is_compiled_or_traced_for_the_first_time_is_waited_for_and_is_no_time_of_steps(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass has two batches of 8 samples and one of 4."""
    monkeypatch.setattr(xla, "choose", lambda given, model: Xla(True, "it is asked for"))
    data = ("data=synthetic", "shape=[4]", "samples=20", "epochs=3")
    course = Course(build(*TINY, *data), monkeypatch, clock_at=4)
    assert course.trained() == [
        (0, 1), "read", (1, 1), "(", (2, 1), "read", ")",
        (3, 1), "(", (4, 1, "with the clock"), "read", ")", (5, 1),
        (6, 1), (7, 1), (8, 1),
    ]  # fmt: skip
    assert course.phases() == [
        ("compiling", "XLA"), ("training", ""), ("compiling", "smaller batch"), ("training", ""),
    ]  # fmt: skip
    clock = course.training.loop.built.report.speed.clock
    assert clock.ended_steps == 9 - 2, "the clock does not run meanwhile"


@pytest.mark.parametrize(
    ("resume_at", "fits", "steps"),
    [
        (3, [(0, 1, 2), (1, 3, 5)], range(3, 15)),
        (14, [(2, 3, 1)], [14]), (15, [(3, 3, 5)], []),
    ],
)  # fmt: skip
def test_the_rest_of_a_resumed_epoch_is_a_fit_of_its_own_and_at_the_end_there_is_one_without_a_step(
    resume_at: int, fits: list[tuple[int, int, int]], steps: Any, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = build(*TINY, "epochs=3", "steps_per_epoch=5")
    loop, restored = training.loop, list[int]()
    checkpoints: Any = loop.built.checkpoints

    def restore(step: int) -> list[str]:
        restored.append(step)
        return []

    checkpoints.fits, checkpoints.restore = lambda step: True, restore
    course = Course(training, monkeypatch)
    loop.run(resume_at)
    assert (course.fits, restored) == (fits, [resume_at])
    assert [call for call in course.calls if call != "read"] == [(step, 1) for step in steps]
    assert (loop.step, loop.built.report.ended_by) == (15, "last_step")
    ends = [(event["epoch"], event["step"]) for event in training.events("epoch")]
    assert ends == [(epoch, 5 * epoch) for epoch in range(1, 4) if 5 * epoch > resume_at]


def test_a_training_that_is_stopped_ends_before_its_next_execution_with_a_checkpoint(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = build(*TINY, "steps_per_epoch=5", "checkpoint=epoch")
    loop: Any = training.loop
    course, saved = Course(training, monkeypatch), list[int]()
    loop.built.checkpoints.save = saved.append
    run = loop.executions.run

    def stopping(iterator: Any, step: int, count: int) -> Any:
        if step == 6:
            loop.built.stop.request("stopped")
        return run(iterator, step, count)

    loop.executions.run = stopping
    with pytest.raises(StopRequested):
        course.trained()
    loop.leave()
    assert course.calls == [(0, 1), "read", *((step, 1) for step in range(1, 7))]
    assert (loop.step, saved) == (7, [5, 7])
    assert [event["step"] for event in training.events("progress")][-1] == 7
