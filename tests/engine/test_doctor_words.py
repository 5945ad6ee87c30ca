"""What the doctor says of driver, packages, host and the choice of GPUs: whole findings with their remedies."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.doctor import (
    driver,
    host_findings,
    libraries,
    no_gpu,
    python_packages,
    visible_gpus,
)
from gputui.engine.doctor.cuda_library import UNKNOWN, CudaAnswer
from gputui.engine.doctor.machine_finding import Finding
from gputui.engine.doctor.nvml_query import NvmlAnswers
from gputui.engine.interpreter import installed, interpreter
from gputui.engine.interpreter.interpreter import Interpreter

from tests.support.bare_machine import built as built
from tests.support.bare_machine import tree as tree
from tests.support.machines import put

BUS = ["0000:01:00.0", "0000:02:00.0"]
NO_GPU = "the NVIDIA driver sees no GPU"
CPU = "training runs on the CPU; gputui works, but GPU options have no effect"
QUICKER = "nvidia-smi -pm 1 (as root) keeps the driver loaded, so that it answers faster"
ALONE = "the NVIDIA driver's libnvidia-ml.so.1 is missing: nothing is known of the GPUs"


def gpus(count: int = 2, **more: Any) -> tuple[dict[str, Any], ...]:
    return tuple({"index": at, "uuid": f"GPU-{at}", "name": "T4"} | more for at in range(count))


# ---- the driver ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "bus", "confined", "found"),
    [
        (NvmlAnswers(reason="no library", code=12), [], False, Finding("note", "GPU", "no library", CPU)),
        (NvmlAnswers(reason=NO_GPU), [], False,
         Finding("note", "GPU", f"no NVIDIA GPU in this machine; {NO_GPU}", CPU)),
        (NvmlAnswers(reason=NO_GPU), None, False, Finding("note", "GPU", NO_GPU, CPU)),
        (NvmlAnswers(reason="late", late_seconds=2.0), BUS, False,
         Finding("warning", "driver", "late", f"gputui doctor --deep waits longer; {QUICKER}")),
        (NvmlAnswers(reason="late", late_seconds=17.0), BUS, False, Finding("warning", "driver", "late", QUICKER)),
        (NvmlAnswers(reason=NO_GPU), BUS, False,
         Finding("error", "GPU", f"2 NVIDIA GPU(s) in this machine, but {NO_GPU}",
                 "dmesg | grep -i nvrm shows why")),
        (NvmlAnswers(reason=NO_GPU), BUS, True,
         Finding("warning", "GPU", f"2 NVIDIA GPU(s) in this machine, but {NO_GPU}",
                 "start the container with --gpus all, or ask for GPUs in the job")),
        (NvmlAnswers(reason="no library", code=12), BUS, False,
         Finding("warning", "GPU", "2 NVIDIA GPU(s) in this machine, but no library",
                 "install NVIDIA's driver for this system; nvidia-smi then lists the GPUs")),
        (NvmlAnswers(reason="not loaded", code=9), BUS, False,
         Finding("error", "driver", "not loaded", "modprobe nvidia (as root) loads it; after a new kernel it may have "
                 "to be installed again")),
        (NvmlAnswers(reason="two versions", code=18), BUS, False,
         Finding("error", "driver", "two versions", "restart it, or load the driver again (as root: rmmod nvidia_drm "
                 "nvidia_modeset nvidia_uvm nvidia; modprobe nvidia)")),
        (NvmlAnswers(reason="two versions", code=18), BUS, True,
         Finding("error", "driver", "two versions", "restart the container, so that it gets the driver's new "
                 "libraries; or the machine")),
        (NvmlAnswers(reason="unknown", code=999), BUS, True,
         Finding("error", "driver", "unknown: the container has lost its GPUs", "restart the container; systemctl "
                 "daemon-reload on the host takes the GPUs away from running containers")),
        (NvmlAnswers(reason="unknown", code=999), BUS, False,
         Finding("error", "driver", "unknown", "check whether nvidia-smi works")),
        (NvmlAnswers(reason="denied", code=4), BUS, False,
         Finding("error", "driver", "denied", "ls -l /dev/nvidia* shows who has access: ask the administrator for it")),
    ],
)  # fmt: skip
def test_a_driver_without_gpus_has_one_finding(
    tree: Path, seen: NvmlAnswers, bus: Sequence[str] | None, confined: bool, found: Finding
) -> None:
    assert list(driver.findings(seen, bus, confined)) == [found]


@pytest.mark.parametrize(
    ("cuda", "late", "bus", "found"),
    [
        ((12, 5), None, BUS, [Finding("ok", "driver", "NVIDIA driver 555.42, CUDA 12.5")]),
        (None, None, BUS, [Finding("ok", "driver", "NVIDIA driver 555.42")]),
        ((12, 4), None, BUS,
         [Finding("note", "driver", "NVIDIA driver 555.42, CUDA 12.4: TensorFlow was built for CUDA 12.5; chips for "
                  "which it has machine code also work with this driver")]),
        ((13, 0), None, BUS,
         [Finding("ok", "driver", "NVIDIA driver 555.42, CUDA 13.0: TensorFlow's own CUDA 12.5 works with it")]),
        ((11, 8), None, BUS,
         [Finding("error", "driver", "NVIDIA driver 555.42, CUDA 11.8: TensorFlow was built for CUDA 12.5",
                  "update the driver; TensorFlow cannot use the GPUs with this one")]),
        ((12, 5), 9.6, BUS,
         [Finding("ok", "driver", "NVIDIA driver 555.42, CUDA 12.5"),
          Finding("warning", "driver", "the driver is slow: 2 of 2 GPU(s) answered within 10 s",
                  f"gputui doctor --deep waits longer; {QUICKER}")]),
        ((12, 5), None, [*BUS, "0000:03:00.0"],
         [Finding("ok", "driver", "NVIDIA driver 555.42, CUDA 12.5"),
          Finding("warning", "driver", "the driver shows 2 of the 3 GPUs in this machine (0000:03:00.0)",
                  "dmesg | grep -i nvrm shows why; a loose power cable is one possible cause")]),
    ],
)  # fmt: skip
def test_a_driver_is_told_with_its_cuda_and_what_it_does_not_show(
    tree: Path, built: None, cuda: tuple[int, int] | None, late: float | None, bus: list[str], found: list[Finding]
) -> None:
    shown = tuple(gpu | {"pci_bus_id": f"0000{BUS[gpu['index']]}"} for gpu in gpus())
    seen = NvmlAnswers(shown, 2, driver="555.42", cuda=cuda, late_seconds=late)
    assert list(driver.findings(seen, bus, False)) == found
    assert list(driver.findings(seen, bus, True)) == found[: 2 if late else 1], "a container may have been given some"


def test_a_driver_whose_library_alone_is_missing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tree, {"dev/nvidiactl": ""})
    seen = NvmlAnswers(reason="no library", code=12)
    monkeypatch.delenv("NVIDIA_DRIVER_CAPABILITIES", raising=False)
    in_container = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    comes_with = "install the driver's library, which comes with nvidia-smi"

    def found(confined: bool, cuda: CudaAnswer = UNKNOWN) -> list[Finding]:
        return list(driver.findings(seen, BUS, confined, cuda))

    assert found(False) == [Finding("warning", "driver", ALONE, comes_with)]
    assert found(True) == [Finding("warning", "driver", ALONE, in_container)]
    monkeypatch.setenv("NVIDIA_DRIVER_CAPABILITIES", "compute")
    assert found(True) == [Finding("warning", "driver", ALONE, f"{in_container} (it is 'compute' now)")]
    works = Finding("ok", "GPU", "CUDA shows 2 GPU(s): training works, without readings of them")
    assert found(False, CudaAnswer(True, "", 2)) == [Finding("warning", "driver", ALONE, comes_with), works]
    assert found(False, CudaAnswer(True, "", 0)) == found(False, CudaAnswer(True, "x", 2)) == found(False)
    put(tree, {"usr/lib/wsl/lib/libnvidia-ml.so.1": ""})
    assert found(False) == [
        Finding("warning", "driver", ALONE, "export LD_LIBRARY_PATH=/usr/lib/wsl/lib, where WSL has it")
    ]


# ---- packages ------------------------------------------------------------------------------------


def test_each_state_of_the_module_pynvml_has_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    versions: dict[str, str | None] = {"nvidia-ml-py": "13.0", "pynvml": None, "nvidia-ml-py3": "7.3"}
    place, owner = [Path("/site/pynvml.py")], ["nvidia-ml-py"]
    monkeypatch.setattr(python_packages, "_version", lambda name: versions[name])
    monkeypatch.setattr(python_packages, "_place", lambda: place[0])
    monkeypatch.setattr(python_packages, "_owner", lambda _place: owner[0])

    def found() -> Finding:
        (finding,) = python_packages.nvml_module_findings()
        return finding

    assert found() == Finding("ok", "pynvml", "nvidia-ml-py 13.0")
    versions["pynvml"] = "11.5"
    assert found() == Finding(
        "note", "pynvml",
        "the deprecated package pynvml 11.5 is installed with nvidia-ml-py: it slows down every start of Python",
        "pip uninstall pynvml",
    )  # fmt: skip
    owner[0] = "nvidia-ml-py3"
    assert found() == Finding(
        "warning", "pynvml",
        "the module pynvml comes from nvidia-ml-py3 7.3, not from nvidia-ml-py: readings may be wrong",
        "pip uninstall nvidia-ml-py3; pip install --force-reinstall nvidia-ml-py",
    )  # fmt: skip
    owner[0] = None  # type: ignore[call-overload]
    assert found() == Finding(
        "warning", "pynvml", "the module pynvml is /site/pynvml.py, not that of nvidia-ml-py: readings may be wrong",
        "rename that file, or take its folder off PYTHONPATH",
    )  # fmt: skip
    missing = Finding(
        "error", "pynvml", "nvidia-ml-py is not installed: GPUs cannot be read", "pip install nvidia-ml-py"
    )
    versions["nvidia-ml-py"] = None
    assert found() == missing
    versions["nvidia-ml-py"], place[0] = "13.0", None  # type: ignore[call-overload]
    assert found() == missing


def test_bytecode_that_cannot_be_kept_is_told_with_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    put(site, {"tensorflow/python/framework/ops.py": "", "keras/src/models/model.py": ""})
    python = Interpreter("/envs/a/bin/python", sys.version_info[:3], {}, {}, ())
    monkeypatch.setattr(installed, "intended", lambda: python)
    monkeypatch.setattr(installed, "site", lambda name: path if (path := site / name).exists() else None)
    what = "TensorFlow is compiled again at each start, which takes seconds: there is no compiled bytecode, and {}"
    command = f"/envs/a/bin/python -m compileall -q {site}"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    set_ = what.format("PYTHONDONTWRITEBYTECODE is set")
    assert list(python_packages.bytecode_findings()) == [Finding("note", "TensorFlow", set_, command)]
    monkeypatch.setattr(os, "access", lambda _path, _how: False)
    asks = f"ask the owner of the folder to run: {command}"
    assert list(python_packages.bytecode_findings()) == [Finding("note", "TensorFlow", set_, asks)]
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    locked = what.format(f"{site} cannot be written to")
    assert list(python_packages.bytecode_findings()) == [Finding("note", "TensorFlow", locked, asks)]
    other = Interpreter("/envs/a/bin/python", (sys.version_info[0], sys.version_info[1] + 1, 0), {}, {}, ())
    monkeypatch.setattr(installed, "intended", lambda: other)
    assert list(python_packages.bytecode_findings()) == [], "of another version nothing is known"


def test_tensorflow_is_told_with_its_versions_its_cuda_and_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.3", "pip": "25"}
    packages, info = dict(names), dict[str, Any](is_cuda_build=True, cuda_version="12.5.1", cudnn_version="9")
    places = dict.fromkeys(("tensorflow", "keras", "numpy"), "/site")

    def meant() -> Interpreter:
        return Interpreter("/envs/a/bin/python", (3, 12, 1), packages, places, ())

    def require(_python: str) -> Interpreter:
        if "numpy" not in packages:
            raise interpreter.Unusable("it has no NumPy", "get numpy")
        return meant()

    monkeypatch.setattr(installed, "intended", meant)
    monkeypatch.setattr(interpreter, "require", require)
    monkeypatch.setattr(installed, "build_info", lambda: info)
    monkeypatch.setattr(installed, "with_cuda", lambda: "get all")
    what = "TensorFlow 2.21.0, Keras 3.15.1, Python 3.12.1 (/envs/a/bin/python)"
    sound = Finding("ok", "TensorFlow", f"{what}, built for CUDA 12.5.1 and cuDNN 9")
    assert list(libraries.tensorflow(True)) == [sound]
    packages["tf-nightly"] = "2.22"
    (several, _) = libraries.tensorflow(True)
    assert several == Finding(
        "warning", "TensorFlow",
        "tensorflow and tf-nightly are installed together: each has overwritten files of the other",
        "/envs/a/bin/python -m pip uninstall -y tensorflow tf-nightly && /envs/a/bin/python -m pip install "
        "'tensorflow[and-cuda]>=2.18,<2.22'",
    )  # fmt: skip
    del packages["tf-nightly"]
    packages["keras"] = "3.16.0"
    (newer, _) = libraries.tensorflow(True)
    assert newer == Finding(
        "warning", "TensorFlow", "Keras 3.16.0 is newer than gputui has been tested with (3.10 to 3.15)",
        "it may work; if not, install Keras 3.15",
    )  # fmt: skip
    packages["keras"] = "3.15.1"
    info["is_cuda_build"] = False
    for has_driver, level in ((True, "error"), (False, "note")):
        assert list(libraries.tensorflow(has_driver)) == [
            Finding(level, "TensorFlow", f"{what}, built without CUDA: it cannot use a GPU", "get all")
        ]
    info.clear()
    assert list(libraries.tensorflow(True)) == [
        Finding("note", "TensorFlow", f"{what}; whether it is built with CUDA is not known",
                "gputui doctor --deep imports it and shows this")
    ]  # fmt: skip
    del packages["tensorflow"], packages["keras"]
    (unknown,) = libraries.tensorflow(True)
    assert unknown.what.startswith("TensorFlow of unknown version, Keras of unknown version, Python 3.12.1 (")
    del places["tensorflow"]
    assert [(each.level, each.what) for each in libraries.tensorflow(True)] == [
        ("error", "TensorFlow is not installed")
    ]
    del packages["numpy"]
    assert list(libraries.tensorflow(True)) == [Finding("error", "TensorFlow", "it has no NumPy", "get numpy")]


# ---- the host ------------------------------------------------------------------------------------


def of_host(about: str, count: int = 0) -> list[Finding]:
    return [finding for finding in host_findings.findings(count) if finding.about == about]


def test_the_room_for_runs_and_shared_memory_is_told_with_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [0]
    usage = SimpleNamespace
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage(total=free[0], free=free[0]))
    runs = home / "runs"
    for size, words, level, remedy, shared in (
        (64 * 1024**2 - 1, "64.0 MiB", "error", "free some space, or set GPUTUI_HOME to a folder on another disk",
         "note"),
        (4 * 1024**3, "4.0 GiB", "warning", "checkpoints of a large model need more; set GPUTUI_HOME to keep runs on "
         "another disk", "ok"),
        (5 * 1024**3, "5.0 GiB", "ok", "", "ok"),
    ):  # fmt: skip
        free[0] = size
        assert of_host("runs") == [Finding(level, "runs", f"{words} free in {runs}", remedy)]
        more = "for training on several GPUs start the container with --shm-size=8g or --ipc=host"
        assert of_host("/dev/shm") == [Finding(shared, "/dev/shm", words, more if shared == "note" else "")]
    home.mkdir(exist_ok=True)
    monkeypatch.setattr(os, "access", lambda _path, _how: False)
    assert of_host("runs") == [
        Finding("error", "runs", f"cannot write to {home}", "set GPUTUI_HOME to a folder of your own")
    ]

    def no_shm(path: object) -> Any:
        if path == "/dev/shm":
            raise FileNotFoundError
        return usage(total=1, free=1)

    monkeypatch.setattr("shutil.disk_usage", no_shm)
    assert of_host("/dev/shm") == [
        Finding("note", "/dev/shm", "/dev/shm does not exist", "training on several GPUs may need it")
    ]


def test_the_last_line_about_the_logout_counts_and_a_user_may_linger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_findings, "LOGIND", tmp_path)
    monkeypatch.setattr(host_findings, "LINGER", tmp_path / "linger")
    warning = Finding(
        "warning", "logout",
        "this machine ends your processes when you log out (KillUserProcesses), also runs and the queue",
        "loginctl enable-linger lets them go on",
    )  # fmt: skip
    for files, ends in (
        ({}, False), ({"logind.conf": "[Login]\n KillUserProcesses = ON\n"}, True),
        ({"logind.conf.d/10-a.conf": "KillUserProcesses=no\n"}, False),
        ({"logind.conf.d/20-b.conf": "KillUserProcesses=1\n"}, True),
        ({"logind.conf.d/20-b.txt": "KillUserProcesses=no\n"}, True),
        ({"logind.conf.d/30-c.conf": "#KillUserProcesses=no\nKillExcludeUsers=x\n"}, True),
    ):  # fmt: skip
        put(tmp_path, files)
        assert of_host("logout") == ([warning] if ends else []), files
    put(tmp_path / "linger", {pwd.getpwuid(os.geteuid()).pw_name: ""})
    assert of_host("logout") == []


def test_the_cluster_of_the_environment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert of_host("cluster") == []
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}')
    assert of_host("cluster") == [
        Finding("note", "cluster", "this is worker 1 of 2, at b:2 (TF_CONFIG)",
                "strategy.kind=multi_worker trains on all of them; with another strategy a run is refused here")
    ]  # fmt: skip
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}')
    assert of_host("cluster") == []
    monkeypatch.setenv("TF_CONFIG", "[")
    (finding,) = of_host("cluster")
    assert (finding.level, finding.remedy) == ("warning", "correct it, or unset it: env -u TF_CONFIG gputui ...")
    assert finding.what.startswith("TF_CONFIG is not JSON (")


# ---- the choice of GPUs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, []),
        ({"CUDA_VISIBLE_DEVICES": ""},
         [Finding("note", "no GPU", "CUDA_VISIBLE_DEVICES='' hides all GPUs: the CPU trains", "unset it to use them")]),
        ({"CUDA_VISIBLE_DEVICES": "1"},
         [Finding("note", "GPU", "this job is allocated GPU 1 (CUDA_VISIBLE_DEVICES)",
                  "device.visible=all uses these; other GPUs are refused")]),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, []),
        ({"SLURM_JOB_GPUS": "0,2"},
         [Finding("warning", "GPU", "this job is allocated GPU 0,2 (SLURM_JOB_GPUS), but all 3 are visible to CUDA",
                  "export CUDA_VISIBLE_DEVICES=0,2, or set device.visible to these")]),
        ({"CUDA_VISIBLE_DEVICES": "7"},
         [Finding("error", "GPU", "CUDA_VISIBLE_DEVICES=7 shows no GPU: 7 fits no single GPU",
                  "this machine has 0 (T4), 1 (T4), 2 (T4); CUDA_VISIBLE_DEVICES='' or device.visible=none trains on "
                  "the CPU")]),
    ],
)  # fmt: skip
def test_the_choice_of_gpus_is_told_with_what_to_do(
    tree: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], found: list[Finding]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert list(visible_gpus.findings(NvmlAnswers(gpus(3), 3))) == found
    assert list(visible_gpus.findings(NvmlAnswers())) == [], "there is none to choose"


def test_a_misleading_order_of_gpus_and_those_that_the_job_lacks_are_both_told(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tuple(gpu | {"name": name} for gpu, name in zip(gpus(3), ("T4", "L4", "T4"), strict=True))
    (order,) = visible_gpus.findings(NvmlAnswers(models, 3))
    assert (order.level, order.what.partition(":")[0]) == ("warning", "GPUs of different models")
    monkeypatch.setenv("SLURM_JOB_GPUS", "0,2")
    lacking = Finding(
        "warning", "GPU", "this job is allocated GPU 0,2 (SLURM_JOB_GPUS), but all 3 are visible to CUDA",
        "export CUDA_VISIBLE_DEVICES=0,2, or set device.visible to these",
    )  # fmt: skip
    assert list(visible_gpus.findings(NvmlAnswers(models, 3))) == [order, lacking]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert next(found.what for found in visible_gpus.findings(NvmlAnswers(models, 3))).startswith(
        "CUDA_VISIBLE_DEVICES=1 means GPU 1 (L4)"
    )


def test_gpus_that_have_not_answered_are_expected_and_lost_ones_are_not() -> None:
    seen = NvmlAnswers((*gpus(1), *gpus(2, missing="gone")[1:]), 4)
    assert visible_gpus.all_of(seen) == [*seen.gpus, {"index": 2}, {"index": 3}]
    counts = [visible_gpus.expected(seen, value) for value in (None, "0,1", "1", "3,2", "", "0,9,2")]
    assert counts == [3, 1, 0, 2, 0, 1]


def test_the_reason_why_tensorflow_sees_no_gpu_is_the_first_error_or_else_the_first_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed: list[Finding] = []
    monkeypatch.setattr(no_gpu, "_causes", lambda _log: iter(listed))
    assert (no_gpu.first(), no_gpu.reason()) == (None, "")
    listed += [Finding("ok", "a", "fine"), Finding("note", "b", "noted"), Finding("warning", "c", "warned", "do c")]
    assert no_gpu.reason() == "warned; do c"
    listed += [Finding("error", "d", "broken"), Finding("error", "e", "also broken", "do e")]
    assert no_gpu.reason("log") == "broken"
    assert no_gpu._finding_for(["machine"], "log") == {"what": "broken", "remedy": ""}
    log = "Could not load dynamic library 'libcudnn.so.9'"
    monkeypatch.setattr(installed, "with_cuda", lambda: "get all")
    assert no_gpu._finding_for(["log", "555.42"], log) == {
        "what": "the library libcudnn.so.9 cannot be loaded", "remedy": "get all"
    }  # fmt: skip
    assert no_gpu._finding_for(["log", "555.42"], "nothing") is None
