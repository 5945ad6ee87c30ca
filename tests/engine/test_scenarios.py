"""Machines with GPUs as they are met, from the first look to the end: doctor, checks, `started`, diagnosis and ending.

One new process on each machine asks the doctor and the checks, which GPUs train, and NVML for a reading. What a trainer
tells there is made of its answers. Which GPUs TensorFlow really opens is tested in end_to_end/test_gpu_devices.py.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from gputui.engine.diagnosis import diagnose
from gputui.engine.diagnosis.collector import Collector
from gputui.engine.diagnosis.measurements import Measurements
from gputui.engine.process.ending import Evidence, classify
from gputui.engine.runs.events import Diagnosis
from gputui.engine.runs.parsing import recalled

from tests.support import boxes
from tests.support.boxes import Box
from tests.support.cases import all_hold
from tests.support.fakenvml import FakeNvml
from tests.support.judged import OPTIONS
from tests.support.visits import Visits

pytest_plugins = ("tests.support.fakenvml.fixture",)

PROGRAM = """
from dataclasses import asdict
from gputui.engine.telemetry.nvml.connection import Nvml
from gputui.engine.telemetry.nvml.reasons import NvmlUnavailable
here, options = this_machine.read(), presets.defaults(sys.argv[1].split()).options
try:
    nvml = Nvml()
    nvml.read()
    reading = {"gpus": nvml.read()}
except NvmlUnavailable as fault:
    reading = {"gpus": [], "missing": str(fault)}
told = {
    "doctor": [[f.level, f"{f.about}: {f.what}", f.remedy] for f in doctor.examine()],
    "checks": [[f.level, str(f)] for f in checks.check(options, here)],
    "gpus": [asdict(gpu) for gpu in checks.training_gpus(options, here)],
    "cpus": resource_limits.usable_cpus(),
    "reading": reading,
}
"""
GIB = 1024**3
MIRRORED = {"strategy.kind": "mirrored"}
NOW = "0000 00:00:1795330088.760963   24111 "
CUDA = "CUDA error: Failed call to cuEventQuery: "
ECC = f"E{NOW}cuda_event.cc:53] {CUDA}CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"
PTX = "LLVM ERROR: PTX version 8.5 does not support target 'sm_120a'. Minimum required PTX version is 8.7"
TIMED_OUT = f"E{NOW}cuda_event.cc:53] {CUDA}CUDA_ERROR_LAUNCH_TIMEOUT: the launch timed out and was terminated"
NO_CONFIGS = (
    f"W{NOW}local_rendezvous.cc:412] Local rendezvous is aborting with status: INTERNAL: Autotuner could not find any "
    "supported configs for HLO: %cudnn-conv-bias-activation.6 = (f32[128,16,12,12]{3,2,1,0}, u8[0]{0}) "
    'custom-call(%divide.3, %multiply.72), custom_call_target="__cudnn$convBiasActivationForward"'
)
TOO_OLD_CUDNN = (
    f"E{NOW}cuda_dnn.cc:522] Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.  CuDNN library "
    "needs to have matching major version and equal or higher minor version. If using a binary install, upgrade your "
    "CuDNN library.",
    f"W{NOW}op_kernel.cc:1841] OP_REQUIRES failed at xla_ops.cc:577 : FAILED_PRECONDITION: DNN library initialization "
    "failed. Look at the errors above for more details.",
)
NO_HANDLE = f"E{NOW}cuda_dnn.cc:502] Could not create cudnn handle: CUDNN_STATUS_ARCH_MISMATCH"
NOT_READY = f"E{NOW}cuda_platform.cc:52] failed call to cuInit: CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized"
XLA_ABORTS = "XLA of this TensorFlow crashes on compute capability 12.0"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A machine, and what is said there. Words are parts of sentences; of the doctor and the checks they are those of
    the only error or warning, which is `level`, and empty where there is none.

    `limit` is the share of a GPU's memory that TensorFlow may take, of which it takes `peak`. `more` are remedies that
    use more GPUs, `without` options that no remedy changes. Without a verdict no training begins there.
    """

    box: Box
    settings: Mapping[str, Any] = field(default_factory=dict)
    level: str = ""
    doctor: str = ""
    checks: str = ""
    trains: tuple[int, ...] = (0,)
    actual: Mapping[str, Any] = field(default_factory=dict)
    limit: float = 0.94
    peak: float = 0.4
    busy: float = 0.97
    verdict: str = "compute_bound"
    says: str = ""
    more: tuple[Mapping[str, Any], ...] = ()
    remedy: Mapping[str, Any] | None = None
    without: tuple[str, ...] = ()
    end: Mapping[str, Any] | None = None
    ending: tuple[str, str, str] = ("", "", "")  # outcome, kind, words of message and hint


SCENARIOS: dict[str, Scenario] = {
    "8 x H100, single": Scenario(
        box=boxes.H100_R570, more=({"device.visible": "all"} | MIRRORED,),
        remedy={"precision.policy": "mixed_bfloat16"},
        without=("device.gpu_thread_mode", "compile.steps_per_execution"),
    ),
    "Slurm has given 4,5": Scenario(box=boxes.SLURM, trains=(4,), more=(MIRRORED,), without=("device.visible",)),
    "Slurm has given 4,5, and GPU 0 is named": Scenario(
        box=boxes.SLURM, settings={"device.visible": [0]}, checks="this job is allocated GPU 4,5", level="error",
        verdict="",
    ),
    "MIG with two instances": Scenario(
        box=boxes.MIG, peak=0.98, verdict="memory_limit", says="98 % of the memory that TensorFlow may take",
        without=("input.batch_size", "strategy.kind"),
    ),
    "a container without NVML, with half a CPU": Scenario(
        box=boxes.CONTAINER_WITH_A_QUOTA, settings=MIRRORED, level="warning", trains=(),
        doctor="libnvidia-ml.so.1 is missing: nothing is known of the GPUs",
        says="measured on the host alone", remedy={"precision.policy": "mixed_bfloat16"},
        without=("strategy.kind", "input.batch_size"),
    ),
    "a laptop whose display is in use": Scenario(
        box=boxes.LAPTOP, level="warning", doctor="1.2 GiB of 8.0 GiB are already in use", limit=0.65, peak=0.98,
        checks="1.2 GiB of 8.0 GiB are already in use",
        verdict="memory_limit", says="98 % of the memory that TensorFlow may take", without=("input.batch_size",),
        end={"log_tail": [TIMED_OUT]}, ending=("crashed", "gpu_timeout", "use a GPU without a display"),
    ),
    "V100": Scenario(
        box=boxes.V100, level="error", doctor="cuDNN 9.28 has no code for compute capability 7.0",
        checks="nvidia-cudnn-cu12>=9.3,<9.11", verdict="",
        end={"log_tail": [NO_HANDLE]}, ending=("error", "cudnn", "see gputui doctor"),
    ),
    "V100 with its cuDNN": Scenario(
        box=boxes.V100_WITH_ITS_CUDNN, level="warning", doctor="fails at convolutions with cuDNN 9.10",
        checks="set compile.xla=false", remedy={"precision.policy": "mixed_float16"},
    ),
    "T4 with cuDNN 9.5": Scenario(
        box=boxes.T4_WITH_AN_OLD_CUDNN, level="warning", doctor="fails at convolutions with cuDNN 9.5", verdict="",
        checks="the training then begins again without XLA; pip install 'nvidia-cudnn-cu12>=9.24,<10'",
        end={"log_tail": [NO_CONFIGS]}, ending=("error", "xla", "pip install 'nvidia-cudnn-cu12>=9.24,<10'"),
    ),
    "T4 with cuDNN 9.1": Scenario(
        box=boxes.T4_WITH_TOO_OLD_A_CUDNN, level="error", doctor="loads cuDNN 9.1, and was built with 9.3", verdict="",
        checks="pip install 'nvidia-cudnn-cu12>=9.24,<10'",
        end={"log_tail": TOO_OLD_CUDNN}, ending=("error", "cudnn", "pip install 'nvidia-cudnn-cu12>=9.3.0,<10'"),
    ),
    "RTX 5090": Scenario(
        box=boxes.RTX_5090, actual={"jit_compile": False, "xla_reason": XLA_ABORTS}, busy=0.4, verdict="underfilled",
        remedy={"device.gpu_thread_mode": "gpu_private"}, without=("compile.xla",),
        end={"log_tail": [PTX]}, ending=("error", "xla", "compile.xla=false"),
    ),
    "GH200": Scenario(
        box=boxes.GH200, level="error", doctor="built without CUDA: it cannot use a GPU",
        checks="with CUDA from its source", verdict="",
    ),
    "no fabric manager": Scenario(
        box=boxes.NO_FABRIC_MANAGER, level="error", doctor="CUDA does not start (CUDA_ERROR_SYSTEM_NOT_READY)",
        end={"log_tail": [NOT_READY], "phase": "configuring"},
        ending=("error", "device", "systemctl start nvidia-fabricmanager"), verdict="",
    ),
    "NCCL hangs": Scenario(
        box=boxes.H100_R570, settings=MIRRORED, trains=tuple(range(8)), without=("strategy.kind",),
        end={"stopped_because": "hang", "limit": "no step was completed for 5:00 (run.hang_seconds=300)"},
        ending=("timeout", "hang", "NCCL_P2P_DISABLE=1"),
    ),
    "an ECC error in mid-run": Scenario(
        box=boxes.H100_WITH_ECC_ERRORS, level="warning", doctor="2 memory error(s) that could not be corrected",
        more=({"device.visible": "all"} | MIRRORED,), end={"log_tail": [ECC]},
        ending=("crashed", "gpu_ecc", "gputui resume continues"),
    ),
}  # fmt: skip
CALM = ("memory", "/dev/shm", "runs", "CPU", "pynvml")  # of the machine that runs the tests


class Met:
    """What one process on the machine was told."""

    def __init__(self, scenario: Scenario, visits: Visits) -> None:
        self.of = scenario
        settings = " ".join(f"{key}={json.dumps(value).strip(chr(34))}" for key, value in scenario.settings.items())
        self._told = visits.visit(scenario.box, PROGRAM, settings)
        self.gpus: list[dict[str, Any]] = self._told["gpus"]
        self.cpus: int = self._told["cpus"]

    def bad(self, who: str) -> list[tuple[str, str]]:
        """Errors and warnings of the doctor or the checks."""
        found = [(level, " ".join(words)) for level, *words in self._told[who]]
        return [(level, text) for level, text in found if level in ("error", "warning") and not text.startswith(CALM)]

    @property
    def whole_bytes(self) -> int:
        """A GPU's memory; of one that the driver does not tell, what CUDA would."""
        return int(self.gpus[0]["memory_total_bytes"]) if self.gpus else 16 * GIB

    def started(self) -> dict[str, Any]:
        limit = int(self.of.limit * self.whole_bytes)
        known = self.gpus or [{"uuid": None, "pci_bus_id": "0000:01:00.0", "compute_capability": [9, 0]}]
        devices = [
            {"device": f"/device:GPU:{place}", "memory_limit_bytes": limit}
            | {key: gpu[key] for key in ("uuid", "pci_bus_id", "compute_capability")}
            for place, gpu in enumerate(known)
        ]
        return {
            "type": "started", "gpu_devices": devices, "gpus": [gpu["uuid"] or gpu["pci_bus_id"] for gpu in devices],
            "devices": [gpu["device"] for gpu in devices], "replicas": len(devices), "cpus": self.cpus,
            "compute_capability": devices[0]["compute_capability"], "train_samples": 60_000, "global_batch_size": 64,
            "actual": {"jit_compile": True, "memory_growth": True} | dict(self.of.actual),
        }  # fmt: skip

    def reading(self) -> dict[str, Any]:
        """While it trains: nobody else uses a GPU."""
        mine = {gpu["index"] for gpu in self.gpus}
        told = dict(self._told["reading"])
        told["gpus"] = [
            gpu | {"busy": gpu["busy"] and (self.of.busy if gpu["index"] in mine else 0.0)} for gpu in told["gpus"]
        ]
        return {"type": "gpu"} | told

    def measured(self) -> Measurements:
        """After some moments of training."""
        peak = int(self.of.peak * self.of.limit * self.whole_bytes)
        memory = {"devices": {"GPU:0": {"current_bytes": peak, "peak_bytes": peak}}, "type": "allocator"}
        steps = [
            {"type": "progress", "step": 20 * count, "step_ms_p50": 50.0, "step_ms_p95": 55.0, "input_wait": 0.01,
             "python_share": 0.01} for count in range(1, 40)
        ]  # fmt: skip
        training = {"type": "phase", "phase": "training"}
        collector = Collector(OPTIONS | dict(self.of.settings), self.of.box.variables.get("CUDA_VISIBLE_DEVICES"))
        events = [self.started(), training, *[self.reading()] * 30, memory, *steps]
        collector.feed(recalled({"t": float(second)} | event) for second, event in enumerate(events))
        return collector.measurements()

    def diagnosis(self) -> Diagnosis:
        return diagnose(self.measured())


@pytest.fixture(scope="module")
def met(nvml: FakeNvml, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Met]:
    visits = Visits(nvml, tmp_path_factory.mktemp("machines"))
    found = {name: Met(scenario, visits) for name, scenario in SCENARIOS.items()}
    visits.end()
    return found


def _training(met: dict[str, Met]) -> list[tuple[str, Met]]:
    return [(name, there) for name, there in met.items() if there.of.verdict]


def test_the_doctor_and_the_checks_complain_of_what_is_wrong_and_of_nothing_else(met: dict[str, Met]) -> None:
    with all_hold() as cases:
        for name, there in met.items():
            for who, words in (("doctor", there.of.doctor), ("checks", there.of.checks)):
                with cases.case(f"{name}: {who}"):
                    found = there.bad(who)
                    assert [level for level, _ in found] == ([there.of.level] if words else []), found
                    assert all(words in text for _, text in found), found


def test_only_gpus_that_train_are_told(met: dict[str, Met]) -> None:
    with all_hold() as cases:
        for name, there in met.items():
            with cases.case(name):
                assert tuple(gpu["index"] for gpu in there.gpus) == there.of.trains
        with cases.case("the CPUs of a container"):
            assert met["a container without NVML, with half a CPU"].cpus == 1


def test_the_diagnosis_speaks_of_the_gpus_that_train_and_proposes_what_can_help_there(met: dict[str, Met]) -> None:
    with all_hold() as cases:
        for name, there in _training(met):
            with cases.case(name):
                of, found = there.of, there.diagnosis()
                assert found.verdict == of.verdict, found
                assert of.says in " | ".join([found.sentence, *(str(row["text"]) for row in found.evidence)]), found
                changes = [dict(remedy["changes"]) for remedy in found.remedies]
                assert [change for change in changes if "strategy.kind" in change] == [dict(one) for one in of.more]
                assert of.remedy is None or dict(of.remedy) in changes, changes
                assert not [change for change in changes if set(of.without) & set(change)], changes


def test_what_the_driver_does_not_tell_makes_a_diagnosis_less_certain(met: dict[str, Met]) -> None:
    hidden = ("MIG with two instances", "a container without NVML, with half a CPU")
    for name, there in _training(met):
        measured = there.measured()
        assert measured.unseen is (name in hidden), name
        assert (measured.busy_mean is None) is (name in hidden), name


def test_the_end_has_its_own_name_and_says_what_to_do(met: dict[str, Met]) -> None:
    with all_hold() as cases:
        for name, there in met.items():
            if there.of.end is None:
                continue
            with cases.case(name):
                known: dict[str, Any] = {"returncode": -signal.SIGABRT, "log_tail": (), "batch_size": 64}
                end = classify(Evidence(**known | {"gpus": len(there.of.trains)} | dict(there.of.end)))
                outcome, kind, words = there.of.ending
                assert (end.outcome, end.kind) == (outcome, kind), end
                assert words in end.message + end.hint, end
