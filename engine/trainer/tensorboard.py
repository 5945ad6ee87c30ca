"""`python -P -m gputui.engine.trainer.tensorboard RUN_DIR FOLDER`: a run's figures as TensorBoard reads them.

A process of its own, as TensorFlow is needed for the format of the file. TensorBoard itself is not needed.

Deferred imports: TensorFlow takes seconds, and only `write` needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..runs import Run
from ..runs.event_reading import read_events
from ..runs.results import figure_of, rows


def write(run: Run, folder: Path) -> Path:
    """Write the run's figures as one file of TensorBoard's events into the folder, which is made if needed. Returns the
    path of the file.

    Each row of the table of figures becomes one event.
    """
    import tensorflow as tf
    from tensorflow.core.framework.summary_pb2 import SummaryMetadata
    from tensorflow.core.util import event_pb2

    folder.mkdir(parents=True, exist_ok=True)
    table = rows(read_events(run.path))
    begin = table[0]["t"] if table else 0.0
    path = folder / f"events.out.tfevents.{int(begin)}.gputui.{run.id}"
    described: set[str] = set()
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(event_pb2.Event(wall_time=begin, file_version="brain.Event:2").SerializeToString())
        for row in table:
            event = event_pb2.Event(wall_time=row["t"], step=int(row.get("step", 0)))
            for name, value in row.items():
                if name in ("t", "seconds", "step"):
                    continue
                about = SummaryMetadata(summary_description="" if name in described else _about(name))
                event.summary.value.add(tag=name, simple_value=value, metadata=about)
                described.add(name)  # TensorBoard reads the first of a tag
            writer.write(event.SerializeToString())
    return path


def _about(name: str) -> str:
    """Return the description that TensorBoard shows with the chart `name`. Empty if the figure is unknown."""
    figure = figure_of(name)
    return "" if figure is None else f"{figure.label} ({figure.unit}): {figure.about}. Source: {figure.source}."


if __name__ == "__main__":
    print(write(Run(Path(sys.argv[1])), Path(sys.argv[2])))
