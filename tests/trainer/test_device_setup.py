"""What is asked of TensorFlow for the devices of a training, in which order, and what is refused: with a stand-in."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from gputui.engine.interpreter import installed
from gputui.engine.job.machine_gpus import Answers, Fault, Gpu, Machine
from gputui.engine.telemetry import chips, resource_limits
from gputui.engine.trainer.cluster import tensorflow_cluster
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.setup import devices, gpu_identity, machine_query
from gputui.engine.trainer.setup.devices import Devices

from tests.support.training import options

MIB = 1024**2


def gpu(index: int, **more: Any) -> Gpu:
    known = Gpu(index, f"GPU-{index}", "A GPU", (9, 0), 80 * 1024 * MIB, pci_bus_id=f"00000000:{index + 1:02X}:00.0")
    return replace(known, **more)


BOX = Machine((gpu(0), gpu(1)), "", 1, 1)
NONE = Machine((), "there is no GPU", 1, 1)


class Config:
    """TensorFlow's configuration: `calls` in their order, and devices as they were configured."""

    def __init__(self, gpus: int) -> None:
        self.calls: list[Any] = []
        self.physical = {"GPU": [f"gpu{n}" for n in range(gpus)], "CPU": ["cpu"]}
        self.visible = {kind: list(there) for kind, there in self.physical.items()}
        self.parts: dict[str, int] = {}
        self.fault: Exception | None = None
        self.named = "/job:localhost/replica:0/task:0/device:{0}:{1}"
        note = self.note
        self.threading = SimpleNamespace(
            set_inter_op_parallelism_threads=note("inter"), set_intra_op_parallelism_threads=note("intra")
        )
        self.optimizer = SimpleNamespace(set_jit=note("jit"))
        self.experimental = SimpleNamespace(
            set_memory_growth=note("growth"), enable_tensor_float_32_execution=note("tf32"),
            enable_op_determinism=note("deterministic"), get_device_details=lambda _: {},
        )  # fmt: skip
        self.LogicalDeviceConfiguration = lambda memory_limit=None: memory_limit

    def note(self, name: str) -> Callable[..., None]:
        return lambda *given: self.calls.append((name, *given))

    def list_physical_devices(self, kind: str) -> list[str]:
        return self.physical[kind]

    def set_visible_devices(self, there: list[str], kind: str) -> None:
        self.calls.append(("visible", there))
        self.visible[kind] = there

    def set_logical_device_configuration(self, device: str, parts: list[Any]) -> None:
        self.calls.append(("parts", device, parts))
        self.parts[device] = len(parts)

    def list_logical_devices(self, kind: str) -> list[Any]:
        if self.fault is not None:
            raise self.fault
        self.calls.append(("open", kind))
        count = sum(self.parts.get(device, 1) for device in self.visible[kind])
        return [SimpleNamespace(name=self.named.format(kind, number)) for number in range(count)]


def short(names: tuple[str, ...]) -> list[str]:
    return [name.rpartition("device:")[2] for name in names]


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Devices, Config]]:
    """Configure the devices of a machine with so many GPUs in TensorFlow. Returns them and what was asked for."""
    monkeypatch.setattr(installed, "capabilities", lambda: [])
    monkeypatch.setattr(resource_limits, "cpus_limited", lambda: False)
    for name in ("driver_multiprocessors", "driver_pci_bus_id", "driver_memory_total_bytes"):
        monkeypatch.setattr(gpu_identity, name, lambda _: None)
    monkeypatch.setattr(gpu_identity, "identify", lambda names, *_: (tuple(short(names)), "perhaps"))

    def configure(
        *settings: str, gpus: int = 2, machine: Machine = BOX, change: Callable[[Config], object] = id, **more: Any
    ) -> tuple[Devices, Config]:
        config = Config(gpus)
        change(config)
        debugging = SimpleNamespace(set_log_device_placement=config.note("log"))
        monkeypatch.setattr(devices, "tf", SimpleNamespace(config=config, debugging=debugging, errors=tf.errors))
        utils = SimpleNamespace(set_random_seed=config.note("seed"))
        monkeypatch.setattr(devices, "keras", SimpleNamespace(utils=utils))
        monkeypatch.setattr(machine_query, "read", lambda: machine)
        return devices.configure(options(*settings), **more), config

    return configure


LAST = [("tf32", True), ("jit", False), ("seed", 7)]


@pytest.mark.parametrize(
    ("settings", "calls", "opened", "positions", "available", "train"),
    [
        ((), [("visible", ["gpu0"]), ("growth", "gpu0", True)], ["GPU:0"], (0,), 2, ["GPU:0"]),
        (("strategy.kind=one_device",), [("visible", ["gpu0"]), ("growth", "gpu0", True)], ["GPU:0"], (0,), 2,
         ["GPU:0"]),
        (("strategy.kind=one_device", "strategy.devices=[1, 0]", "memory_growth=false"),
         [("visible", ["gpu1"]), ("growth", "gpu1", False)], ["GPU:0"], (1,), 2, ["GPU:0"]),
        (("strategy.kind=mirrored",),
         [("visible", ["gpu0", "gpu1"]), ("growth", "gpu0", True), ("growth", "gpu1", True)],
         ["GPU:0", "GPU:1"], (0, 1), 2, ["GPU:0", "GPU:1"]),
        (("strategy.kind=mirrored", "strategy.devices=[1, 0]"),
         [("visible", ["gpu0", "gpu1"]), ("growth", "gpu0", True), ("growth", "gpu1", True)],
         ["GPU:0", "GPU:1"], (0, 1), 2, ["GPU:1", "GPU:0"]),
        (("strategy.kind=mirrored", "strategy.devices=[2, 3]", "logical_devices=2", "memory_limit_mb=100"),
         [("visible", ["gpu1"]), ("parts", "gpu1", [100, 100])], ["GPU:0", "GPU:1"], (2, 3), 4, ["GPU:0", "GPU:1"]),
        (("strategy.kind=mirrored", "strategy.devices=[1, 2]", "logical_devices=2", "memory_limit_mb=100"),
         [("visible", ["gpu0", "gpu1"]), ("parts", "gpu0", [100, 100]), ("parts", "gpu1", [100, 100])],
         ["GPU:0", "GPU:1", "GPU:2", "GPU:3"], (0, 1, 2, 3), 4, ["GPU:1", "GPU:2"]),
        (("memory_limit_mb=100",), [("visible", ["gpu0"]), ("parts", "gpu0", [100])], ["GPU:0"], (0,), 2, ["GPU:0"]),
        (("strategy.kind=mirrored", "strategy.devices=[5]"), [("visible", ["gpu0"]), ("growth", "gpu0", True)],
         ["GPU:0"], (0,), 2, []),
    ],
)  # fmt: skip
def test_only_gpus_that_train_are_opened_and_keep_their_numbers(
    settings: tuple[str, ...], calls: list[Any], opened: list[str], positions: Any, available: int, train: list[str],
    configured: Any,
) -> None:  # fmt: skip
    found, config = configured(*settings)
    assert config.calls == [("log", False), *calls, *LAST, ("open", "GPU")]
    assert (found.kind, short(found.names), found.positions, found.available) == ("GPU", opened, positions, available)
    assert (list(found.gpus), found.uncertain) == (train, "perhaps")


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ((), [("log", False), *LAST]),
        (("logical_devices=3",), [("log", False), ("parts", "cpu", [None] * 3), *LAST]),
        (("tf32=false", "xla=true", "seed=3", "log_placement=true"), [("log", True), ("tf32", False), ("seed", 3)]),
        (("deterministic=true", "xla=false"), [("log", False), *LAST, ("deterministic",)]),
        (("inter_op_threads=3", "intra_op_threads=4"), [("inter", 3), ("intra", 4), ("log", False), *LAST]),
    ],
)
def test_without_a_gpu_the_cpu_is_divided_and_the_numbers_are_those_of_the_options(
    settings: tuple[str, ...], calls: list[Any], configured: Any
) -> None:
    found, config = configured(*settings, gpus=0, machine=NONE)
    assert config.calls == [*calls, ("open", "CPU")]
    parts = 3 if "logical_devices=3" in settings else 1
    assert short(found.names) == [f"CPU:{number}" for number in range(parts)]
    assert (found.kind, found.positions, found.available, found.gpus, found.uncertain) == ("CPU", None, None, (), "")


def test_in_a_container_with_few_cpus_threads_are_as_many_unless_an_option_says_otherwise(
    configured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_limits, "cpus_limited", lambda: True)
    monkeypatch.setattr(resource_limits, "usable_cpus", lambda: 5)
    for settings, threads in (((), (5, 5)), (("inter_op_threads=2",), (2, 5)), (("intra_op_threads=2",), (5, 2))):
        _, config = configured(*settings, gpus=0, machine=NONE)
        assert config.calls[:2] == [("inter", threads[0]), ("intra", threads[1])]


def test_the_parts_of_a_gpu_share_nine_tenths_of_its_free_memory(
    configured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: dict[int, int | None] = {0: 1001 * MIB, 1: 2000 * MIB}
    monkeypatch.setattr(gpu_identity, "memory_free_bytes", lambda ordinal, machine: free[ordinal])
    divided = ("strategy.kind=mirrored", "logical_devices=2")
    _, config = configured(*divided)
    assert config.calls[2:4] == [("parts", "gpu0", [450, 450]), ("parts", "gpu1", [900, 900])]
    free[1] = None
    assert refused(lambda: configured(*divided)) == (
        "device", "the GPU's memory size is not known", "set device.memory_limit_mb, the limit for each partition",
    )  # fmt: skip


def refused(call: Callable[[], object]) -> tuple[str, str, str]:
    with pytest.raises(TrainerError) as raised:
        call()
    return raised.value.kind, raised.value.message, raised.value.hint


def test_devices_that_tensorflow_does_not_open_are_missed(configured: Any) -> None:
    def fail(config: Config) -> None:
        config.fault = RuntimeError("no driver")

    def none(config: Config) -> None:
        config.list_logical_devices = lambda kind: []  # type: ignore[method-assign]

    def fewer(config: Config) -> None:
        config.list_logical_devices = lambda kind: [SimpleNamespace(name="/device:GPU:0")]  # type: ignore[method-assign]

    mirrored = "strategy.kind=mirrored"
    message = "TensorFlow cannot open its devices: no driver"
    assert refused(lambda: configured(mirrored, change=fail)) == ("device", message, "")
    message = "TensorFlow has opened no GPU"
    assert refused(lambda: configured(mirrored, change=none)) == ("device", message, "engine.log says why")
    assert refused(lambda: configured(mirrored, change=fewer)) == (
        "device", "TensorFlow has opened 1 of the 2 GPU devices that should train",
        "engine.log says why; to train without a GPU that fails, leave it out of device.visible",
    )  # fmt: skip


def test_a_worker_has_its_own_devices_and_the_strategy_over_all(
    configured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike: list[Any] = []
    monkeypatch.setattr(tensorflow_cluster, "connect", lambda given, joined: f"over {joined.cluster.index}")
    monkeypatch.setattr(tensorflow_cluster, "require_alike", lambda joined, *words: alike.append(words))

    def several(config: Config) -> None:
        config.list_logical_devices = lambda kind: [  # type: ignore[method-assign]
            SimpleNamespace(name=f"/job:worker/replica:0/task:{task}/device:{kind}:{number}")
            for task in (1, 11) for number in range(2)
        ]  # fmt: skip

    joined = SimpleNamespace(cluster=SimpleNamespace(index=1))
    found, _ = configured("strategy.kind=multi_worker", change=several, joined=joined)
    assert (found.connected, short(found.names), alike) == ("over 1", ["GPU:0", "GPU:1"], [("GPU", 2)])
    assert all("task:1/" in name for name in found.names)
    assert configured()[0].connected is None


def test_what_the_driver_knows_of_gpus_that_tensorflow_does_not_see_is_kept(configured: Any) -> None:
    box = replace(BOX, gpus=(gpu(0), gpu(1, lost="it fell off the bus"), gpu(2)), missing="half of it")
    found, _ = configured(gpus=2, machine=box)
    assert (found.shown, found.seen, found.lost, found.unknown) == (3, 2, ("GPU 1",), "half of it")


# ---- GPUs that should be there -----------------------------------------------------------------


ON_CPU = "set device.visible=none to train on the CPU"
DEEP = f"gputui doctor --deep looks for the reason; {ON_CPU}"
OLD = f"gputui doctor says which chips it supports; {ON_CPU}"
ERROR = Fault("error", "driver", "it is broken", "mend it")


@pytest.mark.parametrize(
    ("visible", "machine", "seen", "usable", "told"),
    [
        ("all", BOX, 2, [0, 1], None),
        ("all", NONE, 0, [], None),
        ("none", BOX, 0, [], None),
        ("all", replace(BOX, visible_devices="-1"), 0, [], None),
        ("0,1", BOX, 2, [0, 1], None),
        ("all", BOX, 2, [], ("TensorFlow sees 2 GPU(s), but their chips are too old: it has no code for them", OLD)),
        ("all", replace(BOX, gpus=(gpu(0, compute_capability=(3, 0)),)), 0, [],
         ("the chips of GPU 0 (A GPU) are too old: TensorFlow has no code for them", OLD)),
        ("all", BOX, 0, [], ("the driver shows 2 GPU(s), but TensorFlow can use none of them", DEEP)),
        ("0", BOX, 0, [], ("the driver shows 2 GPU(s), but TensorFlow can use none of them", DEEP)),
        ("0,1", BOX, 1, [0], ("device.visible asks for 2 GPU(s), but TensorFlow can use 1", DEEP)),
        ("0,1", NONE, 0, [], ("device.visible asks for 2 GPU(s), but TensorFlow can use 0", DEEP)),
        ("all", replace(NONE, missing="no NVML"), 0, [],
         ("this machine has GPUs that the driver does not show (there is no GPU), nor can TensorFlow use any", DEEP)),
        ("all", replace(NONE, fault=ERROR), 0, [],
         ("this machine has GPUs that the driver does not show (there is no GPU), nor can TensorFlow use any", DEEP)),
        ("all", replace(NONE, fault=replace(ERROR, level="warning")), 0, [], None),
        ("all", replace(NONE, missing="no NVML", visible_devices=""), 0, [], None),
        ("all", replace(BOX, visible_devices="9"), 0, [], ("CUDA shows none of this machine's GPUs", DEEP)),
    ],
)  # fmt: skip
def test_a_training_that_would_leave_its_gpus_out_is_refused(
    visible: str, machine: Machine, seen: int, usable: list[int], told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "capabilities", lambda: [(7, 0)])
    monkeypatch.setattr(devices, "ask", lambda *_, given: None)
    log: Any = SimpleNamespace(text=lambda: "the log")

    def require() -> None:
        devices.require_gpus(options(f"visible={visible}"), machine, seen, usable, log)

    if told is None:
        require()
    else:
        assert refused(require) == ("device", *told)


def test_the_reason_is_looked_for_on_the_machine_or_in_the_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ask(*words: str, given: str) -> Any:
        asked.append((words[:-1], given))
        return {"what": "the library is missing", "remedy": "install it"}

    monkeypatch.setattr(devices, "ask", ask)
    log: Any = SimpleNamespace(text=lambda: "the log")
    box = replace(BOX, driver="570.1")
    for visible, seen, where, message in (
        ("all", 0, ("machine",), "the driver shows 2 GPU(s), but TensorFlow can use none of them"),
        ("0,1", 1, ("log", "570.1"), "device.visible asks for 2 GPU(s), but TensorFlow can use 1"),
    ):
        given = options(f"visible={visible}"), box, seen, [0][:seen], log
        found = refused(functools.partial(devices.require_gpus, *given))
        assert found == ("device", f"{message}: the library is missing", f"install it; {ON_CPU}")
        assert asked.pop() == (("doctor.no_gpu", *where), "the log")

    def no_answer(*_: str, given: str) -> Any:
        raise machine_query.NoAnswer("it has crashed")

    monkeypatch.setattr(devices, "ask", no_answer)
    assert refused(lambda: devices.require_gpus(options(), box, 0, [], log))[2] == DEEP


# ---- asking NVML -------------------------------------------------------------------------------


def test_a_driver_that_cannot_be_asked_is_missed_where_there_are_signs_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load(name: str) -> None:
        asked.append(name)
        raise OSError("no library")

    def answers(*, nodes: bool = False, loads: bool = True, ask: Any = None) -> Machine:
        machine_query._answers.cache_clear()
        monkeypatch.setattr(ctypes, "CDLL", (lambda name: None) if loads else load)
        monkeypatch.setattr(chips, "has_device_nodes", lambda: nodes)
        monkeypatch.setattr(machine_query, "ask", ask)
        try:
            return machine_query.read()
        finally:
            machine_query._answers.cache_clear()

    reason = "the NVIDIA driver's libnvidia-ml.so.1 is missing"
    for nodes in (False, True):
        found = answers(nodes=nodes, loads=False)
        assert (found.no_gpu_reason, found.missing) == (reason, reason if nodes else "")
    assert set(asked) == {"libnvidia-ml.so.1"}

    def no_answer(*words: str) -> Any:
        assert words == ("job.this_machine", "gpus")
        raise machine_query.NoAnswer("no answer within 20 s")

    found = answers(ask=no_answer)
    reason = "the NVIDIA driver cannot be asked: no answer within 20 s"
    assert (found.no_gpu_reason, found.missing) == (reason, reason)
    known = {"gpus": [], "reason": "none", "missing": "", "cuda": [13, 0], "driver": "580", "fault": None}
    found = answers(ask=lambda *_: known)
    assert (found.no_gpu_reason, found.cuda, found.driver) == ("none", (13, 0), "580")
    assert Answers.read(known).cuda == (13, 0)
