"""The devices as the queue sees them: which an entry could use, which are free, and the words for both."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.leases import free_gpus, lease
from gputui.engine.leases.free_gpus import GpuUse, GpuUser
from gputui.engine.leases.lease import Holder, NotFree
from gputui.engine.queue import free_devices
from gputui.engine.queue.entries import Entry
from gputui.engine.queue.free_devices import CPU, Device, DeviceReader
from gputui.engine.queue.queue_settings import Settings

GIB = 1024**3
A = Device("GPU-a", 0, kind="NVIDIA A100", total_bytes=40 * GIB, free_bytes=30 * GIB)
B = Device("GPU-b", 1, kind="Tesla T4", total_bytes=15 * GIB, free_bytes=15 * GIB)
X = Device("M-x", 2, kind="NVIDIA A100", total_bytes=20 * GIB, instance=0)
Y = Device("M-y", 2, kind="NVIDIA A100", total_bytes=20 * GIB, instance=1)
HOST = Device(CPU)


def entry(needs: str, run: str = "run", **more: object) -> Entry:
    return Entry(run, 1.0, needs=needs, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("needs", "devices", "usable"),
    [
        ("cpu", (A, B, HOST), [HOST]), ("all", (HOST,), [HOST]), ("free:2", (HOST,), [HOST]),
        ("all", (A, B, HOST), [A, B]), ("all", (A, X, Y, HOST), [X]), ("free:1", (A, B, X, Y, HOST), [A, B, X, Y]),
        ("free:2", (A, B, X, Y, HOST), [A, B]), ("free:1@T4", (A, B, X, HOST), [B]),
        ("free:1@20GB", (A, B, X, HOST), [A, X]), ("0", (A, B, HOST), [A]), ("GPU-b,0", (A, B, X, HOST), [A, B]),
        ("2", (A, X, Y, HOST), [X]), ("M-y", (A, X, Y, HOST), [Y]), ("7", (A, B, HOST), []),
    ],
)  # fmt: skip
def test_an_entry_could_use_the_devices_that_its_options_allow(
    needs: str, devices: tuple[Device, ...], usable: list[Device]
) -> None:
    assert free_devices.usable(entry(needs), devices) == usable


def test_an_entry_could_use_only_the_gpus_that_its_environment_leaves() -> None:
    assert free_devices.usable(entry("free:1", among=["GPU-b", "M-y"]), (A, B, X, Y, HOST)) == [B, Y]


@pytest.mark.parametrize(
    ("needs", "gpus", "count", "words"),
    [
        ("cpu", 4, 1, "the CPU"), ("free:2", 0, 1, "the CPU"), ("all", 0, 1, "the CPU"), ("all", 1, 1, "its GPU"),
        ("all", 3, 3, "all 3 GPUs"), ("free:1", 3, 1, "a GPU"), ("free:2", 3, 2, "2 GPUs"), ("0", 3, 1, "GPU 0"),
        ("0,GPU-b", 3, 2, "GPU 0, GPU GPU-b"),
    ],
)  # fmt: skip
def test_how_many_devices_an_entry_needs_and_in_words(needs: str, gpus: int, count: int, words: str) -> None:
    assert free_devices.count(entry(needs), gpus) == count
    assert free_devices.needs_text(entry(needs), gpus) == words


def test_what_an_entry_needs_is_said_with_its_memory_its_places_and_from_what_it_is_predicted() -> None:
    fits = entry("fits:1", bytes=5 * GIB, prediction="predicted from batch sizes 1 and 2")
    shares = entry("free:1", per_gpu=2, prediction="not measured")
    assert free_devices.needs_text(fits, 1) == "a GPU with 5.0 GiB free"
    assert free_devices.needs_in_full(fits, 1) == "a GPU with 5.0 GiB free (predicted from batch sizes 1 and 2)"
    assert free_devices.needs_in_full(fits, 0) == "the CPU", "there is no GPU whose memory it needs"
    assert free_devices.needs_in_full(shares, 2) == "1 of 2 places on a GPU (not measured)"
    assert free_devices.needs_in_full(entry("free:1", bytes=5 * GIB), 1) == "a GPU", "it takes the whole one"
    of_slurm = [entry(needs, slurm_job="7") for needs in ("all", "free:2", "cpu", "0,1")]
    assert [free_devices.needs_text(each, 0) for each in of_slurm] == [
        "the GPUs of its job", "2 GPUs", "the CPU", "GPU 0, GPU 1"
    ]  # fmt: skip


def test_a_device_is_not_free_or_has_too_little_memory_for_one_that_shares_it() -> None:
    used = replace(A, holder="bob's python")
    leased = replace(A, holder="used by eve's digits", shut="eve's digits")
    whole, fits, more = entry("free:1"), entry("fits:1", bytes=30 * GIB), entry("fits:1", bytes=30 * GIB + 1)
    assert [free_devices.why_not(whole, each) for each in (A, used, leased)] == [
        "", "bob's python", "used by eve's digits"
    ]  # fmt: skip
    assert [free_devices.why_not(fits, each) for each in (A, used, leased)] == ["", "", "eve's digits"]
    assert free_devices.why_not(more, used) == "30.0 GiB of its memory are free"
    assert free_devices.why_not(more, leased) == "eve's digits"
    assert free_devices.why_not(entry("fits:1"), used) == "", "how much it needs is not known"
    assert free_devices.why_not(entry("cpu"), replace(HOST, holder="used by me", shut="me")) == "used by me"


def test_at_most_three_busy_devices_are_named() -> None:
    busy = [Device(f"GPU-{at}", at, holder=f"user {at}") for at in range(5)]
    two = "GPU 0: user 0; GPU 1 is kept for a run before it"
    assert free_devices.why_busy(entry("free:1"), [*busy[:2], A], {"GPU-1"}) == two
    three = f"{two}; GPU 2: user 2"
    assert free_devices.why_busy(entry("free:1"), busy[:3], {"GPU-1"}) == three
    assert free_devices.why_busy(entry("free:1"), busy, {"GPU-1"}) == f"{three} and 2 more"
    host = replace(HOST, holder="used by me")
    assert free_devices.why_busy(entry("cpu"), [host], ()) == "used by me"
    assert free_devices.why_busy(entry("cpu"), [host], {CPU}) == "the CPU is kept for a run before it"
    assert [str(each) for each in (A, Y, Device("GPU-z"))] == ["GPU 0", "GPU 2:1", "GPU GPU-z"]


def test_a_gpu_has_room_for_runs_with_the_same_number_while_nobody_else_is_on_it() -> None:
    shares = [entry("free:1", run, per_gpu=3) for run in "abc"]
    ours, strangers = replace(A, holder="r1 trains on it", per_gpu=3), replace(A, holder="r1 trains on it")
    assert [free_devices.has_room(shares[0], ours, shares[:number]) for number in (1, 2, 3)] == [True, True, False]
    assert not free_devices.has_room(shares[0], strangers, shares[:1])
    assert free_devices.has_room(shares[0], A, shares[:1]), "it has begun a moment ago"
    assert not free_devices.has_room(shares[0], ours, [shares[1], entry("free:1", per_gpu=2)])
    assert not free_devices.has_room(entry("free:1"), A, [entry("free:1")])
    assert not free_devices.has_room(shares[0], HOST, shares[:1])
    assert [free_devices.has_room(entry("free:1"), each, ()) for each in (A, ours)] == [True, False]


def test_the_settings_order_the_devices_and_leave_some_out() -> None:
    devices = [A, B, X, Y, HOST]
    for settings, allowed in (
        (Settings(), devices), (Settings(gpus=("1", "GPU-a")), [B, A, X, Y, HOST]),
        (Settings(never=("2",)), [A, B, HOST]), (Settings(gpus=("M-y",), never=("0", "GPU-b")), [Y, X, HOST]),
    ):  # fmt: skip
        assert free_devices.allowed(devices, settings) == allowed
    assert [free_devices.shown_at_once(each) for each in ([A, B, HOST], devices, [HOST])] == [2, 1, 0]


def test_the_views_of_the_queue_get_the_devices_that_the_runner_has_seen() -> None:
    seen = [
        replace(A, holder="used by me", run="/runs/a"), replace(B, holder="must stay idle", settles=True), replace(Y),
        HOST,
    ]  # fmt: skip
    plain = free_devices.as_news(seen)
    assert plain[:3] == [
        {"name": "GPU-a", "index": 0, "kind": "NVIDIA A100", "total_bytes": 40 * GIB, "instance": None,
         "run": "/runs/a", "is_taken": True},
        {"name": "GPU-b", "index": 1, "kind": "Tesla T4", "total_bytes": 15 * GIB, "instance": None, "run": "",
         "is_taken": False},
        {"name": "M-y", "index": 2, "kind": "NVIDIA A100", "total_bytes": 20 * GIB, "instance": 1, "run": "",
         "is_taken": False},
    ]  # fmt: skip
    assert free_devices.from_news(plain) == [
        replace(A, holder="taken", run="/runs/a", free_bytes=0), replace(B, free_bytes=0), Y, HOST
    ]  # fmt: skip
    assert free_devices.from_news([7, {"name": ""}, {"index": 3}, {"name": "GPU-c", "index": "x"}]) == [Device("GPU-c")]
    assert free_devices.from_news(None) == free_devices.from_news({"name": "GPU-a"}) == []


# ---- from reading to reading ---------------------------------------------------------------------


class Box:
    """A reader of the devices, with GPUs and a clock that a test decides."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.uses, self.closed = 1000.0, list[GpuUse](), 0
        self.fault: Exception | None = None
        monkeypatch.setattr(free_devices, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(free_gpus.GpuWatch, "read", lambda _watch: self._read())
        monkeypatch.setattr(free_gpus.GpuWatch, "close", lambda _watch: setattr(self, "closed", self.closed + 1))
        monkeypatch.setenv(free_gpus.IDLE_VARIABLE, "20")
        self.reader = DeviceReader()

    def _read(self) -> list[GpuUse]:
        if self.fault is not None:
            raise self.fault
        return self.uses

    def holders(self, passed: float = 0.0) -> list[str]:
        self.now += passed
        return [device.holder for device in self.reader()]


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(monkeypatch)


BOB = GpuUser(1, "bob", "python")
FREE = GpuUse(0, "GPU-a", "A100", 0, 24 * GIB, 0.0, ())
IDLE = "must stay idle for {} s first"


def test_a_gpu_that_was_used_again_must_stay_idle_again(box: Box) -> None:
    box.uses = [FREE, replace(FREE, index=1, uuid="GPU-b")]
    assert box.holders() == [IDLE.format(20), IDLE.format(20), ""]
    assert box.holders(19.9) == [IDLE.format(20), IDLE.format(20), ""]
    box.uses[1] = replace(box.uses[1], users=(BOB,))
    assert box.holders(0.1) == ["", "used by bob's python", ""]
    box.uses[1] = replace(box.uses[1], users=())
    assert box.holders(5.0) == ["", IDLE.format(20), ""], "from now on"
    assert [device.settles for device in box.reader()] == [False, True, False]
    assert box.holders(20.0) == ["", "", ""]
    box.reader.idle_seconds = 40.0
    assert box.holders() == ["", IDLE.format(40), ""]
    box.reader.idle_seconds = 0.0
    assert box.holders() == ["", "", ""]


def test_gpus_that_cannot_be_read_are_those_of_the_last_reading_and_not_free(box: Box) -> None:
    box.fault = NotFree("the GPUs cannot be read: the driver hangs")
    assert [(device.name, device.holder) for device in box.reader()] == [(CPU, "")], "none was ever seen"
    box.fault, box.uses = None, [FREE]
    box.reader.idle_seconds = 0.0
    assert box.holders() == ["", ""]
    box.fault = NotFree("the GPUs cannot be read: the driver hangs")
    for _ in range(2):
        gpu, host = box.reader()
        assert (gpu.name, gpu.holder, gpu.shut, host.holder) == ("GPU-a", str(box.fault), str(box.fault), "")
    box.fault = None
    assert box.holders() == ["", ""]
    box.uses = []
    assert box.holders() == [""], "the GPU was taken out"
    box.reader.close()
    assert box.closed == 1


def test_a_device_has_all_that_its_reading_and_its_lease_say(box: Box) -> None:
    me = lease.user_name(os.geteuid())
    mine = Holder("GPU-a", me, 1, what="digits", run="/runs/a")
    theirs = Holder("GPU-b", "eve", 2, what="words", run="/runs/b")
    box.uses = [
        replace(FREE, memory_used_bytes=4 * GIB, holder=mine, users=(BOB,)),
        replace(FREE, index=1, uuid="GPU-b", holder=theirs),
        replace(FREE, index=2, uuid="M-x", instance=1, fault="lost"),
        replace(FREE, index=3, uuid="GPU-d", memory_used_bytes=2 * GIB, holder=replace(mine, stuck="it has ended")),
    ]
    (host,) = lease.take([CPU], "letters")
    host.write("letters", "/runs/c")
    seen = box.reader()
    about: dict[str, Any] = {"kind": "A100", "total_bytes": 24 * GIB, "free_bytes": 24 * GIB}
    assert seen[:-1] == (
        Device("GPU-a", 0, f"used by {me}'s digits", f"{me}'s digits", **about | {"free_bytes": 20 * GIB},
               users=(BOB,), run="/runs/a"),
        Device("GPU-b", 1, "used by eve's words", "eve's words", **about),
        Device("M-x", 2, "lost", "lost", **about, instance=1),
        Device("GPU-d", 3, "2.0 GiB of its memory are in use, stuck: it has ended", **about | {"free_bytes": 22 * GIB}),
    )  # fmt: skip
    cpu = seen[-1]
    assert (cpu.name, cpu.run, cpu.holder) == (CPU, "/runs/c", f"used by {cpu.shut}")
    assert cpu.shut.startswith(f"{me}'s letters since ")
    host.release()
