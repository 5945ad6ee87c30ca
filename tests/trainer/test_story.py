"""What a training leaves in its folder from its start to its result: events, counts and files, but no times."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from gputui.engine import presets
from gputui.engine.runs import Run, checkpoint_files
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import EpochEnd, Event, Fault, Finished, Phase, Progress, Started, Warn

from tests.support.forking import Forks, trainer_of

TINY = ("model=mlp", "width=0.05", "data=synthetic", "shape=[8, 8, 1]", "samples=100", "batch_size=16", "seed=7")
STORIES: dict[str, tuple[str, ...]] = {
    "epochs with a validation and checkpoints": ("epochs=4", "checkpoint=epoch", "keep=2", "validation_split=0.2"),
    "executions of four steps, a checkpoint every five": (
        "epochs=2", "steps_per_epoch=10", "steps_per_execution=4", "checkpoint=5", "keep=10", "validation_split=0",
        "save_model=true",
    ),
    "two replicas with warm-up": (
        "epochs=2", "strategy.kind=mirrored", "logical_devices=2", "warmup_steps=3", "learning_rate_scaling=linear",
        "validation_split=0.2", "drop_remainder=true",
    ),
}  # fmt: skip


def story(run: Run) -> Iterator[str]:
    """One line for each event and file that follows from the options alone."""
    last: Event | None = None
    for event in read_events(run.path).events:
        if isinstance(event, EpochEnd | Finished) and isinstance(last, Progress):
            yield f"progress: epoch {last.epoch}/{last.epochs}, step {last.step}/{last.steps}, {sorted(last.metrics)}"
        if line := _told(event):
            yield line
        if isinstance(event, Progress | EpochEnd):
            last = event
    result = json.loads(run.file("result.json").read_text())
    yield from (
        f"result {name}: {'measured' if name.endswith('_bytes') else _shown(value)}"
        for name, value in sorted(result.items())
        if value is not None
    )
    yield from sorted(str(path.relative_to(run.path)) for path in run.path.rglob("*") if "scratch" not in str(path))


def _told(event: Event) -> str:
    match event:
        case Started():
            batch = f"{event.replicas} replicas, batch {event.global_batch_size}"
            length = f"{event.epochs} epochs of {event.steps_per_epoch} steps, {event.steps} in all"
            samples = f"{event.train_samples} and {event.validation_samples} samples of {event.sample_bytes} bytes"
            return f"started: {event.devices}, {batch}, {length}, {samples}, resumed at {event.resumed_at_step}"
        case Phase():
            return f"phase: {event.phase} {event.detail}".rstrip()
        case EpochEnd():
            return f"epoch {event.epoch}, step {event.step}: {sorted(event.metrics)}"
        case Warn() | Fault():
            return f"{event.type}: {event.kind}: {event.message}; {event.hint}"
        case Finished():
            return f"finished: {event.outcome}"
    return ""


def _shown(value: Any) -> Any:
    """Counts and words as they are; of a mapping its names, and of a measured number that it is one."""
    if isinstance(value, Mapping):
        return {name: _shown(inner) for name, inner in value.items()}
    return "measured" if isinstance(value, float) else value


def test_the_story_of_a_training(forks: Forks, home: Any, snapshot: Any) -> None:
    runs, trainers = zip(*(trainer_of(presets.defaults([*TINY, *story])) for story in STORIES.values()), strict=True)
    forks.codes(*trainers)
    for name, run in zip(STORIES, runs, strict=True):
        assert "\n".join(story(run)).replace(str(run.path), "RUN") == snapshot(name=name)


def test_the_story_of_a_training_that_has_lost_its_newest_checkpoint(forks: Forks, home: Any, snapshot: Any) -> None:
    given = ("epochs=2", "steps_per_epoch=6", "checkpoint=4", "keep=10", "validation_split=0.2")
    run, trainer = trainer_of(presets.defaults([*TINY, *given]))
    forks.codes(trainer)
    shutil.rmtree(checkpoint_files.path_of(run.file("checkpoints"), 12))
    forks.codes(trainer)
    assert "\n".join(story(run)).replace(str(run.path), "RUN") == snapshot
