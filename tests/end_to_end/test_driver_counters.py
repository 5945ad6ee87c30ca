"""What the driver counts and reports of GPUs while they are read: power, heat, energy, clocks, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from gputui.engine import presets
from gputui.engine.process import launch

from tests.support.fakenvml import FakeNvml
from tests.support.fakenvml.programs import calls, of_type, readings, watched
from tests.support.front_door import happened

# In the place of a trainer: it opens a GPU, and is aborted when the driver has reported an error of it.
ABORTED = """
import sys
if sys.orig_argv[-2:-1] == ["gputui.engine.trainer"]:
    import json, os, pathlib, time
    folder = pathlib.Path(sys.orig_argv[-1])
    started = {"t": time.time(), "type": "started", "run": folder.name, "gpus": ["GPU-0000-1"]}
    (folder / "events.jsonl").write_text(json.dumps(started) + "\\n")
    (folder.parent / "faulty").touch()
    told = folder / "telemetry.jsonl"
    until = time.monotonic() + 60
    while time.monotonic() < until and not (told.exists() and told.read_text().count('"gpu"') > 3):
        time.sleep(0.05)
    os.abort()
"""
pytest_plugins = ("tests.support.fakenvml.fixture",)


@pytest.mark.parametrize(
    ("bits", "throttle", "settings"),
    [
        (0x1, [], None),
        (0x2 | 0x100, [], ["application clocks", "display clocks"]),
        (0x2 | 0x20, ["software thermal"], ["application clocks"]),
        (0x200 | 0x400, ["board limit", "reliability limit"], None),
    ],
)
def test_clocks_that_somebody_has_set_are_no_throttling(
    nvml: FakeNvml, bits: int, throttle: list[str], settings: list[str] | None
) -> None:
    (gpu,) = readings(nvml, f"throttle={bits}")
    assert (gpu["throttle"], gpu.get("clocks_set_by")) == (throttle, settings)


def test_power_and_heat_are_counted_by_the_driver(nvml: FakeNvml) -> None:
    found = watched(nvml, "gpus=2 power_cap=200@1 slowed=50,20@1 clock=600@1", enough="len(gpus) > 2")
    first, *_, last = of_type(found, "gpu")
    (healthy, slow), (_, then) = last["gpus"], first["gpus"]
    seconds = last["t"] - first["t"]
    assert (slow["power_limit_w"], slow["sm_clock_mhz"], healthy["sm_clock_mhz"]) == (200.0, 600, 1980)
    for key, share in (("slowed_by_power_seconds", 0.5), ("slowed_by_heat_seconds", 0.2), ("energy_j", 200)):
        assert slow[key] - then[key] == pytest.approx(share * seconds, rel=0.3), key
        assert key not in slow.get("reasons", {})


def test_errors_that_the_driver_reports_are_told_once_and_a_box_without_events_lacks_nothing(
    nvml: FakeNvml, tmp_path: Path
) -> None:
    log = tmp_path / "calls"
    words = f"gpus=3 xid=74@1 recovery=1@1 xid=31@2 log={log}"
    found = watched(nvml, words, enough="'gpu_xid' in warned and len(gpus) > 3")
    (warning,) = [event for event in of_type(found, "warning") if event["kind"] == "gpu_xid"]
    assert "GPU 1 (NVIDIA H100 80GB HBM3): the NVIDIA driver has reported Xid 74, an NVLink" in warning["message"]
    assert warning["hint"] == ("the GPU needs a reset: end its programs, then as root: nvidia-smi --gpu-reset -i 1")
    made = [(function, note) for function, _, note in calls(log)]
    assert [function for function, _ in made].count("EventSetCreate") == 1
    assert made.index(("EventSetFree", "")) < made.index(("Shutdown", ""))
    for fault in ("EventSetCreate:3", "EventSetWait_v2:999", "DeviceRegisterEvents:3"):
        found = watched(nvml, f"gpus=3 xid=74@1 fail={fault}", enough="len(gpus) > 3")
        assert "gpu_xid" not in [event["kind"] for event in of_type(found, "warning")]
        assert [gpu["busy"] for gpu in of_type(found, "gpu")[-1]["gpus"]] == [0.37] * 3


@pytest.mark.usefixtures("nothing_left_running")
def test_a_trainer_that_dies_of_a_page_fault_ends_with_the_error_that_the_driver_has_reported(
    nvml: FakeNvml, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its own GPU: that of another is not its own."""
    (tmp_path / "sitecustomize.py").write_text(ABORTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = f"gpus=2 xid=31@1 xid=94@0 xid_when={home / 'runs' / 'faulty'}"
    for name, value in nvml.environment(words).items():
        monkeypatch.setenv(name, value)
    run, engine = launch.start(presets.resolve("quickstart", ["sample_seconds=0.1"]))
    engine.wait(60)
    assert run.result is not None
    error = run.result["error"]
    assert (error["kind"], run.result["outcome"]) == ("gpu_xid", "crashed"), error
    assert "Xid 31" in error["message"]
    assert "a memory page fault by a program; the trainer ended with signal SIGABRT" in error["message"]
    assert ["Xid 94" in event["message"] for event in happened(run, "warning")] == [True]
