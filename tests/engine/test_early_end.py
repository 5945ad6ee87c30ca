"""How long a training without checkpoints is expected to take, from earlier runs of the same preset."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from gputui.engine import presets, runs
from gputui.engine.checks import early_end
from gputui.engine.job.slurm import Left
from gputui.engine.presets import Preset
from gputui.engine.process import launch
from gputui.engine.runs import Run

from tests.support.checked import NONE
from tests.support.training import options

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
    ran(seconds=3.0)
    assert early_end.expected_seconds(preset) == 4.0, "it ended before its first step had"


def test_runs_of_other_presets_settings_and_machines_say_nothing(home: str, preset: Preset) -> None:
    ran("another")
    ran().file("result.json").write_text('{"outcome": "stopped", "seconds": 10.0, "startup_seconds": 4.0, "epochs": 0}')
    ran(settings=(*SETTINGS, "batch_size=8"))
    ran().file("status.json").write_text('{"host": "elsewhere"}')
    assert early_end.expected_seconds(preset) is None
    ran(settings=(*SETTINGS, "learning_rate=0.5", "warmup_steps=3", "schedule=step", "max_minutes=7"))
    assert early_end.expected_seconds(preset) == 3004.0, "the time of an epoch does not depend on these"
    ran(seconds=12.0, settings=(*SETTINGS, "schedule=reduce_on_plateau", "plateau_patience=3", "early_stop=loss"))
    assert early_end.expected_seconds(preset) == 4004.0, "nor on these"


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
        ("epochs=1000 max_minutes=10", "1,000 epochs, about 10 min, no checkpoint"),
        ("epochs=1000 max_minutes=9.99", ""),
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
    change = "run.checkpoint=epoch writes one after each epoch"
    assert {(finding.level, finding.options, finding.change) for finding in found} <= {
        ("warning", ("run.checkpoint",), change)
    }


KEPT = (
    "warning", "without checkpoints a run that is ended with its job cannot be resumed",
    "set run.checkpoint=epoch, or every so many steps",
)  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "job", "left", "note"),
    [
        ("max_minutes=3", "77", Left(60.0), ()),
        ("max_minutes=auto", "", None,
         ("note", "outside of a Slurm job auto is no limit", "for a limit here give minutes")),
        ("max_minutes=auto", "77", None,
         ("note", "squeue is asked for the end of the Slurm job 77",
          "the run ends itself 2 minutes less, or a tenth less if that is shorter")),
        ("max_minutes=auto", "77", Left(None, "no answer"),
         ("note", "squeue is asked for the end of the Slurm job 77",
          "the run ends itself 2 minutes less, or a tenth less if that is shorter")),
        ("max_minutes=auto", "77", Left(3600.0),
         ("note", "the Slurm job 77 ends in 1:00:00", "the run ends itself after 58:00")),
        ("max_minutes=auto", "77", Left(1200.0),
         ("note", "the Slurm job 77 ends in 20:00", "the run ends itself after 18:00")),
        ("max_minutes=auto", "77", Left(100.0),
         ("note", "the Slurm job 77 ends in 1:40", "the run ends itself after 1:30")),
        ("max_minutes=auto", "77", Left(-5.0),
         ("note", "the Slurm job 77 ends in 0:00", "the run ends itself after 0:00")),
    ],
)  # fmt: skip
def test_what_a_jobs_time_limit_does_is_said_and_that_nothing_is_kept(
    settings: str, job: str, left: Left | None, note: tuple[str, ...]
) -> None:
    machine = replace(NONE, job_id=job, job_ends=left)
    for checkpoint in ("off", "epoch"):
        given = options(*settings.split(), f"checkpoint={checkpoint}")
        found = [(each.level, each.message, each.change) for each in early_end.time_limit(given, machine)]
        is_lost = note and job and checkpoint == "off"
        assert found == [*([note] if note else []), *([KEPT] if is_lost else [])]
    given = options("stop_signal=SIGUSR1")
    assert [(each.options, each.level, each.message, each.change) for each in early_end.stop_signal(given, NONE)] == [
        (("run.stop_signal", "run.checkpoint"), *KEPT)
    ]
