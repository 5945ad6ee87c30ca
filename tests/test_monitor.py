"""Monitor in this process: what it costs, what it reads, and fits whose size Keras does not know."""

from __future__ import annotations

import json
import time
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui import engine
from gputui.engine import Monitor
from gputui.engine.runs import Run

X = np.random.default_rng(0).normal(size=(640, 4)).astype("float32")


def model(**more: Any) -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", **more)
    return made


def events(run: Run | None, kind: str) -> list[dict[str, Any]]:
    assert run is not None
    lines = run.file("events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == kind]


def test_the_device_is_waited_for_at_most_every_quarter_of_a_second(cpus: Any) -> None:
    made, reads = model(), 0
    stock = made.get_metrics_result

    def counted() -> Any:
        nonlocal reads
        reads += 1
        return stock()

    made.get_metrics_result = counted
    monitor = Monitor()
    begin = time.perf_counter()
    made.fit(X, X[:, 0], batch_size=2, epochs=4, verbose=0, callbacks=[monitor])
    seconds = time.perf_counter() - begin
    steps = events(monitor.run, "finished")[0]["summary"]["steps"]
    assert steps == 4 * 320
    # The first step, the end of the warm-up, and Keras itself at the end of each epoch.
    assert reads <= 2 + 4 + seconds / 0.25 + 1
    assert reads < steps / 10


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # which is how Keras finds its length
def test_a_fit_whose_length_nobody_knows_is_counted(cpus: Any) -> None:
    data = tf.data.Dataset.from_tensor_slices((X, X[:, 0])).filter(lambda a, b: True).batch(64)
    monitor = Monitor("unknown")
    model(steps_per_execution=1).fit(data, epochs=3, verbose=0, callbacks=[monitor], shuffle=False)
    started = events(monitor.run, "started")[0]
    assert started["steps_per_epoch"] is None
    assert started["global_batch_size"] in (None, 64)
    assert [event["step"] for event in events(monitor.run, "epoch")] == [10, 20, 30]
    assert events(monitor.run, "finished")[0]["summary"]["steps"] == 30
    assert monitor.run is not None
    assert monitor.run.state == "ok"


def test_several_steps_an_execution_and_a_batch_size_that_is_given(cpus: Any) -> None:
    data = tf.data.Dataset.from_tensor_slices((X, X[:, 0])).batch(32).repeat()
    monitor = Monitor(batch_size=32)
    model(steps_per_execution=5).fit(
        data, epochs=2, steps_per_epoch=20, verbose=0, callbacks=[monitor], shuffle=False
    )
    summary = events(monitor.run, "finished")[0]["summary"]
    assert (summary["steps"], summary["epochs"], summary["global_batch_size"]) == (40, 2, 32)
    assert summary["samples_per_second"] == pytest.approx(32_000 / summary["step_ms"]["p50"])
    assert summary["input_wait"] is None  # there is no reading of it


def test_each_fit_is_a_run_of_its_own_and_early_stopping_ends_it_as_done(cpus: Any) -> None:
    made, monitor = model(), Monitor("twice")
    stop = keras.callbacks.EarlyStopping("loss", patience=0, min_delta=1e9)
    made.fit(X, X[:, 0], epochs=9, verbose=0, callbacks=[monitor, stop])
    first = monitor.run
    made.fit(X, X[:, 0], epochs=1, verbose=0, callbacks=[monitor])
    assert first is not None
    assert monitor.run is not None
    assert first.id != monitor.run.id
    assert (first.state, monitor.run.state) == ("ok", "ok")
    assert len(events(first, "epoch")) == 2


def test_the_package_has_nothing_else_to_give() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Watcher'"):
        _ = engine.Watcher
