"""The settings of the queue: each value that can be used, and the line about one that cannot."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from gputui.engine.queue import queue_settings
from gputui.engine.queue.queue_settings import Settings

REFUSED = (
    "script.sh", "--array=1-3", "-a1-3", "--help", "-h", "--test-only", "--usage", "--version", "-V", "--wait", "-W",
    "--wrap=ls", "'--wrap ls'", "[--time=1, --array=2]", '--comment="open', "3",
)  # fmt: skip


def read(text: str) -> Settings:
    file = queue_settings.path()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return queue_settings.read()


def faults(settings: Settings) -> list[str]:
    return [line.removeprefix(str(queue_settings.path())) for line in settings.faults]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("gpus: 1", ("1",)),
        ("gpus: [1, GPU-b]", ("1", "GPU-b")),
        ("gpus: MIG-GPU-b/7/0", ("MIG-GPU-b/7/0",)),
        ("never: []", ()),
        ("most: 1", 1),
        ("hours: 20-8", (20, 8)),
        ("hours: ' 0 - 1 '", (0, 1)),
        ("hours: 23-24", (23, 0)),
        ("hours: 9-17", (9, 17)),
        ("idle_seconds: 0", 0.0),
        ("idle_seconds: 86400", 86400.0),
    ],
)
def test_a_setting_is_read_as_it_is_written(line: str, value: Any) -> None:
    assert (queue_settings.stamp(), queue_settings.read()) == (0, Settings()), "there is no file"
    name = line.partition(":")[0]
    assert read(line) == replace(Settings(), **{name: value})


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("gpus", "[1, true]", "a list of numbers or UUIDs of GPUs, not [1, True]"),
        ("gpus", "[0, x]", "a list of numbers or UUIDs of GPUs, not [0, 'x']"),
        ("never", "-1", "a list of numbers or UUIDs of GPUs, not -1"),
        ("gpus", "[1.5]", "a list of numbers or UUIDs of GPUs, not [1.5]"),
        ("never", "{a: 1}", "a list of numbers or UUIDs of GPUs, not {'a': 1}"),
        ("most", "0", "a number from 1, not 0"),
        ("most", "true", "a number from 1, not True"),
        ("most", "1.5", "a number from 1, not 1.5"),
        ("hours", "8-8", "two hours of the day such as \"20-8\", not '8-8'"),
        ("hours", "24-8", "two hours of the day such as \"20-8\", not '24-8'"),
        ("hours", "8-25", "two hours of the day such as \"20-8\", not '8-25'"),
        ("hours", "8", 'two hours of the day such as "20-8", not 8'),
        ("idle_seconds", "-1", "a number of seconds, not -1"),
        ("idle_seconds", "86401", "a number of seconds, not 86401"),
        ("idle_seconds", "true", "a number of seconds, not True"),
        ("idle_seconds", "soon", "a number of seconds, not 'soon'"),
    ],
)
def test_a_value_that_cannot_be_used_is_left_out_and_named(name: str, value: str, takes: str) -> None:
    settings = read(f"\n{name}: {value}")
    assert settings == replace(Settings(), faults=settings.faults)
    assert faults(settings) == [f":2: {name} takes {takes}"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--time=8:00:00", ("--time=8:00:00",)),
        ("[--partition=gpu, '-A me']", ("--partition=gpu", "-A", "me")),
        ("--comment='two words'", ("--comment=two words",)),
        ("--waiting", ("--waiting",)),
        *((refused, None) for refused in REFUSED),
    ],
)
def test_sbatch_gets_each_argument_that_leaves_one_job_one_job(given: str, words: tuple[str, ...] | None) -> None:
    settings = read(f"engine: slurm\nsbatch: {given}\n")
    assert (settings.engine, settings.sbatch) == ("slurm", words or ())
    assert settings.engine_faults == settings.faults
    assert [fault.partition(", not ")[0] for fault in faults(settings)] == (
        []
        if words
        else [':2: sbatch takes a list of arguments of sbatch such as ["--partition=gpu", "--time=8:00:00"]']
    )


def test_settings_of_the_other_engine_are_named() -> None:
    unused = read("engine: slurm\nmost: 2\nhours: 1-2\nsbatch: []\n")
    assert faults(unused) == [
        ": most, hours: no effect with engine: slurm; Slurm chooses GPUs and times itself",
    ]
    assert unused.engine_faults == (), "it is certain who starts the runs"
    assert faults(read("most: 2\nsbatch: --time=1\n")) == [
        ": sbatch: no effect with engine: local; it is for engine: slurm",
    ]
    assert faults(read("engine: local\nmost: 2\n")) == []
    unknown = read("when: 1\nengine: pbs\n")
    assert faults(unknown) == [
        ":1: when is no setting; there are gpus, never, most, hours, idle_seconds, engine, sbatch",
        ":2: engine takes local or slurm, not 'pbs'",
    ]
    assert unknown.engine_faults == unknown.faults[1:]
    unreadable = read("most: [")
    assert unreadable == replace(Settings(), faults=unreadable.faults, engine_faults=unreadable.faults)
    assert faults(read("# both\nmost: 1\nmost: 2\n")) == [":3: most: is given twice; keep one of them"]


@pytest.mark.parametrize("text", ["", "# most: 2\n", "---\n\n  # engine: slurm\n"])
def test_a_file_without_content_leaves_the_defaults(text: str) -> None:
    assert read(text) == Settings()


@pytest.mark.usefixtures("not_at_utc")
def test_the_hours_may_go_over_midnight_and_the_queue_says_when_they_begin() -> None:
    night, day = Settings(hours=(20, 8)), Settings(hours=(9, 17))
    assert [hour for hour in range(24) if not night.is_time(hour)] == [*range(8, 20)]
    assert [hour for hour in range(24) if day.is_time(hour)] == [*range(9, 17)]
    assert all(Settings().is_time(hour) for hour in range(24))

    def at(hour: int, minute: int = 0, second: int = 0) -> float:
        return time.mktime((2026, 2, 3, hour, minute, second, 0, 0, -1))

    assert [night.opens_in(at(hour, 1, 30)) for hour in (0, 7, 8, 19, 20)] == [0, 0, 12 * 3600 - 90, 3600 - 90, 0]
    assert [day.opens_in(at(*then)) for then in ((8, 59, 59), (9,), (16, 59, 59), (17,), (0,))] == [
        1, 0, 0, 16 * 3600, 9 * 3600
    ]  # fmt: skip
    assert Settings().opens_in(at(3)) == 0
