"""Processes that hold a GPU's memory and have been idle for hours: by notes from one look to the next."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from gputui.engine.leases import idle_notes, lease
from gputui.engine.leases.free_gpus import GpuUse, GpuUser
from gputui.engine.leases.idle_notes import IdleNotes
from gputui.tui.drawing.gpu_details import doing
from gputui.tui.reading.gpu_leases import with_leases
from gputui.tui.reading.run.gpu_reading import Gpu, GpuProcess

from tests.leases.test_commands import answer
from tests.support.fakenvml import FakeNvml

pytest_plugins = ("tests.support.fakenvml.fixture",)

HOUR = 3600.0


class Watched:
    """A process on a GPU, and the time that passes."""

    def __init__(self, pid: int) -> None:
        self.pid, self.now, self.cpu_seconds = pid, 50_000.0, 8.0
        self.notes = IdleNotes()

    def clock_gettime(self, _clock: int) -> float:
        return self.now

    def idle(self, passed: float = 0.0, cpu: float = 0.0, use: float | None = 0.0, busy: float | None = 0.0) -> object:
        """Look after `passed` seconds, in which the process has used `cpu` seconds of CPU time."""
        self.now += passed
        self.cpu_seconds += cpu
        user = GpuUser(self.pid, "bob", "python", use=use, cpu_seconds=self.cpu_seconds)
        (seen,) = self.notes.of([GpuUse(0, "GPU-a", "T4", 9 * 1024**3, busy=busy, users=(user,))])
        assert seen.users
        return seen.users[0].idle_seconds

    def again(self) -> None:
        """From now on another process of gputui looks."""
        self.notes = IdleNotes()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    made = Watched(os.getpid())
    monkeypatch.setattr(
        idle_notes, "time", SimpleNamespace(clock_gettime=made.clock_gettime, CLOCK_BOOTTIME=time.CLOCK_BOOTTIME)
    )
    return made


def test_idle_time_goes_on_from_one_look_to_the_next_and_ends_with_work(watched: Watched) -> None:
    assert watched.idle() == 0
    for _ in range(3):
        watched.again()
        assert watched.idle(HOUR, cpu=1.0)
    assert watched.idle(1.0) == 3 * HOUR + 1
    assert watched.idle(1.0, use=0.2) == 0, "it works"
    watched.again()
    assert watched.idle(HOUR) == HOUR
    assert watched.idle(HOUR, cpu=60.0) == 0, "it may have worked meanwhile"
    assert watched.idle(59.0, cpu=0.2) == 59
    assert watched.idle(59.0, cpu=0.2) == 118
    assert watched.idle(59.0, cpu=0.9) == 0


def test_another_process_with_the_same_id_and_another_start_of_the_machine_begin_at_zero(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.idle()
    assert watched.idle(HOUR) == HOUR
    path = lease.folder() / f"idle.{os.geteuid()}.json"
    good = json.loads(path.read_text())
    changes: tuple[dict[str, object], ...] = (
        good | {"boot_id": "another"}, good | {"notes": {"1": 3}}, {},
    )  # fmt: skip
    for changed in changes:
        path.write_text(json.dumps(changed))
        watched.again()
        assert watched.idle(HOUR) == 0
    path.write_text(json.dumps(good))
    watched.again()
    assert watched.idle(HOUR) == 5 * HOUR
    monkeypatch.setattr(idle_notes, "Process", SimpleNamespace(of=lambda _pid: SimpleNamespace(start_ticks=7)))
    assert watched.idle(HOUR) == 0


def test_what_cannot_be_known_is_not_said(watched: Watched) -> None:
    assert watched.idle(use=None, busy=0.0) == 0
    assert watched.idle(HOUR, use=None, busy=0.01) == HOUR, "nothing uses the GPU"
    assert watched.idle(HOUR, use=None, busy=None) is None
    assert watched.idle(HOUR, use=None, busy=0.0) == 0, "nobody knows about the time before"
    assert watched.idle(HOUR, use=None, busy=0.5) == 0


def test_a_process_is_idle_only_if_it_is_so_on_all_its_gpus(watched: Watched) -> None:
    def look(*uses: float) -> list[float | None]:
        users = [GpuUser(watched.pid, "bob", "python", use=use, cpu_seconds=8.0) for use in uses]
        boxes = [GpuUse(number, f"GPU-{number}", "T4", users=(user,)) for number, user in enumerate(users)]
        return [user.idle_seconds for gpu in watched.notes.of(boxes) for user in gpu.users or ()]

    look(0.0, 0.0)
    watched.now += HOUR
    assert look(0.0, 0.0) == [HOUR, HOUR]
    assert look(0.0, 0.4) == [0, 0]


def test_the_screen_shows_what_was_noted_before_it_was_opened(watched: Watched) -> None:
    watched.idle()
    watched.again()
    watched.now += 3 * HOUR
    idle = GpuProcess(watched.pid, "python", 9.0 * 1024**3, user="bob", use=0.0, idle_seconds=4.0, cpu_seconds=8.0)
    unseen = GpuProcess(watched.pid + 1, "python")
    (gpu,) = with_leases([Gpu(0, uuid="GPU-a", processes=(idle, unseen))], watched.notes)
    assert gpu.lease == "used by bob's python, idle for 3 h and 1 more"
    assert [doing(process) for process in gpu.processes or ()] == ["idle for 3 h", ""]
    assert doing(idle) == "idle at least 0:04"


def test_the_command_names_an_idle_process_and_how_it_was_decided(
    nvml: FakeNvml, tmp_path: Path, sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "leases"
    box = nvml.environment(f"procs={sleeper} mem_used=9000") | {"GPUTUI_LEASES": str(folder)}
    _, output, _ = answer(box, "gpus", "--json")
    (process,) = json.loads(output)["processes"]
    assert process["idle_seconds"] == 0
    path = folder / f"idle.{os.geteuid()}.json"
    content = json.loads(path.read_text())
    (note,) = content["notes"].values()
    for name in ("idle_since", "noted_at"):
        note[name] -= 3 * HOUR + 60
    path.write_text(json.dumps(content))
    _, output, _ = answer(box, "gpus")
    rows = output.splitlines()
    assert "'s sleep since " in rows[1]
    assert ", idle for 3 h (" in rows[1]
    assert rows[-1].startswith("idle: at no look of gputui since then")
    _, output, _ = answer(box | {"FAKE_NVML": f"procs={sleeper} mem_used=9000 worked={sleeper}"}, "gpus")
    assert "idle" not in output
