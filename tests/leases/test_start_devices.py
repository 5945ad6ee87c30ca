"""The devices of a start: which are leased and in which order, what its options get, and who is in the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.job import gpu_parts, this_machine, training_gpus
from gputui.engine.job.allocation import Allocation
from gputui.engine.job.machine_gpus import Gpu, Instance, Machine
from gputui.engine.leases import free_gpus, lease, memory_needs, start_devices
from gputui.engine.leases.free_gpus import GpuUse, GpuUser
from gputui.engine.leases.lease import CPU, NotFree
from gputui.engine.leases.memory_needs import MemoryNeed
from gputui.engine.options import Options, gpu_choice
from gputui.engine.proof import folder, request
from gputui.engine.proof.request import ProofError
from gputui.engine.runs import RunError

GIB, MIB = 1024**3, 1024**2
GPUS = tuple(Gpu(index, f"GPU-{index}", "A100", (8, 0), 40 * GIB, memory_used_bytes=index * MIB) for index in range(3))
FREE = [GpuUse(index, f"GPU-{index}", "A100", index * MIB, 40 * GIB, 0.0, ()) for index in range(3)]
BOB = GpuUser(1, "bob", "python")


def options(*settings: str) -> Options:
    return presets.resolve("quickstart", settings).options


def box(*gpus: Gpu, cpus: int = 8) -> Machine:
    return Machine(gpus, "", cpus, 64 * GIB)


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[GpuUse]]:
    """The use of three GPUs, as a test changes it; none is leased after it."""
    made = list(FREE)
    monkeypatch.setattr(this_machine, "read", lambda: box(*GPUS))
    monkeypatch.setattr(free_gpus, "read", lambda: made)
    monkeypatch.setenv(free_gpus.IDLE_VARIABLE, "0")
    yield made
    assert lease.holders() == {}


# ---- what is leased ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "among", "busy", "chosen"),
    [
        ("free:2", None, (), [0, 1]), ("free:2", None, (0,), [1, 2]), ("free:1", ["GPU-2"], (), [2]),
        ("free:2", ["GPU-2", "GPU-0"], (), [0, 2]), ("free:1", None, (0, 1), [2]),
    ],
)  # fmt: skip
def test_the_chosen_gpus_replace_the_choice_in_the_options(
    uses: list[GpuUse], visible: str, among: list[str] | None, busy: tuple[int, ...], chosen: list[int]
) -> None:
    for index in busy:
        uses[index] = replace(uses[index], users=(BOB,))
    asked = options(f"visible={visible}")
    devices = start_devices.lease_devices(asked, "digits", among=among)
    names: list[int | str] = [f"GPU-{index}" for index in chosen]
    assert devices.options == replace(asked, device=replace(asked.device, visible=names))
    assert [(each.name, each.used_bytes) for each in devices.leases] == [
        (name, index * MIB) for name, index in zip(names, chosen, strict=True)
    ]
    who = lease.holder(str(names[0]))
    assert who is not None
    assert who.what == "digits"
    devices.release()


def test_a_choice_is_made_from_the_gpus_that_may_work_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    instances = (Instance("MIG-a", 20 * GIB), Instance("MIG-b", 10 * GIB))
    gpus = (
        replace(GPUS[0], lost="it is lost"), replace(GPUS[1], prohibited=True),
        replace(GPUS[2], mig=True, instances=instances), replace(GPUS[0], index=3, uuid="GPU-3", name="T4"),
        replace(GPUS[0], index=4, uuid="GPU-4"), replace(GPUS[0], index=5, uuid="GPU-5", multiprocessors=2),
    )  # fmt: skip
    for visible, allocated, chosen in (
        ("free:1", None, ["MIG-a", "MIG-b", "GPU-3", "GPU-4", "GPU-5"]), ("free:2", None, ["GPU-3", "GPU-4", "GPU-5"]),
        ("free:1@A100", None, ["MIG-a", "MIG-b", "GPU-4", "GPU-5"]), ("free:1@15GB", None, ["MIG-a", "GPU-3", "GPU-4",
         "GPU-5"]), ("free:1", ("MIG-b", "4"), ["MIG-b", "GPU-4"]), ("free:1", ("2", "0"), ["MIG-a", "MIG-b"]),
        ("free:1", (), []), ("free:1@H100", None, []),
    ):  # fmt: skip
        allocation = None if allocated is None else Allocation("SLURM_JOB_GPUS", allocated)
        here = replace(box(*gpus), allocation=allocation)
        choice = gpu_choice.parse(visible)
        assert choice is not None
        found = training_gpus.candidates(choice, here)
        assert [gpu.instance or gpu.uuid for gpu in found] == chosen, (visible, allocated)
        assert training_gpus.visible_gpus(options(f"visible={visible}"), here) == found[: choice.count]


def test_gpus_that_fit_are_leased_by_their_free_memory_and_named_in_the_order_of_the_machine(
    uses: list[GpuUse], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_needs, "of_options", lambda _: MemoryNeed(5 * GIB, "predicted from two"))
    uses[0] = replace(uses[0], memory_used_bytes=20 * GIB, users=(BOB,))
    uses[2] = replace(uses[2], memory_used_bytes=30 * GIB)
    told: list[str] = []
    devices = start_devices.lease_devices(options("visible=fits:2"), "digits", told.append)
    assert devices.options.device.visible == ["GPU-0", "GPU-2"], "the two with the least memory that is enough"
    assert told == ["needs 5.0 GiB on each GPU, predicted from two"]
    devices.release()


def test_too_few_gpus_are_refused_with_their_users_and_nothing_stays_leased(uses: list[GpuUse]) -> None:
    uses[1] = replace(uses[1], users=(BOB,))
    (held,) = lease.take(["GPU-2"], "words")
    uses[2] = replace(uses[2], holder=lease.Holder("GPU-2", "me", what="words"))
    with pytest.raises(NotFree) as refusal:
        start_devices.lease_devices(options("visible=free:2"), "digits")
    assert str(refusal.value) == (
        "needs 2 GPUs, and 1 can be had: GPU 1: used by bob's python; GPU 2: used by me's words"
    )
    assert list(lease.holders()) == ["GPU-2"]
    held.release()


def test_named_gpus_are_used_even_if_another_has_leased_one_unless_the_run_is_queued(uses: list[GpuUse]) -> None:
    (held,) = lease.take(["GPU-1"], "words")
    named = options("visible=[2,1,0]", "strategy.kind=mirrored")
    devices = start_devices.lease_devices(named, "digits")
    assert devices.options == named
    assert [each.name for each in devices.leases] == ["GPU-2", "GPU-0"]
    assert [each.used_bytes for each in devices.leases] == [2 * MIB, 0]
    devices.release()
    with pytest.raises(NotFree, match=r"GPU-1 is used by .*words"):
        start_devices.lease_devices(named, "digits", among=["GPU-0", "GPU-1", "GPU-2"])
    held.release()
    single = options("visible=[2,1]")
    for all_visible, names in ((False, ["GPU-2"]), (True, ["GPU-1", "GPU-2"])):
        devices = start_devices.lease_devices(single, "digits", all_visible=all_visible)
        assert sorted(each.name for each in devices.leases) == names
        devices.release()


def test_a_run_that_shares_its_gpu_gets_its_part_of_memory_and_threads_in_the_queue_alone(
    uses: list[GpuUse], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = options("visible=free:1", "per_gpu=2")
    devices = start_devices.lease_devices(asked, "digits", among=["GPU-1"])
    assert devices.options.device == replace(
        asked.device, visible=["GPU-1"], memory_limit_mb=int(0.95 * 40 * 1024 / 2 - 768), intra_op_threads=4,
        inter_op_threads=4,
    )  # fmt: skip
    assert [each.key for each in devices.leases] == ["GPU-1~1"]
    devices.release()
    devices = start_devices.lease_devices(asked, "digits")
    assert devices.options.device == replace(asked.device, visible=["GPU-0"])
    assert [each.key for each in devices.leases] == ["GPU-0"]
    devices.release()
    monkeypatch.setattr(this_machine, "read", lambda: box(replace(GPUS[0], memory_total_bytes=1700 * MIB)))
    with pytest.raises(RunError, match=r"leave each less than 64\.0 MiB of .*: set run\.per_gpu to less than 2$"):
        start_devices.lease_devices(asked, "digits", among=["GPU-0"])


def test_a_lease_is_handed_over_with_its_title(uses: list[GpuUse]) -> None:
    devices = start_devices.lease_devices(options("visible=free:1"), "digits")
    (each,) = devices.leases
    devices.hand_over(1, "/runs/a")
    assert (each.fields["what"], each.fields["run"], each.fields["pid"]) == ("digits", "/runs/a", 1)


# ---- who is in the way ---------------------------------------------------------------------------


def test_who_uses_the_gpus_that_the_options_name(uses: list[GpuUse], monkeypatch: pytest.MonkeyPatch) -> None:
    uses[0] = replace(uses[0], users=(BOB,))
    uses[2] = replace(uses[2], busy=0.5)
    for settings, words in (
        (["visible=all", "strategy.kind=mirrored"], "GPU 0: used by bob's python; GPU 2: busy for 50 % of the time"),
        (["visible=all"], "GPU 0: used by bob's python"), (["visible=[1]"], ""), (["visible=none"], ""),
        (["visible=[2]"], "GPU 2: busy for 50 % of the time"), (["visible=free:1"], ""),
    ):  # fmt: skip
        assert start_devices.in_use(options(*settings), box(*GPUS)) == words, settings
        if settings != ["visible=free:1"]:
            assert start_devices.why_not(options(*settings), box(*GPUS)) == words, settings
    assert start_devices.why_not(options("visible=free:2"), box(*GPUS)) == (
        "needs 2 GPUs, and 1 can be had: GPU 0: used by bob's python; GPU 2: busy for 50 % of the time"
    )

    def unreadable() -> Any:
        raise NotFree("the GPUs cannot be read")

    monkeypatch.setattr(free_gpus, "read", unreadable)
    assert start_devices.in_use(options("visible=all"), box(*GPUS)) == ""
    with pytest.raises(NotFree, match="cannot be read"):
        start_devices.why_not(options("visible=free:1"), box(*GPUS))
    (held,) = lease.take([CPU], "letters")
    assert start_devices.why_not(options("visible=none"), box()).startswith("the CPU is used by ")
    assert start_devices.in_use(options("visible=none"), box()) == "", "runs may share it"
    held.release()
    assert start_devices.why_not(options("visible=none"), box()) == ""


# ---- the part of each ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "gpus", "cpus", "count", "changes"),
    [
        ([], GPUS[:1], 8, 1, {}),
        ([], GPUS[:1], 8, 3, {"intra_op_threads": 2, "inter_op_threads": 2, "memory_limit_mb": 12202}),
        ([], (), 8, 4, {"intra_op_threads": 2, "inter_op_threads": 2}),
        ([], (), 3, 4, {"intra_op_threads": 1, "inter_op_threads": 1}),
        (["intra_op_threads=5"], (), 8, 2, {"inter_op_threads": 4}),
        (["memory_limit_mb=1000"], GPUS[:1], 8, 2, {"intra_op_threads": 4, "inter_op_threads": 4}),
        (["visible=[1]"], (replace(GPUS[0], memory_total_bytes=None), GPUS[1]), 8, 2,
         {"intra_op_threads": 4, "inter_op_threads": 4, "memory_limit_mb": 18688}),
        ([], (replace(GPUS[0], memory_total_bytes=None),), 8, 2, {"intra_op_threads": 4, "inter_op_threads": 4}),
    ],
)  # fmt: skip
def test_each_of_several_trainings_has_its_part_of_the_device(
    settings: list[str], gpus: tuple[Gpu, ...], cpus: int, count: int, changes: dict[str, int]
) -> None:
    assert gpu_parts.of_each(options(*settings), box(*gpus, cpus=cpus), count) == changes


def test_parts_that_are_too_small_are_refused_with_their_sizes() -> None:
    small = replace(GPUS[0], memory_total_bytes=round(2 * (768 + 64) * MIB / 0.95) + MIB)
    assert gpu_parts.of_each(options(), box(small), 2)["memory_limit_mb"] == 64
    with pytest.raises(gpu_parts.TooSmall) as refusal:
        gpu_parts.of_each(options(), box(replace(small, memory_total_bytes=1750 * MIB)), 2)
    assert str(refusal.value).startswith("2 trainings leave each less than 64.0 MiB of ")
    given = options("memory_limit_mb=20480")
    assert "memory_limit_mb" not in gpu_parts.of_each(given, box(*GPUS), 2)
    with pytest.raises(gpu_parts.TooSmall, match=r"^3 x 20\.0 GiB \(device\.memory_limit_mb\) are more than .* has$"):
        gpu_parts.of_each(given, box(*GPUS), 3)


@pytest.mark.parametrize(
    ("settings", "on_cpu", "conflict"),
    [
        ([], False, None), (["strategy.kind=one_device", "strategy.devices=[0]"], False, None),
        (["strategy.kind=mirrored"], False,
         ("strategy.kind", "trainings share one device, not with mirrored", "strategy.kind=single")),
        (["logical_devices=2"], True,
         ("device.logical_devices", "trainings share one whole device", "device.logical_devices=1")),
        (["allocator=cuda_malloc_async"], False,
         ("device.allocator",
          "the memory of each training on a GPU is limited, which cuda_malloc_async cannot do",
          "device.allocator=default")),
        (["allocator=cuda_malloc_async", "memory_growth=true"], True, None),
        (["memory_growth=true"], False,
         ("device.memory_growth",
          "the memory of each training on a GPU is limited, which TensorFlow cannot combine with growth",
          "device.memory_growth=auto")),
        (["memory_growth=false"], False, None),
    ],
)  # fmt: skip
def test_what_keeps_trainings_from_sharing_a_device(
    settings: list[str], on_cpu: bool, conflict: tuple[str, str, str] | None
) -> None:
    assert gpu_parts.conflict(options(*settings), on_cpu) == conflict


def test_instances_of_a_gpu_are_leased_by_their_own_names(uses: list[GpuUse], monkeypatch: pytest.MonkeyPatch) -> None:
    parts = tuple(Instance(name, 20 * GIB, at * MIB) for at, name in enumerate(("MIG-a", "MIG-b")))
    monkeypatch.setattr(this_machine, "read", lambda: box(replace(GPUS[0], mig=True, instances=parts)))
    uses[:] = [replace(FREE[0], uuid=name, instance=at) for at, name in enumerate(("MIG-a", "MIG-b"))]
    uses[0] = replace(uses[0], users=(BOB,))
    devices = start_devices.lease_devices(options("visible=free:1"), "digits")
    assert (devices.options.device.visible, [each.name for each in devices.leases]) == (["MIG-b"], ["MIG-b"])
    devices.release()
    devices = start_devices.lease_devices(options("visible=['MIG-b']"), "digits")
    assert [(each.name, each.used_bytes) for each in devices.leases] == [("MIG-b", MIB)]
    devices.release()


def test_a_search_and_a_measurement_of_scaling_lease_every_visible_gpu(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def lease_devices(
        _options: Options, what: str, _tell: object, *, among: object = "any", all_visible: bool = False
    ) -> Any:
        asked.append(all_visible)
        raise NotFree(f"no GPU of {among} is free for {what}")

    monkeypatch.setattr(start_devices, "lease_devices", lease_devices)
    for kind in ("tune", "scaling", "ab", "loop", "rate"):
        proof = folder.create(request.of_opened(kind, presets.resolve("quickstart"), None))
        with pytest.raises(ProofError, match=r"^no GPU of None is free for quickstart$"):
            folder.start(proof)
    assert asked == [True, True, False, False, False]


# ---- looking at them for some seconds ------------------------------------------------------------


class Looks:
    """The uses of the GPUs at each look, and the time, which only waiting passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: dict[int, dict[str, Any]] | None) -> None:
        self.now, self.slept, self._looks = 100.0, list[float](), list(looks)
        monkeypatch.setattr(free_gpus, "read", self.read)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(free_gpus, "time", clock)
        monkeypatch.setattr(this_machine, "read", lambda: box(*GPUS))

    def read(self) -> list[GpuUse]:
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if look is None:
            raise NotFree("the GPUs cannot be read")
        return [replace(gpu, **look.get(gpu.index, {})) for gpu in FREE]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_gpu_is_chosen_if_it_was_idle_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(free_gpus.IDLE_VARIABLE, "5")
    busy = {"busy": 0.5}
    looks = Looks(monkeypatch, {}, {0: busy}, {}, {})
    told: list[str] = []
    devices = start_devices.lease_devices(options("visible=free:2"), "digits", told.append)
    assert devices.options.device.visible == ["GPU-1", "GPU-2"], "the first was in use in between"
    assert (told, looks.slept) == (["looking for 5 s whether GPU 0, 1, 2 stay idle"], [2.0, 2.0, 1.0])
    devices.release()
    Looks(monkeypatch, {0: busy, 1: busy}, {0: busy, 1: busy}, {}, {})
    start_devices.lease_devices(options("visible=free:1"), "digits", told.append).release()
    assert told.pop() == "looking for 5 s whether GPU 2 stays idle"
    for seen, slept, words in (
        (({}, {0: busy, 1: busy}, {}), [2.0], "needs 2 GPUs, and 1 can be had: GPU 0: busy for 50 % of the time; "
         "GPU 1: busy for 50 % of the time"),
        (({}, {0: busy}, {1: busy}, {}), [2.0, 2.0], "needs 2 GPUs; GPUs that are free now were in use a moment ago"),
        (({}, {0: busy}, {}, {}, {2: {"users": (BOB,)}}), [2.0, 2.0, 1.0],
         "needs 2 GPUs; GPUs that are free now were in use a moment ago"),
    ):  # fmt: skip
        looks = Looks(monkeypatch, *seen)
        with pytest.raises(NotFree) as refusal:
            start_devices.lease_devices(options("visible=free:2"), "digits")
        assert (str(refusal.value), looks.slept) == (words, slept)
    looks = Looks(monkeypatch, {})
    devices = start_devices.lease_devices(options("visible=free:1"), "digits", told.append, among=["GPU-2"])
    assert (devices.options.device.visible, looks.slept, len(told)) == (["GPU-2"], [], 1), "the queue has looked"
    devices.release()
    assert lease.holders() == {}


def test_gpus_are_given_back_when_their_memory_is_free_and_one_that_stays_full_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = {"memory_used_bytes": 5 * GIB}
    looks = Looks(monkeypatch, {0: full, 1: full}, {0: full, 1: full}, {1: full | {"users": (BOB,)}})
    leases = lease.take(["GPU-0", "GPU-1", CPU], "digits", {"GPU-0": 0, "GPU-1": 4 * GIB})
    held: list[list[str]] = []
    sleep = looks.sleep

    def noted(seconds: float) -> None:
        held.append(sorted(lease.holders()))
        sleep(seconds)

    monkeypatch.setattr(free_gpus.time, "sleep", noted)  # type: ignore[attr-defined]
    reason = "its run has ended, and 5.0 GiB of its memory are still in use, by bob's python"
    assert free_gpus.give_back(leases) == [f"GPU 1 is stuck: {reason}"]
    assert (looks.slept, held) == ([0.5] * 20, [["GPU-0", "GPU-1"]] * 2 + [["GPU-1"]] * 18)
    who = lease.holder("GPU-1")
    assert who is not None
    assert (who.stuck, who.what) == (reason, "digits")
    (again,) = lease.take(["GPU-1"], "words", {"GPU-1": 5 * GIB - free_gpus.LEFT_BYTES})
    assert (free_gpus.give_back([again]), lease.holders()) == ([], {}), "it had as much before"
    looks = Looks(monkeypatch, None)
    assert free_gpus.give_back(lease.take(["GPU-0"], "words", {"GPU-0": 0})) == []
    assert (looks.slept, lease.holders()) == ([], {}), "nobody knows whether it is free"
    unknown = lease.take(["GPU-2"], "words")
    Looks(monkeypatch, {2: full})
    assert (free_gpus.give_back(unknown), free_gpus.give_back([])) == ([], [])
