"""`gputui doctor`: what it finds on machines of all kinds, how fast, and with which exit code."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import namedtuple
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import doctor
from gputui.engine.doctor import Finding, gpus, host, libraries, nvml_module, tensorflow_check
from gputui.engine.doctor.gpus import Seen
from gputui.tui import listing_doctor
from gputui.tui.screens.doctor import DoctorScreen
from textual.app import App
from textual.widgets import DataTable

from .fakenvml import FakeNvml
from .front_door import gputui

pytest_plugins = ("tests.fakenvml.fixture",)

NO_GPU = {"LD_LIBRARY_PATH": "", "FAKE_NVML": ""}
H100 = {
    "index": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "compute_capability": (9, 0),
    "memory_used_bytes": 0,
    "memory_total_bytes": 80 * 1024**3,
    "power_limit_w": 700.0,
    "power_default_w": 700.0,
    "persistence": True,
    "ecc": True,
    "throttle": [],
    "mig": [],
}


def asked(*arguments: str, **environment: str) -> tuple[int, list[dict[str, str]]]:
    """Exit code and findings of the command."""
    done = gputui("doctor", "--json", *arguments, env=os.environ | environment)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)["findings"]


def about(found: Sequence[Finding], what: str) -> list[str]:
    return [finding.level for finding in found if what in finding.what]


def seen(**changes: Any) -> Seen:
    return Seen([H100 | changes], "", "580.10", (13, 0))


# ---- the command ------------------------------------------------------------------------------


def test_without_a_gpu_it_is_calm_and_quick() -> None:
    began = time.monotonic()
    code, found = asked(**NO_GPU)
    assert time.monotonic() - began < 3
    assert code == 0
    assert {finding["level"] for finding in found} <= {"ok", "note", "warning"}
    (gpu,) = [finding for finding in found if finding["about"] == "GPU"]
    assert gpu["level"] == "note"
    assert "runs on the CPU" in gpu["remedy"]


def test_tensorflow_is_not_imported() -> None:
    nvml = FakeNvml(Path("/nowhere"), Path("/nowhere"))
    program = "import sys, json; from gputui.tui.listing_doctor import examine; examine(False); "
    program += "print(json.dumps([name for name in ('tensorflow', 'keras', 'numpy') if name in sys.modules]))"
    assert nvml.run(program) == []


def test_a_machine_with_gpus(nvml: FakeNvml) -> None:
    code, found = asked(**nvml.environment("gpus=8 procs=1"))
    assert code == 0
    told = {(finding["about"], finding["level"]) for finding in found}
    assert ("driver", "ok") in told
    assert ("GPU 0-7", "ok") in told
    assert ("GPU 0-7", "warning") in told  # memory that others have taken
    assert any("10.0 GiB of 80.0 GiB are taken already by" in finding["what"] for finding in found)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("init=18", 1, "different versions"),
        ("init=9", 1, "not loaded"),
        ("gpus=2 lost=1+0", 0, "GPU is lost"),
        ("gpus=1 lost=0+0", 1, "GPU is lost"),
        ("cuda=11040", 1, "TensorFlow was built for CUDA 12"),
        ("cuda=12020", 0, "code compiled at first use may fail"),
        ("capability=5", 1, "no code for compute capability 5.0"),
        ("mig=2", 0, "MIG is on"),
        ("unified=1", 0, "shared with the host"),
        ("name=bad", 0, "Chip"),
    ],
)
def test_broken_and_unusual_drivers(nvml: FakeNvml, words: str, code: int, says: str) -> None:
    given, found = asked(**nvml.environment(words))
    assert any(says in finding["what"] for finding in found), found
    assert given == code


def test_a_driver_that_does_not_answer_is_not_waited_for(nvml: FakeNvml) -> None:
    began = time.monotonic()
    code, found = asked(**nvml.environment("init_ms=20000"))
    assert time.monotonic() - began < 4
    assert code == 0
    assert any("has not answered within 2 s" in finding["what"] for finding in found)


def test_the_words_for_people_are_whole_lines() -> None:
    done = gputui("doctor", env=os.environ | NO_GPU)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("Ready to train on the CPU")
    assert any(line.startswith("note     GPU         no NVIDIA driver") for line in done.stdout.splitlines())


@pytest.mark.slow
def test_the_deep_look_compares_tensorflow_with_the_driver(nvml: FakeNvml) -> None:
    began = time.monotonic()
    code, found = asked("--deep", **nvml.environment("gpus=2"))
    assert time.monotonic() - began < 25
    assert code == 1
    assert any("can be imported" in finding["what"] for finding in found)
    assert any("the driver shows 2 GPU(s), TensorFlow sees 0" in finding["what"] for finding in found)


# ---- single findings --------------------------------------------------------------------------


def test_settings_of_an_administrator() -> None:
    found = list(gpus.findings(seen(power_limit_w=400.0, persistence=False, ecc=False)))
    assert about(found, "the power limit is 400 W, its default is 700 W") == ["warning"]
    assert about(found, "persistence mode is off") == ["note"]
    assert about(found, "ECC is off") == ["note"]
    assert not about(list(gpus.findings(seen())), "ECC")


def test_a_gpu_in_bad_health() -> None:
    found = list(gpus.findings(seen(throttle=["power cap", "hardware thermal"], ecc_errors={"uncorrected": 3})))
    assert about(found, "3 memory error(s) that could not be corrected") == ["warning"]
    assert about(found, "slowed down: hardware thermal") == ["warning"]


@pytest.mark.parametrize(
    ("capability", "good_for"), [((8, 6), "bfloat16, float16 and TF32"), ((7, 5), "float16"), ((6, 1), "float32 only")]
)
def test_what_a_chip_is_good_for(capability: tuple[int, int], good_for: str) -> None:
    found = list(gpus.findings(seen(compute_capability=capability)))
    assert any(finding.what.endswith(f": {good_for}") for finding in found)
    assert not about(found, "compiles its kernels")


def test_an_old_pynvml_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"nvidia-ml-py": "13.0", "pynvml": "11.5.3"}
    monkeypatch.setattr(nvml_module, "_version", versions.get)
    monkeypatch.setattr(nvml_module, "_place", lambda: Path("/site-packages/pynvml/__init__.py"))
    (found,) = nvml_module.findings()
    assert (found.level, "pynvml 11.5.3 shadows" in found.what) == ("warning", True)
    assert "pip uninstall pynvml" in found.remedy
    monkeypatch.setattr(nvml_module, "_place", lambda: Path("/site-packages/pynvml.py"))
    assert [finding.level for finding in nvml_module.findings()] == ["note"]
    versions.clear()
    assert [finding.level for finding in nvml_module.findings()] == ["error"]


def test_missing_libraries_are_named_with_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_is_there", lambda name: "cudnn" not in name and "cublas" not in name)
    with_gpu, without = list(libraries.cuda(True)), list(libraries.cuda(False))
    assert about(with_gpu, "libcudnn.so.9 is missing") == ["error"]
    assert about(without, "libcudnn.so.9 is missing") == ["note"]
    assert [finding.remedy for finding in with_gpu][:2] == [
        "pip install nvidia-cublas-cu12",
        "pip install nvidia-cudnn-cu12",
    ]


def test_libraries_are_found_where_tensorflow_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_site", lambda relative: None)
    assert not libraries._is_there("libcudnn_made_up.so.9")
    (tmp_path / "libcudnn_made_up.so.9").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    assert libraries._is_there("libcudnn_made_up.so.9")


def test_how_tensorflow_was_built_is_read_without_importing_it() -> None:
    assert libraries.build_info()["is_cuda_build"] is True
    assert libraries.cuda_version() == (12, 5)
    assert (8, 0) in libraries.capabilities()


def test_a_tensorflow_compiled_at_each_start_is_said_with_the_remedy(tmp_path: Path) -> None:
    empty = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    _, found = asked(**NO_GPU, **empty)
    (finding,) = (finding for finding in found if "compiled anew at each start" in finding["what"])
    assert finding["level"] == "note"
    assert "PYTHONDONTWRITEBYTECODE is set" in finding["what"]
    assert f"{sys.executable} -m compileall -q /" in finding["remedy"]
    # Where the first import leaves it behind, there is nothing to do.
    _, found = asked(**NO_GPU, **empty | {"PYTHONDONTWRITEBYTECODE": ""})
    assert not [finding for finding in found if "compiled anew" in finding["what"]]


def test_no_tensorflow_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", nothing)
    found = list(libraries.tensorflow())
    assert [finding.level for finding in found] == ["error"]
    assert doctor.blocks(found)


def test_a_small_or_full_host(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(64 * 1024**2, 60 * 1024**2, 4 * 1024**2))
    found = list(host.findings())
    assert about(found, "64 MiB") == ["note"]
    assert [finding.level for finding in found if finding.about == "runs"] == ["error"]


def test_a_folder_for_runs_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPUTUI_HOME", str(tmp_path / "file" / "below"))
    assert about(list(host.findings()), "cannot write to") == ["error"]


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("Cannot dlopen some GPU libraries. Please", "CUDA libraries are missing"),
        ("failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)", "libcuda.so.1"),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "CUDA sees no device"),
        ("failed call to cuInit: INTERNAL: CUDA_ERROR_COMPAT_NOT_SUPPORTED", "CUDA_ERROR_COMPAT_NOT_SUPPORTED"),
        ("nothing to see", ""),
    ],
)
def test_the_likely_reason_for_missing_gpus(log: str, reason: str) -> None:
    found = tensorflow_check._compared(seen(), [], log)
    assert (found.level, reason in found.what) == ("error", True)


def test_gpus_that_tensorflow_sees_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert tensorflow_check._compared(seen(), ["H100"], "").level == "ok"
    assert tensorflow_check._compared(Seen(reason="none"), [], "").level == "ok"
    assert tensorflow_check._compared(seen(mig=[{"uuid": "MIG-1"}]), [], "").level == "note"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert tensorflow_check._compared(seen(), [], "").level == "note"


@pytest.mark.parametrize(
    ("environment", "size", "levels"),
    [
        ({"TERM": "xterm-256color", "LANG": "C.UTF-8"}, (160, 50), ["ok"]),
        ({"TERM": "xterm", "LANG": "C.UTF-8"}, (160, 50), ["note", "ok"]),
        ({"TERM": "linux", "LANG": "C.UTF-8"}, (60, 20), ["note", "note", "warning"]),
        ({"TERM": "xterm-256color", "LANG": "de_DE.ISO-8859-1", "COLORTERM": "truecolor"}, (99, 30), ["note", "ok"]),
    ],
)
def test_terminals(
    environment: dict[str, str], size: tuple[int, int], levels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    found = listing_doctor.terminal(environment, os.terminal_size(size))
    assert [finding.level for finding in found] == levels


# ---- the screen -------------------------------------------------------------------------------


async def test_the_screen_shows_findings_with_words_and_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Finding("error", "driver", "it is [broken]", "mend it"), Finding("ok", "CPU", "2 CPU(s)")]
    looks: list[bool] = []

    def examine(deep: bool) -> list[Finding]:
        looks.append(deep)
        return found

    monkeypatch.setattr("gputui.tui.screens.doctor.examine", examine)
    app: App[None] = App()
    async with app.run_test(size=(100, 30)) as pilot:
        screen = DoctorScreen()
        await app.push_screen(screen)
        await app.workers.wait_for_complete()
        await pilot.pause()
        table = screen.query_one(DataTable)
        rows = [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]
        assert rows[0][0] in ("✗ error", "x error")
        assert rows[0][1:] == ["driver", "it is [broken]\nmend it"]
        await pilot.press("d")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert looks == [False, True]
        await pilot.press("escape")
        assert app.screen is not screen
