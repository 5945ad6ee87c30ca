"""How long a training without checkpoints is expected to take, from earlier runs of the same preset."""

from __future__ import annotations

import os

import pytest
from gputui.engine import presets, runs
from gputui.engine.checks import early_end
from gputui.engine.presets import Preset
from gputui.engine.process import launch
from gputui.engine.runs import Run

SETTINGS = ("epochs=2", "train.seed=1")


@pytest.fixture
def preset() -> Preset:
    return presets.resolve("quickstart", ["epochs=1000"])


def ran(name: str = "quickstart", seconds: float = 10.0, settings: tuple[str, ...] = SETTINGS) -> Run:
    """A run of two epochs after a start of 4 s."""
    made = presets.resolve("quickstart", settings)
    run = runs.create(name, made.to_yaml(), launch.origin_of(made) if name == "quickstart" else "")
    run.file("result.json").write_text(
        f'{{"outcome": "ok", "seconds": {seconds}, "startup_seconds": 4.0, "epochs": 2}}'
    )
    return run


def test_the_time_follows_from_the_start_and_the_epochs_of_the_newest_run_alike(home: str, preset: Preset) -> None:
    assert early_end.expected_seconds(preset) is None
    os.utime(ran(seconds=24.0).file("preset.yaml"), (1.0, 1.0))
    assert early_end.expected_seconds(preset) == 4.0 + 1000 * 10.0
    ran()
    assert early_end.expected_seconds(preset) == 4.0 + 1000 * 3.0


def test_runs_of_other_presets_settings_and_machines_say_nothing(home: str, preset: Preset) -> None:
    ran("another")
    ran(settings=(*SETTINGS, "batch_size=8"))
    ran().file("status.json").write_text('{"host": "elsewhere"}')
    assert early_end.expected_seconds(preset) is None
    ran(settings=(*SETTINGS, "learning_rate=0.5", "warmup_steps=3", "schedule=step", "max_minutes=7"))
    assert early_end.expected_seconds(preset) == 3004.0, "the time of an epoch does not depend on these"


def test_only_the_newest_twenty_runs_are_read(home: str, preset: Preset) -> None:
    os.utime(ran().file("preset.yaml"), (1.0, 1.0))
    for _ in range(19):
        ran("another")
    assert early_end.expected_seconds(preset) == 3004.0
    ran("another")
    assert early_end.expected_seconds(preset) is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("epochs=200", "200 epochs, about 10 min, no checkpoint: a run that ends early cannot be resumed"),
        ("epochs=198", ""),
        ("epochs=1000 max_minutes=11", "1,000 epochs, about 11 min, no checkpoint"),
        ("epochs=1000 max_minutes=9", ""),
        ("epochs=1000 checkpoint=epoch", ""),
        ("epochs=100 batch_size=8", "100 epochs, no checkpoint: a run that ends early cannot be resumed"),
        ("epochs=99 batch_size=8", ""),
    ],
)
def test_ten_minutes_or_else_a_hundred_epochs_without_a_checkpoint_are_warned_of(
    home: str, settings: str, words: str
) -> None:
    ran()
    found = list(early_end.unkept(presets.resolve("quickstart", settings.split())))
    assert [finding.message.startswith(words) for finding in found] == ([True] if words else [])
    assert all((finding.level, finding.options) == ("warning", ("run.checkpoint",)) for finding in found)
