"""Readings of GPUs and host, with the faults of real machines, through the real `pynvml`."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest
from gputui.engine.runs import events, request_stop
from gputui.engine.telemetry import chips
from gputui.engine.telemetry.host import Host
from gputui.engine.telemetry.nvml.connection import Nvml
from gputui.engine.telemetry.nvml.reasons import NvmlUnavailable

from tests.support.fakenvml import FakeNvml
from tests.support.fakenvml.programs import READ, calls, of_type, readings, watched
from tests.support.front_door import detached, ended, happened, step, until
from tests.support.idle import idle

pytest_plugins = ("tests.support.fakenvml.fixture",)

GIB = 1024**3
MIB = 1024**2

# Another user's training, whose folder cannot be read; those of this machine's other tests are left out.
BESIDE = """
import json
from types import SimpleNamespace
import psutil
from gputui.engine.proof import proof_start
from gputui.engine.job import this_machine
words = ["python", "-m", "gputui.engine.trainer", "/nowhere/theirs"]
psutil.process_iter = lambda names: [SimpleNamespace(info={"cmdline": words}, pid=PID)]
here = this_machine.read()
gpus = (here.gpus[0].uuid, "GPU-another")
print(json.dumps([bool(proof_start.other_training(frozenset([name]), here)) for name in gpus]))
"""


def test_of_another_users_training_the_driver_tells_the_gpu(nvml: FakeNvml, home: Path) -> None:
    program = BESIDE.replace("PID", str(os.getpid()))
    assert nvml.run(program, f"procs={os.getpid()}") == [True, False]
    assert nvml.run(program, "") == [True, True], "where it is unknown, it may be on any"


# ---- figures ----------------------------------------------------------------------------------


def test_all_figures_of_a_healthy_gpu(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, f"gpm=1 nvlinks=18 throttle=68 procs={os.getpid()}")
    assert gpu["uuid"] == "GPU-0000-0"
    assert gpu["pci_bus_id"] == "00000000:01:00.0"
    assert gpu["busy"] == 0.37
    assert (gpu["memory_used_bytes"], gpu["memory_total_bytes"]) == (10 * GIB, 80 * GIB)
    assert gpu["memory_reserved_bytes"] == GIB / 2
    assert (gpu["power_w"], gpu["power_limit_w"], gpu["temperature_c"]) == (321.0, 700.0, 55)
    assert (gpu["sm_clock_mhz"], gpu["memory_clock_mhz"], gpu["pstate"]) == (1980, 2619, 0)
    assert (gpu["max_sm_clock_mhz"], gpu["power_limit_default_w"]) == (1980, 700.0)
    assert gpu["energy_j"] > 0
    assert (gpu["slowed_by_power_seconds"], gpu["slowed_by_heat_seconds"]) == (0.0, 0.0)
    assert gpu["throttle"] == ["power cap", "hardware thermal"]
    assert gpu["ecc_errors"] == {"corrected": 4, "uncorrected": 0}
    assert (gpu["sm_active"], gpu["tensor_active"]) == (0.2, 0.5)
    assert gpu["pcie_rx_bytes_per_second"] == 210 * MIB
    assert gpu["nvlink"] == {"links": 18, "rx_bytes_per_second": 600 * MIB, "tx_bytes_per_second": 610 * MIB}
    assert gpu["processes"][0] | {"name": ""} == {
        "pid": os.getpid(), "memory_used_bytes": GIB, "type": "C", "name": "", "own": True, "user": getpass.getuser()
    }  # fmt: skip
    assert "dram_active" not in gpu  # the stand-in has no such metric
    assert gpu["reasons"] == {"dram_active": "unsupported"}


def test_what_a_call_cannot_tell_is_none_with_the_reason(nvml: FakeNvml) -> None:
    faults = {
        "DeviceGetTemperature": (3, "temperature_c", "unsupported"),
        "DeviceGetPowerUsage": (4, "power_w", "no_permission"),
        "DeviceGetUtilizationRates": (999, "busy", "error"),
        "DeviceGetComputeRunningProcesses_v3": (4, "processes", "no_permission"),
        "DeviceGetPerformanceState": (25, "pstate", "unsupported"),
    }
    words = " ".join(f"fail={function}:{code}" for function, (code, _, _) in faults.items())
    (gpu,) = readings(nvml, f"{words} fail=DeviceGetTemperatureV:3")
    for _, key, reason in faults.values():
        assert gpu.get(key) is None, key
        assert gpu["reasons"][key] == reason
    assert gpu["memory_used_bytes"] == 10 * GIB


def test_figures_marked_as_not_available_are_not_numbers(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "na=1 procs=1")
    assert gpu["memory_used_bytes"] is None
    assert gpu["power_w"] is None
    assert gpu["processes"][0]["memory_used_bytes"] is None
    assert gpu["memory_total_bytes"] == 80 * GIB
    assert "shared_with_host" not in gpu


@pytest.mark.parametrize("how", ["1", "zero"])
def test_memory_shared_with_the_host(nvml: FakeNvml, how: str) -> None:
    found = nvml.run(READ, f"unified={how}")
    gpu = found["gpus"][0]
    assert gpu["shared_with_host"] is True
    assert gpu["memory_total_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < gpu["memory_used_bytes"] < gpu["memory_total_bytes"]
    assert gpu["reasons"]["memory_reserved_bytes"] == "unsupported"
    assert found["identities"][0]["memory_total_bytes"] is None


def test_older_drivers_answer_older_questions(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "procs=1 throttle=4", old=True)
    assert gpu["memory_used_bytes"] == 10 * GIB
    assert gpu["memory_used_counts_reserved"] is True
    assert gpu["reasons"]["memory_reserved_bytes"] == "unsupported"
    assert gpu["throttle"] == ["power cap"]
    assert [process["pid"] for process in gpu["processes"]] == [1]
    assert gpu["pcie_rx_bytes_per_second"] == 2000 * 1024


def test_newer_ways_are_tried_where_the_driver_gives_up_the_older(nvml: FakeNvml) -> None:
    assert readings(nvml, "")[0]["temperature_c"] == 55
    (gpu,) = readings(nvml, "fail=DeviceGetTemperature:26 fail=DeviceGetMemoryInfo_v2:25")
    assert gpu["temperature_c"] == 56
    assert gpu["memory_used_counts_reserved"] is True


def test_a_partitioned_gpu_lists_its_instances(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "mig=2")
    assert gpu["busy"] is None
    assert gpu["reasons"]["busy"] == "unsupported"
    assert [instance["uuid"] for instance in gpu["mig"]] == ["MIG-0000-100", "MIG-0000-101"]
    assert gpu["mig"][0]["memory_total_bytes"] == 20 * GIB


def test_mig_off_is_told_from_mig_on_without_instances(nvml: FakeNvml) -> None:
    off, on = readings(nvml, "gpus=2 mig=0@1")
    assert (off["mig"], on["mig"]) == (None, [])
    (unable,) = readings(nvml, "fail=DeviceGetMigMode:3")
    assert unable.get("mig") is None
    assert unable["reasons"]["mig"] == "unsupported"


def test_a_name_that_is_no_utf8(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "name=bad")
    assert gpu["name"].startswith("Chip ")


def test_processes_of_another_namespace_belong_to_nobody_here(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "procs=4194304")
    assert gpu["processes"] == [
        {"pid": 4194304, "memory_used_bytes": GIB, "type": "C", "name": None, "own": None, "user": None,
         "hidden": "not visible from here"}
    ]  # fmt: skip


# ---- NVML that cannot be opened ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [("init=9", "installed but not loaded"), ("init=18", "of different versions"), ("init=999", "NVML: ")],
)
def test_why_nvml_cannot_be_opened(nvml: FakeNvml, words: str, says: str) -> None:
    assert says in nvml.run(READ, words)


def test_no_library_and_one_that_is_none(nvml: FakeNvml, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    assert "no NVIDIA driver" in FakeNvml(tmp_path, tmp_path).run(READ)


def test_library_mismatch_is_no_nvml_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def mismatch() -> None:
        raise pynvml.NVMLLibraryMismatchError("Unversioned function called")

    assert not issubclass(pynvml.NVMLLibraryMismatchError, pynvml.NVMLError)
    monkeypatch.setattr(pynvml, "nvmlInit", mismatch)
    with pytest.raises(NvmlUnavailable, match="too old for the installed nvidia-ml-py"):
        Nvml()


def test_an_init_that_fails_and_later_works(nvml: FakeNvml) -> None:
    gpu = of_type(watched(nvml, "init=9x1", enough="len(gpus) > 1"), "gpu")
    assert gpu[0]["gpus"] == []
    assert "not loaded" in gpu[0]["missing"]
    assert gpu[1]["gpus"][0]["busy"] == 0.37
    assert sum(1 for event in gpu if event["missing"]) == 1


def test_an_init_that_takes_seconds_delays_nobody(nvml: FakeNvml) -> None:
    found = watched(nvml, "init_ms=600000", enough="True", patience=0.1)
    assert (found["told"], found["alive"]) == ([], True)


def test_a_driver_that_hangs_at_init_hangs_nobody_else(nvml: FakeNvml) -> None:
    program = """
import json
import sys
from gputui.engine.job import this_machine
this_machine.PATIENCE_SECONDS = float(sys.argv[1])
found = this_machine.read()
print(json.dumps([len(found.gpus), found.no_gpu_reason]))
"""
    assert nvml.run(program, "init_ms=600000", "0.3") == [0, "the NVIDIA driver hangs: no answer within 0.3 s"]
    assert nvml.run(program, "gpus=3", "60") == [3, ""]


# ---- GPUs that fail while they are read -------------------------------------------------------


def test_a_lost_gpu_is_said_and_the_others_go_on(nvml: FakeNvml) -> None:
    found = watched(nvml, "gpus=2 lost=1+60", enough="'gpu_lost' in warned and 'missing' in gpus[-1][1]")
    gpu = of_type(found, "gpu")
    first, last = gpu[0]["gpus"], gpu[-1]["gpus"]
    assert first[1]["busy"] == 0.37
    assert "lost" in last[1]["missing"]
    assert last[1]["reasons"] == {"*": "lost"}
    assert first[1]["uuid"] == last[1]["uuid"]
    assert gpu[0]["t"] - 1 < last[1]["lost_since"] < gpu[-1]["t"] + 0.1  # it is rounded
    assert "busy" not in last[1]
    assert last[0]["busy"] == 0.37
    kinds = [event["kind"] for event in of_type(found, "warning")]
    assert [kind for kind in kinds if kind != "telemetry_slow"] == ["gpu_lost"]


@pytest.mark.parametrize(
    ("code", "says"), [(999, "no longer answers (NVML: Unknown Error)"), (28, "no longer finds it"), (15, "the bus")]
)
def test_a_gpu_that_fails_everything_is_lost_until_it_answers(
    nvml: FakeNvml, tmp_path: Path, code: int, says: str
) -> None:
    fall = tmp_path / "fall"
    program = f"""
import json, time
from pathlib import Path
from gputui.engine.telemetry.nvml import gpu_reader
from gputui.engine.telemetry.nvml.connection import Nvml
gpu_reader.LOOK_AGAIN_SECONDS = 0.05
fall, nvml = Path({str(fall)!r}), Nvml()
told = [nvml.read()]
fall.touch()
told.append(nvml.read(False))
time.sleep(0.1)
told.append(nvml.read())
fall.unlink()
time.sleep(0.06)
told.append(nvml.read(False))
print(json.dumps(told))
"""
    well, lost, still, back = nvml.run(program, f"gpus=2 procs=1 lost_when={fall}@1 lost_code={code}")
    assert says in lost[1]["missing"]
    assert says in still[1]["missing"]
    assert lost[1]["reasons"] == {"*": "lost"}
    assert lost[1]["lost_since"] == still[1]["lost_since"]
    assert "ecc_errors" not in lost[1]
    for gpu in (*back, *well):
        del gpu["energy_j"]  # grows
    assert back == well
    assert {reading[1]["uuid"] for reading in (well, lost, still, back)} == {"GPU-0000-1"}
    assert lost[0]["busy"] == still[0]["busy"] == 0.37


def test_a_gpu_that_answers_something_is_not_lost(nvml: FakeNvml) -> None:
    functions = ("UtilizationRates", "MemoryInfo_v2", "PowerUsage", "ClockInfo", "CurrentClocksEventReasons")
    words = " ".join(f"fail=DeviceGet{function}:999" for function in functions)
    (gpu,) = readings(nvml, words)
    assert "missing" not in gpu
    assert (gpu["temperature_c"], gpu["power_w"], gpu["reasons"]["power_w"]) == (55, None, "error")


def test_a_single_error_is_no_loss_where_the_driver_refuses_all_other_questions(nvml: FakeNvml) -> None:
    refused = (
        "UtilizationRates", "MemoryInfo_v2", "MemoryInfo", "PowerUsage", "EnforcedPowerLimit", "ClockInfo",
        "CurrentClocksEventReasons", "CurrentClocksThrottleReasons", "PerformanceState", "TotalEccErrors", "MigMode",
        "ComputeRunningProcesses_v3", "ComputeRunningProcesses_v2", "ComputeRunningProcesses", "PcieThroughput",
    )  # fmt: skip
    words = " ".join(f"fail=DeviceGet{function}:4" for function in refused)  # there is no permission
    (gpu,) = readings(nvml, f"{words} fail=DeviceGetTemperature:999 fail=DeviceGetTemperatureV:999")
    assert "missing" not in gpu
    assert {key for key, reason in gpu["reasons"].items() if reason == "error"} == {"temperature_c"}
    assert gpu["busy"] is gpu["power_w"] is gpu["memory_used_bytes"] is None


def test_each_loss_is_warned_of_once(nvml: FakeNvml, tmp_path: Path) -> None:
    fall = tmp_path / "fall"
    program = f"""
import json, time
from pathlib import Path
from gputui.engine.telemetry import sampler
from gputui.engine.telemetry.nvml import gpu_reader
gpu_reader.LOOK_AGAIN_SECONDS = 0.1
fall, told = Path({str(fall)!r}), []
thread = sampler.GpuReader(lambda event: told.append(getattr(event, "kind", "")), 0.05)
thread.start()
until = time.monotonic() + 60

def more(than):
    while len(told) < than and time.monotonic() < until:
        time.sleep(0.02)

for times in (1, 2):
    fall.touch()
    while told.count("gpu_lost") < times and time.monotonic() < until:
        time.sleep(0.02)
    more(len(told) + 5)
    fall.unlink()
    more(len(told) + 5)
thread.stop()
print(json.dumps(told.count("gpu_lost")))
"""
    assert nvml.run(program, f"lost_when={fall}@0 lost_code=999", timeout=120) == 2


def test_slow_calls_lower_the_rate_and_say_so(nvml: FakeNvml) -> None:
    found = watched(nvml, "gpus=3 slow_ms=15", enough="warned and len(gpus) > 3")
    gpu = of_type(found, "gpu")
    assert gpu[-1]["interval_seconds"] > 0.5
    warning = of_type(found, "warning")
    assert [event["kind"] for event in warning] == ["telemetry_slow"]
    assert "instead of 0.1 s" in warning[0]["message"]


def test_a_call_that_hangs_is_left_behind(nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    asked = f"Path({str(log)!r}).exists() and 'DeviceGetPowerUsage' in Path({str(log)!r}).read_text()"
    found = watched(nvml, f"hang=DeviceGetPowerUsage@0 log={log}", enough=asked, patience=0.5)
    assert found["alive"]
    assert not any(function == "Shutdown" for function, _, _ in calls(log))


def test_nothing_is_asked_after_the_end_and_nothing_ends_while_asked(nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    program = f"""
import time
from pathlib import Path
from gputui.engine.telemetry.sampler import GpuReader
log, until = Path({str(log)!r}), time.monotonic() + 60
log.touch()
for asked in range(12):
    thread, before = GpuReader(lambda event: None, 0.01), log.stat().st_size
    thread.start()
    while asked and log.stat().st_size == before and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(max(0, asked - 1) / 100)
    thread.stop(60.0)
    assert not thread.is_alive()
print("true")
"""
    assert nvml.run(program, f"gpus=2 slow_ms=1 gpm=1 log={log}") is True
    made = calls(log)
    assert sum(function == "Shutdown" for function, _, _ in made) >= 11
    assert {note for _, _, note in made} == {""}


def test_an_open_nvml_is_of_no_use_in_a_forked_child(nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    program = """
import os
from gputui.engine.telemetry.nvml.connection import Nvml
from gputui.engine.telemetry.nvml.reasons import NvmlUnavailable
nvml = Nvml()
child = os.fork()
if child == 0:
    try:
        nvml.read()
    except NvmlUnavailable:
        nvml.close()
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
nvml.close()
"""
    assert nvml.run(program, f"log={log}") == 7
    assert sum(function == "Shutdown" for function, _, _ in calls(log)) == 1


def test_a_full_disk_costs_no_readings(nvml: FakeNvml, tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: the same OSError, at the same place."""
    program = f"""
import json, os, resource, signal, threading, time
from pathlib import Path
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.telemetry.sampler import Sampler
file = Path({str(tmp_path / "telemetry.jsonl")!r})
writer = EventWriter(file, "run")
emit, count = writer.emit, []
writer.emit = lambda event: (count.append(event.type), emit(event))
sampler = Sampler(writer, os.getpid(), 0.05)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, most))
until = time.monotonic() + 60

sampler.start()
while min(count.count("gpu"), count.count("host")) < 21 and time.monotonic() < until:
    time.sleep(0.02)
full = file.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
again, before = time.time(), len(count)
while min(count[before:].count("gpu"), count[before:].count("host")) < 6 and time.monotonic() < until:
    time.sleep(0.02)
sampler.stop()
writer.close()
print(json.dumps([full, again]))
"""
    full, again = nvml.run(program, timeout=120)
    assert 1000 < full <= 2000
    told = [json.loads(line) for line in (tmp_path / "telemetry.jsonl").read_text().splitlines()]
    for kind in ("gpu", "host"):
        times = [event["t"] for event in told if event["type"] == kind]
        assert sum(t > again for t in times) >= 5
        assert sum(t < again for t in times) >= 20  # kept meanwhile


# ---- the host, and the chips ------------------------------------------------------------------


def test_the_host_is_read_and_what_is_unknown_is_none() -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    mine, nobody = Host(os.getpid(), network=True), Host(int(gone.stdout))
    mine.read()
    reading = mine.read()
    assert reading.cpu is not None
    assert 0 <= reading.cpu <= 1
    assert reading.io_wait is None or 0 <= reading.io_wait <= 1
    assert reading.trainer_bytes == pytest.approx(reading.engine_bytes, rel=0.1)
    assert reading.network_rx_bytes_per_second is not None
    assert reading.trainer_read_bytes_per_second is not None
    dead = nobody.read()
    assert (dead.trainer_bytes, dead.trainer_cpu, dead.trainer_read_bytes_per_second) == (None, None, None)
    assert dead.network_rx_bytes_per_second is None


@pytest.mark.parametrize(
    ("name", "number_format", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.5),
        ("NVIDIA H200", "tf32", 494.5),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("Tesla V100-SXM2-16GB", "float16", 125),
        ("Tesla V100-SXM2-16GB", "bfloat16", None),
        ("Tesla T4", "tf32", 8.1),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "float16", None),
        ("NVIDIA H100 PCIe", "tf32", 378),
        ("GRID A100-10C", "float16", None),
        ("NVIDIA A40-48Q", "float16", None),
        ("NVIDIA A100-1-5CME", "float16", None),
        ("NVIDIA L40-2B4", "float16", None),
        ("GRID T4", "float16", None),
        ("NVIDIA A16", "float16", None),
        ("Something Else", "float32", None),
        (None, "float32", None),
    ],
)
def test_peaks_are_dense_and_unknown_chips_have_none(name: str | None, number_format: str, tera: float | None) -> None:
    assert chips.peak_flops(name, number_format) == (None if tera is None else tera * 1e12)


# ---- a whole run ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_training_survives_a_lost_gpu_and_a_slow_driver(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fall = tmp_path / "fall"
    for name, value in nvml.environment(f"gpus=2 slow_ms=8 lost_when={fall}@1").items():
        monkeypatch.setenv(name, value)
    run = detached("--preset", idle(tmp_path), "--set", "sample_seconds=0.1", "--set", "device.visible=none")
    until(lambda: step(run) > 0)
    until(lambda: "telemetry_slow" in {event["kind"] for event in happened(run, "warning")})
    before = happened(run, "gpu")[-1]
    fall.touch()
    until(lambda: "gpu_lost" in {event["kind"] for event in happened(run, "warning")})
    reached = step(run)
    until(lambda: step(run) > reached)
    after = until(lambda: happened(run, "gpu")[-1] if happened(run, "gpu")[-1]["gpus"][1].get("lost_since") else None)
    request_stop(run)
    assert ended(run)["outcome"] == "stopped"
    assert [gpu["busy"] for gpu in before["gpus"]] == [0.37, 0.37]
    assert after["gpus"][0]["busy"] == 0.37
    assert after["gpus"][1]["lost_since"] > before["t"]
    assert before["interval_seconds"] > 0.2
    assert "telemetry_slow" in {event["kind"] for event in happened(run, "warning")}
    assert "Traceback" not in run.file("engine.log").read_text()


def test_a_reading_fits_on_a_short_line(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "gpm=1 nvlinks=18 procs=1")
    assert len(json.dumps(events.plain(gpu), separators=(",", ":"))) < 950
