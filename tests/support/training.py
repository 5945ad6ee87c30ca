"""Training in the process of the tests: options from `KEY=VALUE` words, a loop from options, its events."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tests.doors.engine import EventWriter, Options, Run, presets

if TYPE_CHECKING:
    from tests.doors.trainer import Devices, Pipeline, Source, TrainingLoop


def source_of(pipe: Pipeline) -> Source:
    """The source of data of gputui's."""
    return cast("Any", pipe.train).source  # type: ignore[no-any-return]


def with_source(pipe: Pipeline, source: Source) -> Pipeline:
    streams: dict[str, Any] = {"train": pipe.train, "held_out": pipe.held_out}
    return replace(pipe, **{name: each and replace(each, source=source) for name, each in streams.items()})


def options(*settings: str) -> Options:
    """The defaults, a seed, and what the settings change."""
    return presets.defaults(["seed=7", *settings]).options


@dataclass(frozen=True)
class Training:
    """A built loop and the folder of its run."""

    loop: TrainingLoop
    run: Run

    @property
    def pipeline(self) -> Pipeline:
        return self.loop.built.pipeline

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.run.file("events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["type"] == kind]

    def losses(self) -> list[float]:
        """The loss of each epoch."""
        return [event["metrics"]["loss"] for event in self.events("epoch")]

    def train(self) -> Training:
        self.loop.run(None)
        return self

    def announce(self) -> Training:
        """Write the event that says what has been built."""
        from tests.doors.trainer import session

        session._announce(self.loop, self.loop.built.report, None)
        return self


Build = Callable[..., Training]


def built(folder: Path, devices: Devices, wanted: Options) -> Training:
    """Everything built from the options on devices that are configured, as the trainer does; nothing has run."""
    import tensorflow as tf

    from tests.doors.trainer import RunReport, StopSwitch, assembly

    # A process trains once; here each strategy needs keys of its own for its exchange of gradients.
    tf.distribute.MirroredStrategy._collective_key_base += 100_000
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder)
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    try:
        return Training(assembly.build(wanted, devices, report, StopSwitch()), run)
    except BaseException:
        report.writer.close()
        raise
