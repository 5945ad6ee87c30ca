"""The figures of a run as TensorFlow reads them from the files that are written for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gputui.engine.runs import Run
from gputui.tui import cli

from tests.engine.test_history import run

__all__ = ["run"]


@pytest.mark.usefixtures("cpus")
def test_tensorboard_reads_the_same_figures(run: Run, tmp_path: Path) -> None:
    assert cli.run(["history", run.id, "--tensorboard", "-o", str(tmp_path / "board")]) == 0
    import tensorflow as tf
    from tensorflow.core.util import event_pb2

    (path,) = (tmp_path / "board").iterdir()
    read: list[Any] = [event_pb2.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    assert read[0].file_version == "brain.Event:2"
    assert read[1].summary.value[0].tensor.string_val[0].startswith(b"**small**")
    told = [(event.step, {value.tag: value.simple_value for value in event.summary.value}) for event in read[2:]]
    assert told[0] == (5, {"epoch": 1.0, "loss": 2.0, "accuracy": 0.25})
    assert told[1][1]["samples_per_second"] == 90.5
    assert told[2][1]["val_loss"] == pytest.approx(1.6)
    about = {value.tag: value.metadata.summary_description for event in read[2:4] for value in event.summary.value}
    assert "samples trained in a second" in about["samples_per_second"]
    assert "a kernel ran" in about["gpu1_busy"]
    assert read[2].summary.value[0].metadata.plugin_data.plugin_name == "scalars"
