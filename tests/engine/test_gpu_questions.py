"""What NVML answers about one GPU becomes figures: units, marks for "not available", sources that refuse, lost GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from gputui.engine.runs.events import Event, GpuReadings, Warn
from gputui.engine.telemetry import resource_limits, sampler
from gputui.engine.telemetry.nvml import gpm_nvlink, gpu_reader, queries
from gputui.engine.telemetry.nvml.connection import NO_GPU
from gputui.engine.telemetry.nvml.gpm_nvlink import GPM_KEYS, Gpm, NvLink
from gputui.engine.telemetry.nvml.gpu_reader import Device
from gputui.engine.telemetry.nvml.queries import NOT_AVAILABLE, PCIE, QUESTIONS
from gputui.engine.telemetry.nvml.reasons import Code, Reason
from gputui.engine.telemetry.nvml.xid_errors import DriverError
from gputui.engine.telemetry.sampler import GpuReader

Patch = Callable[..., None]
MIB = 1024**2


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Patch:
    """answers(PowerUsage=321_000): what nvmlDeviceGetPowerUsage returns; a function is called."""

    def put(**given: Any) -> None:
        for name, answer in given.items():
            call = answer if callable(answer) else lambda *_, answer=answer, **__: answer
            monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", call)

    return put


def refusing(code: int) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise pynvml.NVMLError(code)

    return refuse


def asked(key: str, way: int = 0) -> dict[str, Any]:
    question = next(question for question in (*QUESTIONS, PCIE) if key in question.keys)
    return question.ways[way]("gpu")


def test_each_answer_has_its_unit(answers: Patch) -> None:
    clocks = {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 2619}
    kinds = {pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED: 7, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED: 2}
    slowed = {pynvml.NVML_PERF_POLICY_POWER: 1_500_000_000, pynvml.NVML_PERF_POLICY_THERMAL: 250_000_000}
    directions = {pynvml.NVML_PCIE_UTIL_RX_BYTES: 30, pynvml.NVML_PCIE_UTIL_TX_BYTES: 4}
    answers(
        UtilizationRates=SimpleNamespace(gpu=37, memory=12), PowerUsage=321_450, EnforcedPowerLimit=650_000,
        PowerManagementDefaultLimit=700_000, TotalEnergyConsumption=12_345, ClockInfo=lambda _, kind: clocks[kind],
        MaxClockInfo=lambda _, kind: clocks[kind] + 1, PerformanceState=15,
        TotalEccErrors=lambda _, kind, __: kinds[kind],
        ViolationStatus=lambda _, policy: SimpleNamespace(violationTime=slowed[policy]),
        PcieThroughput=lambda _, way: directions[way], CurrentClocksEventReasons=0x4 | 0x40 | 0x2,
    )  # fmt: skip
    for result, figures in (
        (asked("busy"), {"busy": 0.37, "memory_busy": 0.12}),
        (asked("power_w"), {"power_w": 321.4}),
        (asked("power_limit_w"), {"power_limit_w": 650.0}),
        (asked("power_limit_default_w"), {"power_limit_default_w": 700.0}),
        (asked("energy_j"), {"energy_j": 12.3}),
        (asked("slowed_by_heat_seconds"), {"slowed_by_power_seconds": 1.5, "slowed_by_heat_seconds": 0.25}),
        (asked("sm_clock_mhz"), {"sm_clock_mhz": 1980}),
        (asked("memory_clock_mhz"), {"memory_clock_mhz": 2619}),
        (asked("max_sm_clock_mhz"), {"max_sm_clock_mhz": 1981}),
        (asked("pstate"), {"pstate": 15}),
        (asked("ecc_errors"), {"ecc_errors": {"corrected": 7, "uncorrected": 2}}),
        (asked("throttle"), {"throttle": ["power cap", "hardware thermal"], "clocks_set_by": ["application clocks"]}),
        (asked("pcie_rx_bytes_per_second"), {"pcie_rx_bytes_per_second": 30 * 1024, "pcie_tx_bytes_per_second": 4096}),
    ):
        assert result == figures


def test_marks_and_impossible_answers_are_no_figures(answers: Patch) -> None:
    for mark in NOT_AVAILABLE:
        answers(
            UtilizationRates=SimpleNamespace(gpu=mark, memory=mark), PowerUsage=mark, TotalEnergyConsumption=mark,
            CurrentClocksEventReasons=mark, PerformanceState=32,
            ViolationStatus=SimpleNamespace(violationTime=mark),
        )  # fmt: skip
        for key in ("busy", "memory_busy", "power_w", "energy_j", "throttle", "pstate", "slowed_by_power_seconds"):
            assert asked(key)[key] is Reason.UNSUPPORTED, key
    answers(UtilizationRates=SimpleNamespace(gpu=100, memory=0))
    assert asked("busy") == {"busy": 1.0, "memory_busy": 0.0}
    answers(UtilizationRates=SimpleNamespace(gpu=101, memory=7), CurrentClocksEventReasons=0x1, PerformanceState=0)
    assert asked("busy") == {"busy": Reason.ERROR, "memory_busy": 0.07}
    assert asked("throttle") == {"throttle": []}, "an idle GPU is not slowed down, and nobody has set its clocks"
    assert asked("pstate") == {"pstate": 0}


def test_a_process_that_computes_and_draws_is_told_once_with_what_it_computes_in(answers: Patch) -> None:
    def process(pid: int, used: int) -> SimpleNamespace:
        return SimpleNamespace(pid=pid, usedGpuMemory=used)

    for version, way in ((3, 0), (2, 1)):
        answers(**{
            f"GraphicsRunningProcesses_v{version}": [process(1, 5), process(2, NOT_AVAILABLE[0])],
            f"ComputeRunningProcesses_v{version}": [process(1, 9), process(3, 4)],
        })  # fmt: skip
        listed = asked("processes", way)["processes"]
        result = {process["pid"]: (process["memory_used_bytes"], process["type"]) for process in listed}
        assert result == {1: (9, "C+G"), 2: (None, "G"), 3: (4, "C")}
        assert queries.computing("gpu") == [{"pid": 1}, {"pid": 3}]
        answers(**{f"ComputeRunningProcesses_v{version}": refusing(Code.FUNCTION_NOT_FOUND)})


def test_instances_of_a_parted_gpu(answers: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "_GPU_INSTANCES", {})
    asked_ids: list[str] = []

    def instance(_: Any, position: int) -> str:
        return f"instance {position}" if position != 1 else refusing(Code.NOT_FOUND)()

    def gpu_instance(handle: str) -> int:
        asked_ids.append(handle)
        return 10 + int(handle[-1])

    answers(MigMode=[0, 1], MaxMigDeviceCount=3, MigDeviceHandleByIndex=instance, GpuInstanceId=gpu_instance,
            UUID=lambda handle: f"MIG-{handle[-1]}",
            MemoryInfo=SimpleNamespace(used=4, total=NOT_AVAILABLE[0]))  # fmt: skip
    assert asked("mig") == {"mig": None}, "switched on, but only from the next reset on"
    answers(MigMode=[1, 1])
    for _ in range(2):
        assert asked("mig")["mig"] == [
            {"uuid": f"MIG-{i}", "gpu_instance": 10 + i, "memory_used_bytes": 4, "memory_total_bytes": None}
            for i in (0, 2)
        ]
    assert asked_ids == ["instance 0", "instance 2"], "the id is asked once"


@pytest.fixture
def gpm(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The values of GPM's next reading; `closed` is put there."""
    values: dict[str, Any] = dict.fromkeys(GPM_KEYS, 1) | {"nvlink_rx": 11, "nvlink_tx": 12}
    monkeypatch.setattr(gpm_nvlink, "ask_for_gpm", lambda _: None)
    for name, method in {
        "__init__": lambda *_: None,
        "read": lambda _: {key: values[key] for key in GPM_KEYS},
        "last": lambda _: dict.fromkeys(GPM_KEYS, Reason.NOT_ASKED),
        "close": lambda _: values.update(closed=True),
    }.items():
        monkeypatch.setattr(Gpm, name, method)
    monkeypatch.setattr(NvLink, "_fields", lambda _, *fields: [4] if len(fields) == 1 else [0, 0])
    return values


def test_nvlink_is_told_by_gpm_and_where_that_refuses_by_its_counters(gpm: dict[str, Any]) -> None:
    result = gpm_nvlink.Flow("gpu")
    assert result.tells_pcie
    values = result.read()
    assert values["nvlink"] == {"links": 4, "rx_bytes_per_second": 11, "tx_bytes_per_second": 12}
    assert {"nvlink_rx", "nvlink_tx"}.isdisjoint(values)
    assert result.read(fresh=False)["sm_active"] is Reason.NOT_ASKED, "the last reading"
    assert result.tells_pcie
    gpm |= {"nvlink_rx": Reason.ERROR}
    assert result.read()["nvlink"] is Reason.ERROR, "it will be told again"
    gpm |= {"nvlink_rx": Reason.NOT_ASKED}
    assert result.read()["nvlink"] == {"links": 4, "rx_bytes_per_second": None, "tx_bytes_per_second": 12}
    gpm |= {"nvlink_rx": 11, "nvlink_tx": Reason.UNSUPPORTED}
    assert result.read()["nvlink"]["rx_bytes_per_second"] is None, "the counters have no rate at first"
    gpm |= {"pcie_tx_bytes_per_second": Reason.NO_PERMISSION}
    assert set(PCIE.keys).isdisjoint(result.read()), "another question tells it"
    assert not result.tells_pcie
    result.close()
    assert gpm["closed"]


def test_a_source_that_refuses_is_given_up_and_one_that_failed_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(codes: Iterator[int]) -> Callable[[Any], Any]:
        return lambda _: refusing(next(codes))()

    source: gpm_nvlink.Source[int] = gpm_nvlink.Source(lambda: 1)
    codes = iter((Code.UNKNOWN, Code.UNKNOWN, Code.NO_PERMISSION, Code.UNKNOWN))
    assert [source.ask(raising(codes)) for _ in range(4)] == [Reason.ERROR] * 2 + [Reason.NO_PERMISSION] * 2
    with pytest.raises(pynvml.NVMLError):
        gpm_nvlink.Source(lambda: 1).ask(raising(iter((Code.GPU_IS_LOST,))))


def test_figures_of_gpm_are_shares_and_bytes_each_with_its_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    now, samples, taken = [100.0], iter("ab"), list[str]()
    monkeypatch.setattr("gputui.engine.telemetry.nvml.gpm_nvlink.time.monotonic", lambda: now[0])
    monkeypatch.setattr(pynvml, "nvmlGpmSampleAlloc", lambda: next(samples))
    monkeypatch.setattr(pynvml, "nvmlGpmSampleGet", lambda _, sample: taken.append(sample))
    request = SimpleNamespace(metrics=[SimpleNamespace() for _ in GPM_KEYS])
    monkeypatch.setattr(pynvml, "c_nvmlGpmMetricsGet_t", lambda: request)
    order: list[tuple[str, str]] = []

    def answer(request: Any) -> None:
        order.append((request.sample1, request.sample2))
        for metric in request.metrics:
            metric.nvmlReturn, metric.value = pynvml.NVML_SUCCESS, float(metric.metricId)
        request.metrics[0].value, request.metrics[1].value = 100.4, float("nan")
        request.metrics[2].nvmlReturn = Code.NO_PERMISSION

    monkeypatch.setattr(pynvml, "nvmlGpmMetricsGet", answer)
    gpm = Gpm("gpu")
    assert set(gpm.read().values()) == {Reason.NOT_ASKED}, "one sample tells nothing"
    now[0] += 0.05
    assert set(gpm.read().values()) == {Reason.NOT_ASKED}, "too early"
    now[0] += 0.06
    for _ in range(2):
        assert gpm.read() == {
            "sm_active": 1.0, "tensor_active": Reason.UNSUPPORTED, "dram_active": Reason.NO_PERMISSION,
            "pcie_rx_bytes_per_second": 21 * MIB, "pcie_tx_bytes_per_second": 20 * MIB,
            "nvlink_rx": 60 * MIB, "nvlink_tx": 61 * MIB,
        }  # fmt: skip
        assert gpm.last() is gpm.read(), "read again at once"
        now[0] += 1.0
    assert order == list(itertools.pairwise(taken)), "from the older sample to the newer one"
    assert len(order) == 2


@pytest.fixture
def opened(answers: Patch, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Device]:
    """A GPU that answers three questions, of which `fails` may name one or more with NVML's code."""
    codes: dict[str, int] = {}

    def asking(name: str, answer: Any, slow: bool = False) -> queries.Question:
        def ask(_: Any) -> dict[str, Any]:
            if name in codes:
                raise pynvml.NVMLError(codes[name])
            return {name: answer}

        return queries.Question((name,), (ask,), slow)

    answers(HandleByIndex=lambda index: refusing(codes["open"])() if "open" in codes else f"handle {index}",
            UUID="GPU-a", Name=b"H100", PciInfo=SimpleNamespace(busId=b"00000000:01:00.0"))  # fmt: skip
    asked = (asking("busy", 0.5), asking("power_w", 300.0), asking("power_limit_w", 700.0, slow=True))
    monkeypatch.setattr(gpu_reader, "QUESTIONS", asked)
    monkeypatch.setattr(gpu_reader, "Flow", lambda _: SimpleNamespace(read=lambda fresh: {}, tells_pcie=False))

    def make(**failing: int) -> Device:
        codes.clear()
        codes.update(failing)
        result = Device(0)
        result.__dict__["codes"] = codes
        return result

    return make


def test_a_gpu_is_lost_where_nothing_answers_and_found_again_later(
    opened: Callable[..., Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("gputui.engine.telemetry.nvml.gpu_reader.time.monotonic", lambda: now[0])
    gpu = opened()
    codes = gpu.__dict__["codes"]
    first = gpu.read(True)
    assert (first["uuid"], first["name"], first["busy"], first["power_limit_w"]) == ("GPU-a", "H100", 0.5, 700.0)
    assert first["temperature_c"] is None, "a figure that is always there"
    codes |= {"busy": Code.UNKNOWN}
    notes = gpu.read(False)
    assert (notes["busy"], notes["reasons"], notes["power_w"]) == (None, {"busy": "error"}, 300.0)
    assert notes["power_limit_w"] == 700.0, "as at the last slow reading"
    codes |= {"power_w": Code.NOT_SUPPORTED}
    assert "missing" not in gpu.read(False), "a single error, as hardly anything is asked"
    del codes["power_w"]
    gpu.read(True)
    codes |= {"power_w": Code.UNKNOWN, "power_limit_w": Code.UNKNOWN}
    lost = gpu.read(True)
    assert lost["missing"].startswith("the GPU no longer answers (")
    assert lost["reasons"] == {"*": "lost"}
    assert lost["lost_since"]
    assert lost["uuid"] == "GPU-a"
    codes.clear()
    codes |= {"open": Code.UNKNOWN}
    now[0] += 29
    assert gpu.read(True)["missing"] == lost["missing"], "not looked at again so soon"
    now[0] += 2
    assert gpu.read(True)["lost_since"] == lost["lost_since"], "it stays lost, whatever opening it says"
    codes.clear()
    assert "missing" in gpu.read(True)
    now[0] += 31
    back = gpu.read(True)
    assert ("missing" not in back, "lost_since" not in back, back["busy"]) == (True, True, 0.5)


@pytest.mark.parametrize(
    ("answer", "used", "total"),
    [
        ({"memory_used_bytes": 7, "memory_total_bytes": 80}, 7, 80),
        ({"memory_used_bytes": 0, "memory_total_bytes": 0}, 70, 100),  # Jetson and GB10 have the host's memory
        (Code.NOT_SUPPORTED, 70, 100),
        (Code.NO_PERMISSION, None, None),
        (Code.UNKNOWN, None, None),
    ],
)
def test_a_gpu_without_memory_of_its_own_shows_how_full_that_of_the_host_is(
    answer: Any, used: int | None, total: int | None, opened: Callable[..., Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked_memory(_: Any) -> dict[str, Any]:
        if isinstance(answer, dict):
            return dict(answer)
        raise pynvml.NVMLError(answer)

    question = queries.Question(queries.MEMORY.keys, (asked_memory,))
    asked_busy = queries.Question(("busy",), (lambda _: {"busy": 0.5},))
    monkeypatch.setattr(gpu_reader, "MEMORY", question)
    monkeypatch.setattr(resource_limits, "memory", lambda: SimpleNamespace(total=100, available=30))
    gpu = opened()
    monkeypatch.setattr(gpu_reader, "QUESTIONS", (question, asked_busy))
    reading = gpu.read(True)
    assert (reading["memory_used_bytes"], reading["memory_total_bytes"]) == (used, total)
    assert reading.get("shared_with_host", False) is (total == 100)


def test_a_question_that_was_refused_is_asked_again_at_the_next_slow_reading(opened: Callable[..., Device]) -> None:
    gpu = opened(busy=Code.NO_PERMISSION)
    codes = gpu.__dict__["codes"]
    assert gpu.read(True)["reasons"] == {"busy": "no_permission"}
    codes.clear()
    assert gpu.read(False)["reasons"] == {"busy": "no_permission"}
    assert gpu.read(True)["busy"] == 0.5
    codes |= {"busy": Code.UNKNOWN}
    gpu.read(False)
    codes.clear()
    assert gpu.read(False)["busy"] == 0.5, "an error may have passed"


def test_an_older_driver_is_asked_in_the_older_ways_and_seldom_for_what_changes_rarely(
    answers: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    memory = SimpleNamespace(used=10, total=80)
    by_name: dict[str, Any] = {
        "HandleByIndex": "a handle", "UUID": "GPU-a", "Name": "P100", "PciInfo": SimpleNamespace(busId="0:1:0.0"),
        "UtilizationRates": SimpleNamespace(gpu=50, memory=20), "TemperatureV": 41, "PowerUsage": 100_000,
        "EnforcedPowerLimit": 250_000, "PowerManagementDefaultLimit": 300_000, "TotalEnergyConsumption": 7_000,
        "ViolationStatus": SimpleNamespace(violationTime=2_000_000_000), "ClockInfo": 1300, "MaxClockInfo": 1400,
        "CurrentClocksThrottleReasons": 0x4, "PerformanceState": 2, "TotalEccErrors": 3, "MigMode": [0, 0],
        "GraphicsRunningProcesses_v2": [],
        "ComputeRunningProcesses_v2": [SimpleNamespace(pid=4_194_304, usedGpuMemory=5)],
    }  # fmt: skip
    newer = {
        "Temperature": Code.NOT_SUPPORTED, "CurrentClocksEventReasons": Code.FUNCTION_NOT_FOUND,
        "GraphicsRunningProcesses_v3": Code.FUNCTION_NOT_FOUND, "ComputeRunningProcesses_v3": Code.FUNCTION_NOT_FOUND,
    }  # fmt: skip

    def noted(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            calls.append(name)
            return answer(*given, **named)

        return call

    def of_memory(_gpu: Any, version: Any = None) -> Any:
        return memory if version is None else refusing(Code.FUNCTION_NOT_FOUND)()

    answers(
        MemoryInfo=noted("MemoryInfo", of_memory),
        **{name: noted(name, lambda *_, answer=answer: answer) for name, answer in by_name.items()},
        **{name: noted(name, refusing(code)) for name, code in newer.items()},
    )
    monkeypatch.setattr(gpu_reader, "Flow", lambda _: SimpleNamespace(read=lambda fresh: {}, tells_pcie=False))
    gpu = Device(0)
    first = gpu.read(True)
    slowed = {f"slowed_by_{name}_seconds": 2.0 for name in (
        "power", "heat", "board_limit", "reliability_limit", "sync_boost"
    )}  # fmt: skip
    assert {key: value for key, value in first.items() if key not in gpu.facts | slowed} == {
        "busy": 0.5, "memory_busy": 0.2, "memory_used_bytes": 10, "memory_total_bytes": 80,
        "memory_used_counts_reserved": True, "temperature_c": 41, "power_w": 100.0, "power_limit_w": 250.0,
        "power_limit_default_w": 300.0, "energy_j": 7.0, "sm_clock_mhz": 1300, "max_sm_clock_mhz": 1400,
        "memory_clock_mhz": 1300, "throttle": ["power cap"], "pstate": 2, "mig": None,
        "ecc_errors": {"corrected": 3, "uncorrected": 3},
        "processes": [{"pid": 4_194_304, "memory_used_bytes": 5, "type": "C", "name": None, "own": None,
                       "user": None, "hidden": "not visible from here"}],
        "reasons": {"memory_reserved_bytes": "unsupported"},
    }  # fmt: skip
    assert {key: first[key] for key in slowed} == slowed
    calls.clear()
    assert gpu.read(False) == first
    assert sorted(calls) == [
        "ClockInfo", "ClockInfo", "CurrentClocksThrottleReasons", "MemoryInfo", "PerformanceState", "PowerUsage",
        "TemperatureV", "TotalEnergyConsumption", "UtilizationRates", "ViolationStatus", "ViolationStatus",
    ], "each in the way that it has answered, and nothing that changes rarely"  # fmt: skip


def test_readings_get_rarer_where_the_driver_is_slow_and_it_is_told_once() -> None:
    notes: list[Event] = []
    reading = GpuReader(notes.append, 1.0)
    for seconds, every in ((0.1, 1.0), (0.6, 1.2), (0.9, 1.8), (0.2, 1.0), (0.9, 1.8)):
        reading._pace(seconds, 8)
        assert reading.interval_seconds == pytest.approx(every)
    assert notes == [], "it has not lasted"
    for _ in range(3):
        reading._pace(1.5, 8)
    assert notes == [Warn(
        kind="telemetry_slow", hint="training does not wait for it",
        message="the NVIDIA driver takes 1.5 s for one reading of 8 GPU(s): they are read every 3.0 s instead of 1 s",
    )]  # fmt: skip


def test_lost_gpus_and_errors_of_the_hardware_are_told_once_each() -> None:
    notes: list[Event] = []
    refuses = [True]

    def tell(event: Event) -> None:
        if refuses.pop() if refuses else False:
            raise OSError
        notes.append(event)

    reading = GpuReader(tell, 1.0)
    lost = {"index": 1, "uuid": "GPU-b", "name": None, "missing": "gone", "lost_since": 5.0}
    for _ in range(3):  # the disk refuses the first
        reading._report_lost([{"index": 0, "uuid": "GPU-a"}, lost])
    reading._report_lost([lost | {"lost_since": 9.0}])
    hint = "dmesg shows more (look for Xid); the readings of the other GPUs go on"
    assert notes == [Warn(kind="gpu_lost", message="GPU 1 (unknown): gone", hint=hint)] * 2
    notes.clear()
    hardware, program = DriverError(1, 79), DriverError(1, 31)
    for _ in range(2):
        reading._report_errors([hardware, program, DriverError(None, 48)], [lost])
    hint = "NVIDIA's list of Xid errors explains it, and dmesg has the full report"
    reading._report_errors([DriverError(0, 9)], [{"index": 0, "name": "T4"}])
    assert notes == [
        Warn(kind="gpu_xid", message=message, hint=hint) for message in (
            "GPU 1 (unknown): the NVIDIA driver has reported Xid 79, it has fallen off the bus",
            "a GPU: the NVIDIA driver has reported Xid 48, an uncorrectable memory error",
            "GPU 0 (T4): the NVIDIA driver has reported Xid 9",
        )
    ]  # fmt: skip
    since = reading.errors_since(0.0, ["GPU-b"])
    assert (
        since
        == [
            "NVRM: Xid (GPU 1): 79, it has fallen off the bus",
            "NVRM: Xid (GPU 1): 31, a memory page fault by a program",
        ]
        * 2
    )
    assert reading.errors_since(0.0, ["GPU-a"]) == []
    assert reading.errors_since(float("inf"), ["GPU-b"]) == []


def test_without_a_gpu_it_is_told_once_and_the_driver_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[Event] = []
    closed: list[int] = []
    monkeypatch.setattr(sampler, "Nvml", lambda **_: SimpleNamespace(count=0, close=lambda: closed.append(1)))
    reading = GpuReader(notes.append, 1.0)
    assert [reading._open() for _ in range(2)] == [None, None]
    assert notes == [GpuReadings(gpus=[], missing=NO_GPU)]
    assert closed == [1, 1]
    assert reading.stuck_seconds == 0.0
