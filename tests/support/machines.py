"""Machines that the doctor is taken to: what is on the bus, the container's limits, and a TensorFlow as wished."""

from __future__ import annotations

from pathlib import Path

from tests.doors.engine import chips
from tests.support.fakenvml import FakeNvml

# Says and sees what FAKE_TF holds: its number of GPUs, or "hang", with a process of its own that keeps the pipes open.
TENSORFLOW = """
import os, subprocess, sys, time
wish = os.environ["FAKE_TF"]
if wish == "hang":
    subprocess.Popen(["sleep", "40"])
    time.sleep(40)
if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
    print("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", file=sys.stderr)
__version__ = "2.21.0"

class config:
    list_physical_devices = staticmethod(lambda kind: list(range(int(wish))))

    class experimental:
        get_device_details = staticmethod(lambda gpu: {"device_name": f"chip {gpu}"})
"""


def machine(folder: Path, gpus: int = 0, driver: str = "nvidia", container: bool = False) -> dict[str, str]:
    """What makes gputui see GPUs on the bus at 0000:01:00.0 and on, with their sound chips and a network card."""
    for number in range(1, gpus + 1):
        _device(folder, f"0000:{number:02x}:00.0", "0x10de", "0x030200", driver)
        _device(folder, f"0000:{number:02x}:00.1", "0x10de", "0x040300", "snd_hda_intel")
    _device(folder, "0000:7f:00.0", "0x8086", "0x020000", "e1000e")
    (folder / "dev").mkdir()
    if container:
        (folder / ".dockerenv").touch()
    return {"GPUTUI_ROOT": str(folder)} | dict.fromkeys(chips._CONFINED, "")


def _device(folder: Path, address: str, vendor: str, kind: str, driver: str) -> None:
    device = folder / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    (device / "driver").symlink_to(folder / "sys/bus/pci/drivers" / driver)


def whole(nvml: FakeNvml, folder: Path, words: str, gpus: int) -> dict[str, str]:
    """A machine with as many GPUs on the bus, whose driver has all its libraries and says what the words wish."""
    folder.mkdir()
    given = nvml.environment(words)
    libraries = {"LD_LIBRARY_PATH": f"{given['LD_LIBRARY_PATH']}:{nvml.cuda}", "FAKE_CUDA": str(gpus)}
    return machine(folder, gpus) | given | libraries


def tensorflow(folder: Path, wish: str) -> dict[str, str]:
    """What makes a new process import the stand-in above."""
    (folder / "tensorflow.py").write_text(TENSORFLOW)
    return {"PYTHONPATH": str(folder), "FAKE_TF": wish}


def put(folder: Path, files: dict[str, str]) -> None:
    """Files of the kernel in a machine's tree."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")
