"""Answers and errors of the driver, by stand-ins for single functions of NVML: what is taken from them, in words."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest
from gputui.engine.doctor import nvml_query
from gputui.engine.doctor.nvml_query import NvmlQuery
from gputui.engine.doctor.python_process import Child, Output
from gputui.engine.telemetry import chips, gpu_processes
from gputui.engine.telemetry.gpu_totals import GpuTotals
from gputui.engine.telemetry.nvml import connection, reasons
from gputui.engine.telemetry.nvml.reasons import NvmlUnavailable, Reason
from gputui.engine.telemetry.nvml.xid_errors import DriverError, DriverErrors

from tests.support.front_door import until


def error(code: int) -> Exception:
    made: Exception = pynvml.NVMLError(code)
    return made


def raises(fault: Exception) -> Any:
    def ask(*_: object, **__: object) -> None:
        raise fault

    return ask


class NVMLLibraryMismatchError(Exception):
    """As pynvml raises it for a driver that is older than a function."""


# ---- reasons -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "reason", "text"),
    [
        (error(3), Reason.UNSUPPORTED, None), (error(6), Reason.UNSUPPORTED, None),
        (error(13), Reason.UNSUPPORTED, None),
        (error(25), Reason.UNSUPPORTED, None), (error(26), Reason.UNSUPPORTED, None),
        (error(4), Reason.NO_PERMISSION, "this user has no permission to use the NVIDIA driver"),
        (error(9), Reason.ERROR, "the NVIDIA driver is installed but not loaded"),
        (error(12), Reason.ERROR, "no NVIDIA driver on this machine (libnvidia-ml.so.1 is missing)"),
        (error(15), Reason.LOST, "the GPU is lost (it has fallen off the bus); the machine needs a restart"),
        (error(16), Reason.LOST, "the GPU is lost until it is reset (nvidia-smi --gpu-reset)"),
        (error(18), Reason.ERROR, "the loaded NVIDIA driver and its library are of different versions, as after an "
         "update; the machine needs a restart"),
        (error(28), Reason.LOST, "the GPU is lost (the driver no longer finds it)"),
        (error(999), Reason.ERROR, "NVML: Unknown Error"),
        (AttributeError("x"), Reason.UNSUPPORTED, "NVML: x"),
        (NVMLLibraryMismatchError("x"), Reason.UNSUPPORTED,
         "the NVIDIA driver is too old for the installed nvidia-ml-py"),
        (OSError("two\n words"), Reason.ERROR, "NVML: two words"), (ValueError(), Reason.ERROR, "NVML: ValueError"),
    ],
)  # fmt: skip
def test_each_error_of_the_driver_has_a_reason_and_words(fault: Exception, reason: Reason, text: str | None) -> None:
    assert reasons.reason_of(fault) is reason
    assert text is None or reasons.text_of(fault) == text
    assert reasons.or_none(raises(fault)) is None


@pytest.mark.parametrize(
    ("number", "about", "of_a_program"),
    [(13, "an exception in a program's kernel", True), (31, "a memory page fault by a program", True),
     (32, "invalid data from a program", True), (43, "a program's work was stopped", True),
     (48, "an uncorrectable memory error", False), (62, "the chip's controller has stopped", False),
     (63, "a memory row was remapped", False), (64, "a memory row could not be remapped", False),
     (74, "an NVLink error", False), (79, "it has fallen off the bus", False),
     (92, "many memory errors were corrected", False), (94, "a memory error that ended one program", False),
     (95, "a memory error that ends all programs", False),
     (119, "the chip's system processor does not answer", False),
     (120, "the chip's system processor has failed", False), (145, "an NVLink error", False),
     (149, "an NVLink error", False), (12, "", False)],
)  # fmt: skip
def test_an_error_is_named_and_a_programs_is_known(number: int, about: str, of_a_program: bool) -> None:
    assert (DriverError(0, number).about, DriverError(0, number).is_of_a_program) == (about, of_a_program)


def test_reported_errors_are_read_a_hundred_at_a_time_without_those_that_only_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = pynvml.c_nvmlDevice_t(), pynvml.c_nvmlDevice_t()
    events, freed, registered = list[Any](), list[object](), list[object]()

    def wait(_set: object, milliseconds: int) -> Any:
        assert milliseconds == 1
        if not events:
            raise error(pynvml.NVML_ERROR_TIMEOUT)
        event = events.pop(0)
        if isinstance(event, Exception):
            raise event
        return event

    monkeypatch.setattr(pynvml, "nvmlEventSetCreate", lambda: "set")
    monkeypatch.setattr(pynvml, "nvmlEventSetFree", freed.append)
    monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", lambda gpu, _kind, _set: registered.append(gpu))
    monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", wait)
    monkeypatch.setattr("gputui.engine.telemetry.nvml.xid_errors._address", id)

    def event(gpu: object, number: int, kind: int = pynvml.nvmlEventTypeXidCriticalError) -> Any:
        return SimpleNamespace(device=gpu, eventType=kind, eventData=number)

    found = DriverErrors([(0, first), (1, second), (2, None)])
    assert registered == [first, second]
    events += [event(second, 79), event(first, 45), event(second, 154), event(first, 31, 1), event(object(), 48)]
    assert found.read() == [DriverError(1, 79), DriverError(1, 154), DriverError(None, 48)]
    events += [event(first, 79)] * 150
    assert (len(found.read()), len(found.read()), found.read()) == (100, 50, [])
    assert freed == []
    events.append(error(999))
    assert (found.read(), freed, found.read()) == ([], ["set"], [])
    monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", raises(error(3)))
    freed.clear()
    assert (DriverErrors([(0, first)]).read(), freed) == ([], ["set"]), "the platform has no events"


# ---- the connection ------------------------------------------------------------------------------


@pytest.fixture
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A driver without a GPU, and what is called of it."""
    calls: list[str] = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: calls.append("init"))
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: calls.append("shutdown"))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 0)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "580.10")
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion_v2", lambda: 12080)
    return calls


def test_a_connection_is_closed_once_and_of_no_use_afterwards_or_in_another_process(
    no_gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = connection.Nvml()
    assert (nvml.count, nvml.read(), nvml.identities(), nvml.driver(), nvml.cuda()) == (0, [], [], "580.10", (12, 8))
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    nvml.close()
    with pytest.raises(NvmlUnavailable, match=r"^an open NVML does not survive a fork$"):
        nvml.read()
    monkeypatch.setattr(os, "getpid", lambda: pid)
    assert no_gpus == ["init"]
    nvml.close()
    nvml.close()
    assert no_gpus == ["init", "shutdown"]
    with pytest.raises(NvmlUnavailable, match=r"^NVML is closed$"):
        nvml.read()


def test_a_driver_that_cannot_count_its_gpus_is_closed_and_one_that_says_nothing_is_unknown(
    no_gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"):
        monkeypatch.setattr(pynvml, name, raises(error(3)))
    nvml = connection.Nvml()
    assert (nvml.driver(), nvml.cuda()) == ("", None)
    no_gpus.clear()
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", raises(error(999)))
    with pytest.raises(NvmlUnavailable, match="NVML: Unknown Error") as fault:
        connection.Nvml()
    assert (fault.value.code, no_gpus) == (999, ["init", "shutdown"])
    monkeypatch.setattr(pynvml, "nvmlInit", raises(error(12)))
    for nodes, text in ((True, "the NVIDIA driver's libnvidia-ml.so.1 is missing"),
                        (False, "no NVIDIA driver on this machine (libnvidia-ml.so.1 is missing)")):  # fmt: skip
        monkeypatch.setattr(chips, "has_device_nodes", lambda nodes=nodes: nodes)
        with pytest.raises(NvmlUnavailable) as fault:
            connection.Nvml()
        assert (str(fault.value), fault.value.code) == (text, 12)


def test_the_cpus_of_a_gpus_node_are_read_from_words_of_64_bits(
    no_gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda _name: 65)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    masks = {0: [0b1011, 0], 3: [1 << 63, 0b1]}
    words: list[int] = []

    def affinity(gpu: int, count: int) -> list[int]:
        words.append(count)
        return masks[gpu]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCpuAffinity", affinity)
    assert connection.cpus_near([0, 3]) == [{0, 1, 3}, {63, 64}]
    assert (words, no_gpus) == ([2, 2], ["init", "shutdown"])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCpuAffinity", raises(error(3)))
    assert connection.cpus_near([0, 3]) == [frozenset(), frozenset()]
    assert no_gpus == ["init", "shutdown"] * 2
    monkeypatch.setattr(os, "sysconf", lambda _name: 64)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCpuAffinity", lambda _gpu, count: [count])
    assert connection.cpus_near([0]) == [{0}]


# ---- the doctor's questions ----------------------------------------------------------------------


def test_the_doctor_knows_the_driver_and_why_it_cannot_count(
    no_gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen() -> tuple[object, ...]:
        answers = NvmlQuery().by(time.monotonic() + 60)
        return answers.driver, answers.cuda, answers.count, answers.reason, answers.code

    assert seen() == ("580.10", (12, 8), 0, connection.NO_GPU, None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", raises(error(4)))
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", raises(error(3)))
    assert seen() == ("of an unknown version", (12, 8), 0, "this user has no permission to use the NVIDIA driver", 4)
    assert no_gpus == ["init", "shutdown"] * 2
    monkeypatch.setattr(pynvml, "nvmlInit", raises(error(9)))
    assert seen() == ("", None, 0, "the NVIDIA driver is installed but not loaded", 9)


def test_a_driver_that_does_not_answer_in_time_is_late(no_gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answer, asked = threading.Event(), threading.Event()

    def hangs(*_: object) -> None:
        asked.set()
        answer.wait()
        raise error(9)

    now = [100.0]
    monkeypatch.setattr(nvml_query, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for name, count in (("nvmlInit", 0), ("nvmlDeviceGetHandleByIndex", 2)):
        with monkeypatch.context() as patched:
            now[0] = 100.0
            patched.setattr(pynvml, "nvmlDeviceGetCount", lambda count=count: count)
            patched.setattr(pynvml, name, hangs)
            asked.clear()
            answer.clear()
            query = NvmlQuery()
            assert asked.wait(60)
            now[0] = 103.0
            late = query.by(103.0)
            nothing = "the NVIDIA driver has not answered within 3 s"
            assert (late.late_seconds, late.reason, late.count) == (3.0, "" if count else nothing, count)
            answer.set()
            assert query.by(163.0).late_seconds is None


def test_details_of_a_gpu_are_read_from_the_drivers_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"rows": (0, 0, 0, 0)}
    for name, value in (
        ("nvmlDeviceGetRemappedRows", lambda _gpu: rows["rows"]),
        ("nvmlDeviceGetRetiredPagesPendingStatus", lambda _gpu: rows.get("pages")),
        ("nvmlDeviceGetVirtualizationMode", lambda _gpu: rows.get("mode", pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU)),
    ):
        monkeypatch.setattr(pynvml, name, value)

    def memory() -> tuple[object, object]:
        details = nvml_query.details(0)
        return details.get("repair"), details.get("unrepaired")

    assert memory() == (None, False)
    rows["rows"] = (1, 1, 1, 0)
    assert memory() == ("rows of its memory", False)
    rows["rows"] = (0, 0, 0, 1)
    assert memory() == (None, True)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetRemappedRows", raises(error(3)))
    assert memory()[0] is None
    rows["pages"] = 1  # type: ignore[assignment]
    assert memory()[0] == "pages of its memory"

    def feature(enabled: int, state: int) -> SimpleNamespace:
        return SimpleNamespace(featureEnabled=enabled, featureState=state)

    for supported, count, listed, licensed in (
        (1, 1, [feature(1, 1)], True), (1, 1, [feature(1, 0), feature(1, 1)], False), (1, 1, [feature(0, 1)], False),
        (1, 2, [feature(0, 0), feature(1, 1)], True), (0, 1, [feature(1, 1)], None), (1, 0, [feature(1, 1)], False),
    ):  # fmt: skip
        features = SimpleNamespace(
            isGridLicenseSupported=supported, licensableFeaturesCount=count, gridLicensableFeatures=listed
        )
        monkeypatch.setattr(pynvml, "nvmlDeviceGetGridLicensableFeatures", lambda _gpu, now=features: now)
        assert nvml_query.details(0).get("licensed") is licensed
    rows["mode"] = pynvml.NVML_GPU_VIRTUALIZATION_MODE_NONE
    assert nvml_query.details(0).get("licensed") is None


def test_a_python_that_does_not_start_or_end_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "that of this process")
    missing = Child("", {}, python="/nowhere/python")
    output = missing.output(time.monotonic() + 60)
    assert output is not None
    assert (output.returncode, output.text, "No such file" in output.log) == (-1, "", True)
    said = Child("import os, sys; print(os.environ['X']); sys.stderr.write('w'); sys.exit(3)", {"X": "y"}, "-S")
    assert said.output(time.monotonic() + 60) == Output(3, "y\n", "w")
    assert said.seconds > 0
    file = tmp_path / "pid"
    deaf = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(file)!r}, 'w').write(str(os.getpid()))"
    hangs = Child(f"import os, signal, time; {deaf}; time.sleep(600)", {}, "-S", python=sys.executable)
    until(lambda: file.exists() and file.read_text() != "")
    process = psutil.Process(int(file.read_text()))
    try:
        assert hangs.output(time.monotonic()) is None
        assert hangs.seconds > 0
        until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, seconds=30)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


# ---- processes and totals ------------------------------------------------------------------------


def test_the_process_that_has_a_gpu_alone_is_named_unless_it_is_shared() -> None:
    python, mps = {"name": "python", "pid": 7}, {"name": "nvidia-cuda-mps-server", "pid": 8}
    unseen = {"name": None, "pid": 9}
    lists: tuple[list[dict[str, Any]], ...] = ([], [python], [python, mps], [unseen], [python, unseen])
    assert [gpu_processes.sole(each) for each in lists] == ["", "python 7", "", "process 9", "python 7"]


def test_energy_and_slowed_time_are_counted_between_readings_and_not_over_a_pause() -> None:
    def reading(energy: float, heat: float, power: float = 100.0, **more: object) -> dict[str, Any]:
        return {
            "uuid": "GPU-a",
            "energy_j": energy,
            "slowed_by_heat_seconds": heat,
            "power_w": power,
            "busy": 1.0,
        } | more

    totals = GpuTotals()
    assert (totals.counts_energy, totals.energy_wh, totals.power_w, totals.watts) == (False, None, None, None)
    totals.take(10.0, reading(1000.0, 0.0))
    totals.take(20.0, reading(4600.0, 5.0))
    assert (totals.energy_wh, totals.power_w, totals.watts, totals.slowed_by("heat")) == (1.0, 360.0, 360.0, 0.5)
    totals.pause()
    totals.take(100.0, reading(9000.0, 90.0))
    totals.take(110.0, reading(12600.0, 190.0))  # no more than the time between them
    assert (totals.energy_wh, totals.power_w, totals.slowed_by("heat")) == (2.0, 360.0, 0.75)
    totals.take(120.0, reading(5.0, 5.0))
    assert totals.energy_wh == 2.0, "the driver was loaded again"
    both = GpuTotals()
    for t, energy in ((0.0, 0.0), (10.0, 1000.0)):
        both.take(t, reading(energy, 0.0))
        both.take(t, {"uuid": "GPU-b", "power_w": 50.0 + t, "busy": 0.4, "sm_clock_mhz": 300})
    assert not both.counts_energy, "the driver counts that of one of them"
    assert both.energy_wh == pytest.approx((100 * 10 + 55 * 10) / 3600)
    assert (both.power_w, both.watts) == (77.5, 155.0)
    assert both.figures()["sm_clock_mean_mhz"] is None, "an idle GPU lowers its clock"
    both.take(20.0, {"uuid": "GPU-b", "busy": 0.5, "sm_clock_mhz": 900, "max_sm_clock_mhz": 1200})
    assert (both.mean("sm_clock_mhz"), both.mean("clock_share")) == (900, 0.75)
    both.take(30.0, {"uuid": "GPU-c", "mig": []})
    assert (both.energy_wh, both.power_w, both.watts) == (None, None, None), "others may use the other parts"


def test_without_counters_the_reasons_in_the_readings_count() -> None:
    totals = GpuTotals()
    for t, reasons_ in enumerate((["power cap"], ["software thermal", "power cap"], [], ["hardware slowdown"])):
        totals.take(float(t), {"index": 0, "throttle": reasons_, "slowed_by_power_seconds": 0.0})
    assert [totals.slowed_by(cause) for cause in ("power", "heat", "board_limit")] == [0.5, 0.5, 0.0]
    assert totals.figures() == {
        "gpu_busy_mean": None, "gpu_power_mean_w": None, "sm_clock_mean_mhz": None, "slowed_by_power": 0.5,
        "slowed_by_heat": 0.5,
    }  # fmt: skip


def test_what_is_said_of_each_error_that_a_training_is_likely_to_meet() -> None:
    said = {
        13: "an exception in a program's kernel", 31: "a memory page fault by a program",
        32: "invalid data from a program", 43: "a program's work was stopped", 48: "an uncorrectable memory error",
        62: "the chip's controller has stopped", 63: "a memory row was remapped",
        64: "a memory row could not be remapped", 74: "an NVLink error", 79: "it has fallen off the bus",
        92: "many memory errors were corrected", 94: "a memory error that ended one program",
        95: "a memory error that ends all programs", 109: "a switch between programs took too long",
        140: "a memory error that ECC could not correct",
        154: "the GPU needs a reset, a restart or a drain after the error before",
        119: "the chip's system processor does not answer",
        120: "the chip's system processor has failed", 145: "an NVLink error", 149: "an NVLink error",
    }  # fmt: skip
    found = [DriverError(0, number) for number in range(200)]
    assert {error.number: error.about for error in found if error.about} == said
    assert [error.number for error in found if error.is_of_a_program] == [13, 31, 32, 43]
