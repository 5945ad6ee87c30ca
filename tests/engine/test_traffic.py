"""Traffic and activity from GPM and its older substitutes, and how often the driver is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from gputui.engine.telemetry import sampler
from gputui.engine.telemetry.nvml.gpm_nvlink import NvLink

from tests.support.fakenvml import FakeNvml
from tests.support.fakenvml.programs import calls, readings

pytest_plugins = ("tests.support.fakenvml.fixture",)


def test_calls_stay_within_the_budget(nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    program = """
import json, sys, time
from gputui.engine.telemetry.nvml.connection import Nvml
nvml, counts = Nvml(pcie=True), []
for slow in (True, *[False] * WARM_UP, True, False):
    before = len(open(sys.argv[1]).readlines())
    nvml.read(slow)
    counts.append(len(open(sys.argv[1]).readlines()) - before)
    time.sleep(0.11)
print(json.dumps(counts))
""".replace("sys.argv[1]", repr(str(log)))
    for more, warm_up in (
        ("gpm=1", 0), ("gpm=0", 0), ("gpm=1 gpm_lacks=20,21,60,61", 0), ("mig=7", 0), ("mig=2 gpm=1", 4)
    ):  # fmt: skip
        *_, slow, fast = nvml.run(program.replace("WARM_UP", str(warm_up)), f"nvlinks=4 procs=1 {more} log={log}")
        assert fast + (slow - fast) / sampler.SLOW_FIGURES_SECONDS <= 16


def test_traffic_comes_from_the_older_questions_where_gpm_refuses(nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    for refusal, activity in {
        "fail=GpmSampleGet:3": "unsupported",
        "fail=GpmSampleGet:4": "no_permission",
        "gpm_lacks=20,21,60,61": None,
    }.items():
        (gpu,) = readings(nvml, f"gpm=1 nvlinks=4 {refusal} log={log}")
        assert gpu["reasons"].get("sm_active") == activity
        assert (gpu.get("sm_active") is None) == (activity is not None)
        assert gpu["nvlink"]["links"] == 4
        assert "nvlink" not in gpu["reasons"]
        assert gpu["pcie_rx_bytes_per_second"] == 2000 * 1024
        if activity:  # it is refused at the first reading
            assert gpu["nvlink"]["rx_bytes_per_second"] > 0
            assert sum(function == "GpmSampleGet" for function, _, _ in calls(log)) == 1
        log.unlink()


def test_a_counter_of_links_that_begins_anew_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = iter([[18], [1000, 5000], [3000, 400], [3500, 500], [4500, 700]])  # links; received and sent, in KiB
    monkeypatch.setattr(NvLink, "_fields", lambda *_: next(counters))
    moments = iter([0.0, 2.0, 2.0, 4.0])
    monkeypatch.setattr("gputui.engine.telemetry.nvml.gpm_nvlink.time.monotonic", lambda: next(moments))
    links = NvLink(None)
    rates = [tuple(links.read()["nvlink"].values()) for _ in range(4)]
    assert rates == [
        (18, None, None), (18, 1000 * 1024, None), (18, None, None), (18, 500 * 1024, 100 * 1024)
    ], "nor has one that is read twice at a time"  # fmt: skip


def test_traffic_that_gpm_fails_to_tell_says_why(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "gpm=1 nvlinks=4 fail=GpmSampleGet:999")
    for key in ("sm_active", "pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second", "nvlink"):
        assert gpu["reasons"][key] == "error"


COUNTERS = """
import json
from gputui.engine.telemetry.nvml import gpm_nvlink
from gputui.engine.telemetry.nvml.connection import Nvml
seconds = iter((10.0, 12.0, 12.5))
gpm_nvlink.time.monotonic = lambda: next(seconds)
nvml = Nvml()
links = gpm_nvlink.NvLink(nvml.devices[0]._handle)
print(json.dumps([links.read()["nvlink"] for _ in range(3)]))
"""


def test_nvlink_counters_in_kib_become_bytes_a_second(nvml: FakeNvml) -> None:
    first, second, third = nvml.run(COUNTERS, "nvlinks=12")
    assert first == {"links": 12, "rx_bytes_per_second": None, "tx_bytes_per_second": None}
    assert second == {"links": 12, "rx_bytes_per_second": 1024 * 1024 / 2, "tx_bytes_per_second": 3072 * 1024 / 2}
    assert third == {"links": 12, "rx_bytes_per_second": 1024 * 1024 / 0.5, "tx_bytes_per_second": 3072 * 1024 / 0.5}


def test_nvlink_without_gpm(nvml: FakeNvml, tmp_path: Path) -> None:
    (gpu,) = readings(nvml, "nvlinks=12")
    assert gpu["nvlink"]["tx_bytes_per_second"] == pytest.approx(3 * gpu["nvlink"]["rx_bytes_per_second"], abs=3)
    assert gpu["reasons"]["sm_active"] == "unsupported"
    log = tmp_path / "calls"
    (gpu,) = readings(nvml, f"nvlinks=12 nvlink_counters=0 log={log}")
    assert gpu["reasons"]["nvlink"] == "unsupported"
    assert sum(function == "DeviceGetFieldValues" for function, _, _ in calls(log)) == 2  # links, and counters once


def test_performance_metrics_are_not_asked_too_soon(nvml: FakeNvml) -> None:
    program = """
import json, time
from gputui.engine.telemetry.nvml.connection import Nvml
nvml = Nvml()
nvml.read()
time.sleep(0.11)
print(json.dumps([nvml.read(False)[0].get("sm_active") for _ in range(3)]))
nvml.close()
"""
    assert nvml.run(program, "gpm=1") == [0.2, 0.2, 0.2]


INSTANCES = """
import json, time
from gputui.engine.telemetry.nvml.connection import Nvml
nvml, found = Nvml(), []
for _ in range(8):
    found.append(nvml.read(False)[0])
    time.sleep(0.11)
nvml.close()
print(json.dumps(found))
"""


def test_instances_of_a_gpu_in_mig_mode_tell_their_activity_in_turn(nvml: FakeNvml, tmp_path: Path) -> None:
    first, *_, last = nvml.run(INSTANCES, "gpm=1 mig=2")
    assert [one.get("sm_active") for one in first["mig"]] == [None, None]
    assert [(one["gpu_instance"], one["sm_active"]) for one in last["mig"]] == [(1, 0.21), (2, 0.22)]
    assert last["sm_active"] == 0.2
    assert "dram_active" not in last["mig"][0]
    log = tmp_path / "calls"
    for refusal, asked in ((f"gpm=1 mig=2 fail=GpmMigSampleGet:3 log={log}", 2), (f"gpm=0 mig=2 log={log}", 0)):
        *_, last = nvml.run(INSTANCES, refusal)
        assert [one.get("sm_active") for one in last["mig"]] == [None, None]
        assert sum(function == "GpmMigSampleGet" for function, _, _ in calls(log)) == asked
        log.unlink()
    *_, last = nvml.run(INSTANCES, "gpm=1 mig=2 lost=0+40")
    assert last["reasons"] == {"*": "lost"}
