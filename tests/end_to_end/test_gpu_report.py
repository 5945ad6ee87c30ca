"""The report of `make gpu-report` from its begin to its end on two stand-ins for GPUs, in its quick form."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu_report import steps
from benchmarks.gpu_report.__main__ import STEPS
from benchmarks.gpu_report.text import ROOT
from tests.support.fakegpu import FakeGpu


@pytest.mark.parametrize(
    ("capability", "chosen"),
    [
        ((7, 5), ["float32", "float16", "float16 + XLA"]),
        ((9, 0), ["float32", "TF32", "bfloat16 + XLA"]),
        ((12, 0), ["float32", "TF32", "bfloat16"]),
    ],
)
def test_the_quick_report_measures_three_precisions_that_the_chip_computes(
    capability: tuple[int, int], chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = SimpleNamespace(shown=[SimpleNamespace(index=0, compute_capability=capability)])
    monkeypatch.setattr(steps, "this_machine", SimpleNamespace(read=lambda: gpus))
    monkeypatch.setattr(steps, "_xla_aborts", lambda: capability >= (10, 0))
    monkeypatch.setattr(steps, "results", lambda _, runs: [name for name, _ in runs])
    made: dict[str, Any] = {"image_model": lambda **_: {}, "train": lambda *_, **__: None}
    lab: Any = SimpleNamespace(quick=True, size=SimpleNamespace(rounds=1), **made)
    measured: Any = steps.precisions(lab)
    assert measured == [f"{name}, 1" for name in chosen]


# `nvidia-smi`, as far as benchmarks/gpu_report asks it: it reads the stand-in as the real one reads the driver.
SMI = """#!{python}
import sys, time
import pynvml
words = dict(word.partition("=")[::2] for word in sys.argv[1:])
if sys.argv[1] == "topo":
    sys.exit(print("GPU0 X SYS"))
pynvml.nvmlInit()
asked = words["--query-gpu"].split(",")
TELLS = {{
    "name": pynvml.nvmlDeviceGetName,
    "utilization.gpu": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "memory.used": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2).used // 2**20,
    "power.draw": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "clocks.sm": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "temperature.gpu": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
}}
if "noheader" not in words["--format"]:
    print(", ".join(asked))
while True:
    for index in range(pynvml.nvmlDeviceGetCount()):
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        cells = (index if name == "index" else TELLS.get(name, lambda gpu: "[N/A]")(gpu) for name in asked)
        print(", ".join(map(str, cells)), flush=True)
    if "--loop-ms" not in words:
        break
    time.sleep(int(words["--loop-ms"]) / 1000)
"""


# The report. A training whose settings differ from those of an earlier one only in what makes no difference on the
# stand-ins is not repeated: its settings are checked, and its events are those of the earlier one.
REPORT = """\
import sys
from gputui.engine import presets
from benchmarks.gpu_report import __main__ as report
from benchmarks.gpu_report.commands import given

ALIKE = {
    "compile.xla": (True,), "compile.xla_cache": ("auto",), "device.memory_growth": (True,),
    "input.one_batch": (True,), "input.prefetch_to_device": ("auto",), "precision.policy": ("mixed_bfloat16",),
    "precision.tf32": (False, True), "run.profile": ("10-19",), "run.sample_seconds": (0.2, 0.5),
    "strategy.kind": ("single",),
}
trained = {}

class Lab(report.Lab):
    def train(self, settings, *words, preset="quickstart", **more):
        presets.resolve(preset, given(settings)[1::2])
        alike = str(sorted(item for item in settings.items() if item[1] not in ALIKE.get(item[0], ())))
        if alike not in trained:
            trained[alike] = super().train(settings, *words, preset=preset, **more)
        return trained[alike]

report.Lab = Lab
sys.exit(report.main())
"""


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

# Small enough for two cores; the large batch takes more than 64 MiB, the least limit of memory that can be set.
SIZE = ("--minutes", "24", "--model", "mlp", "--pixels", "16", "--width", "0.05", "--batch-size", "16", "--seconds",
        "0.2", "--large-batch-size", "4096", "--steps", "8", "--proof-minutes", "2", "--hang-seconds", "3",
        "--tests", "uuid")  # fmt: skip


@pytest.mark.nightly
@pytest.mark.usefixtures("forked_gpu_trainers")
def test_the_quick_report_is_whole_on_two_gpus_and_names_nobody(fakegpu: FakeGpu, tmp_path: Path) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(SMI.format(python=sys.executable))
    smi.chmod(0o755)
    user = {"PATH": f"{smi.parent}:{os.environ['PATH']}", "USER": "jane.doe", "HOSTNAME": "doe-box", "GPUTUI_WARM": "0"}
    # Clocks are read of GPUs that work at least half of the time: on a busy machine the trainer gives them less to do.
    simulated = "cores=16896 gpm=1 busy=80"
    boxes = fakegpu.environment(tmp_path / "gpus", gpus=2, words=simulated, settings="kernel_us=50")
    path = tmp_path / "report.md"
    done = subprocess.run(
        [sys.executable, "-c", REPORT, "--quick", "--output", str(path), *SIZE],
        cwd=ROOT, env=os.environ | boxes | user, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(rf"{len(STEPS)} steps, about \d+ min\n1/{len(STEPS)} What the doctor says", done.stdout)
    text = path.read_text()
    results = dict(re.findall(r"^\| ([^|]*) \| (ok|failed[^|]*|not measured[^|]*) \| \d+ \|$", text, re.MULTILINE))
    assert results == {step.title: "ok" for step in STEPS.values()}
    sections = dict(re.findall(r"^## (.*)\n\n((?:(?!## ).*\n?)*)", text, re.MULTILINE))
    for name, words in {
        "driver": ["H100"],
        "beside": [r"memory.used \| [1-9]", r"clocks.sm \| \d+ \| 1980.0 \| 1980.0 \| 0.0 \| 0.0"],
        "strategies": ["MFU %", r"\| W \|", "SM MHz", "slowed by power %", "mirrored over all", "no data of the GPU"],
        "copies": [r"A batch is copied in \d"],
        "plain": [r"\| \d+\.\d+ \| \d+\.\d+ \| - \| \d\.\d+ \|"],
        "batches": [r"Predicted for batch 4096 .* [1-9]\d* MiB; measured: [1-9]\d* MiB", "micro_batches=4",
                    r"on_oom=accumulate, memory_limit_mb=\d+ \|", "each batch of 4096 in 2 parts"],
        "several": [r"single \| 1 \| .* \| no \| 0 \|", r"mirrored \| 1 \| .* \| yes \| [1-9]"],
        "precisions": [r"bfloat16 \+ XLA, 1 \|"],
        "xla": ["xla_cache=auto, again"],
        "proof": ["the preset as it is", r"In all: .*trainer is forked: \d"],
        "hang": [r"\| timeout \| hang \|"],
        "tests": ["PASSED .*test_visible_takes_a_uuid"],
    }.items():  # fmt: skip
        for word in words:
            assert re.search(word, sections[STEPS[name].title]), (name, word, sections[STEPS[name].title])
    assert "TensorFlow has its GPUs from a plug-in" in text
    assert "- shares of a step by XProf: " in sections["Not measured here"]
    for secret in (str(tmp_path), str(ROOT), "jane", "doe-box", platform.node()):
        assert not re.search(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", text), secret
