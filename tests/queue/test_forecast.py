"""About when waiting runs start, from the time left of those before them and from earlier runs."""

from __future__ import annotations

import json
import os

import pytest

from tests.doors.engine import (
    EVENTS_FILE,
    EventWriter,
    Run,
    events,
    gpu_use,
    queue_devices,
    records,
    runs,
)
from tests.doors.tui import tui_cli as cli
from tests.support.queued import Trainings, add, no_runner, waiting


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)


def progress(run: Run, left: float) -> None:
    writer = EventWriter(run.file(EVENTS_FILE), run.id)
    none = dict.fromkeys(("samples_per_second", "step_ms_p50", "step_ms_p95", "input_wait", "loss"))
    writer.emit(events.Progress(epoch=1, epochs=2, step=1, steps=2, metrics={}, eta_seconds=left, **none))
    writer.close()


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, float | None]]:
    capsys.readouterr()
    assert cli.run(("queue", "--json")) == 0
    rows = map(json.loads, capsys.readouterr().out.splitlines())
    return {row["run"]: (row["when"], row["starts_in_seconds"]) for row in rows if row["place"]}


def test_a_run_that_was_not_queued_counts_if_it_is_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run of another user, and of another program, nobody knows when it ends."""
    alone = runs.create("alone", "schema: 1\n")
    progress(alone, 25.0)
    made = waiting("fast", visible=[0])
    add(made)
    me, other = records.user_name(os.geteuid()), "somebody else"
    for user, expected in ((me, 25), (other, None)):
        use = gpu_use.GpuUse(0, "GPU-a", "T4", holder=records.Holder("GPU-a", user, run=str(alone.path)))
        reader = queue_devices.DeviceReader()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(gpu_use.GpuWatch, "read", lambda _watch, use=use: [use])
            seen = reader()
        Trainings(seen).runner().tick()
        assert shown(capsys)[made.id][1] == expected
