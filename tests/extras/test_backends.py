"""Monitor on Keras' other backends, with the real ones: a fit is a run, which is watched, stopped and compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doors.engine import events, read_events, runs
from tests.support.front_door import gputui

PROGRAM = """
import json, os, signal
import keras, numpy as np
from gputui.engine import Monitor

x = np.random.default_rng(0).normal(size=(1000, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
pulses = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: __import__("time").sleep(0.02))
ends = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: os.kill(os.getpid(), signal.SIGTERM))
how = {"batch_size": 32, "epochs": 3, "validation_split": 0.2, "verbose": 0}
fit = model.fit(x, x[:, :1], callbacks=[Monitor("whole"), pulses], **how)
print(json.dumps(fit.history))
model.fit(x, x[:, :1], callbacks=[Monitor("stopped"), ends], **how)
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_fit_on_another_backend_is_a_run(backend: str, tmp_path: Path) -> None:
    pytest.importorskip(backend)
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "gputui/settings.yaml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(f"notify: {{command: 'cat >> {tmp_path}/notices'}}\n")
    chosen = os.environ | {"KERAS_BACKEND": backend}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=chosen, capture_output=True, text=True, check=True)
    history = json.loads(done.stdout)
    stopped, whole = runs.all_runs()[:2]
    assert (whole.state, stopped.state) == ("ok", "stopped"), done.stderr
    written = read_events(whole.path)
    for name in history:
        ends = [event.metrics[name] for event in written.of(events.EpochEnd)]
        assert ends == pytest.approx(history[name], rel=1e-6), name
    started, result = written.last(events.Started), whole.result or {}
    assert started is not None
    assert backend in started.versions
    assert result["steps"] == 75
    assert result["samples_per_second"] > 0
    learnt = [event.learning_rate for event in written.of(events.Progress) if event.window_loss is not None]
    assert learnt[-1] == pytest.approx(1e-3)
    assert len((tmp_path / "notices").read_text().split("}")) >= 2
    assert "throughput" in gputui("compare", whole.id, stopped.id).stdout
    assert gputui("follow", whole.id, "--to", "tensorboard").returncode == 0
