"""How a run's end is told apart from what is left of it, and failures that are known by their texts."""

from __future__ import annotations

import itertools
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import RESUMED, Ceilings, Ending, Evidence, classify, known_failures, with_hint
from tests.doors.trainer import LOST, TrainerError, session
from tests.support.cases import all_hold

OOM_LINES = [
    "ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024]",
    "E0000 bfc_allocator.cc:512] Allocator ran out of memory trying to allocate 2.00GiB",
    "INTERNAL: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
    "failed call to cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 TiB",
    "MemoryError",
    "OSError: [Errno 12] Cannot allocate memory",
    "W0000 gpu_device.cc:1] failed to allocate 1.5GiB (1610612736 bytes) from device",
]


def end(returncode: int, *log: str, **more: object) -> Ending:
    return classify(Evidence(returncode=returncode, log_tail=log, batch_size=64, **more))  # type: ignore[arg-type]


def test_memory_in_any_words_is_oom_and_names_the_batch_size() -> None:
    with all_hold() as cases:
        for line, returncode in itertools.product(OOM_LINES, (1, -signal.SIGABRT, -signal.SIGSEGV, 134, 139)):
            with cases.case(f"{returncode} {line}"):
                ending = end(returncode, "Epoch 1", line, "and more")
                assert ending.outcome == "oom"
                assert "batch size 64" in ending.message
                assert "input.batch_size=32" in ending.hint


@pytest.mark.parametrize("returncode", [-11, 139])
def test_a_crash_with_the_memory_nearly_full_is_oom(returncode: int) -> None:
    assert end(returncode, memory_share=0.9).outcome == "oom"
    assert end(returncode, memory_share=0.3).outcome == "crashed"
    assert end(returncode).outcome == "crashed"


def test_a_kill_is_oom_only_when_the_kernel_says_so() -> None:
    assert end(-9, kernel_oom_kills=1).outcome == "oom"
    lost = end(-9, f"gputui: {LOST.format(worker='worker 3 (gpu7:12003)')}")
    assert (lost.outcome, lost.kind) == ("error", "peer_lost")
    assert "worker 3 (gpu7:12003) has ended" in lost.message
    killed = end(-9)
    assert killed.outcome == "crashed"
    assert "killed from outside (SIGKILL)" in killed.message
    assert with_hint(killed, is_saved=True).hint == "gputui resume continues from the last checkpoint"
    assert "resume" not in with_hint(killed, is_saved=False).hint
    assert end(-9, "Out of memory").outcome == "crashed"
    assert end(137, kernel_oom_kills=1).outcome == "oom"


@pytest.mark.parametrize("line", [
    "ImportError: libtensorflow_cc.so.2: failed to map segment from shared object",
    "RuntimeError: can't start new thread", "",
])  # fmt: skip
def test_an_address_space_that_is_too_small_is_named(line: str) -> None:
    ending = end(-signal.SIGABRT, line, "more", phase="importing", ceilings=Ceilings(address_space_bytes=2 * 1024**3))
    assert ending.outcome == "oom"
    assert "the address space is limited to 2.0 GiB (ulimit -v)" in ending.message
    assert "ulimit -v unlimited" in ending.hint
    assert "batch_size" not in ending.hint


@pytest.mark.parametrize("phase", ["starting", "importing", "configuring"])
def test_memory_that_runs_out_before_there_is_data_is_the_hosts_and_not_the_batchs(phase: str) -> None:
    ending = end(-9, kernel_oom_kills=1, phase=phase, ceilings=Ceilings(memory_bytes=500 * 1024**2))
    assert ending.outcome == "oom"
    assert "batch" not in ending.message + ending.hint
    assert "500 MiB" in ending.hint
    assert "give the container or job more" in ending.hint


@pytest.mark.parametrize("line", ["RuntimeError: can't start new thread",
                                  "F0000 env.cc:84] Check failed: ret == 0 (11 vs. 0) Thread tf_Compute creation via "
                                  "pthread_create() failed."])  # fmt: skip
def test_the_limit_of_processes_is_named(line: str) -> None:
    ending = end(-signal.SIGABRT, line, "*** Check failure stack trace: ***", ceilings=Ceilings(processes=20))
    assert (ending.outcome, ending.kind) == ("error", "process_limit")
    assert "no more processes and threads can be started: the limit is 20" in ending.message
    assert "ulimit -u" in ending.hint


@pytest.mark.parametrize("variable", ["TF_XLA_FLAGS", "XLA_FLAGS"])
def test_a_flag_that_tensorflow_does_not_know_is_named_with_its_variable(variable: str) -> None:
    line = f"F0000 00:00:1.0 27778 parse_flags_from_env.cc:234] Unknown flags in {variable}: --foo=1 --bar Perhaps you"
    ending = end(1, line)
    assert (ending.outcome, ending.kind) == ("error", "environment")
    assert f"{variable} in the environment" in ending.message
    assert ending.message.endswith(": --foo=1 --bar")
    assert f"unset {variable}" in ending.hint


@pytest.mark.parametrize("returncode", [-signal.SIGTERM, -signal.SIGINT, 143, 130])
def test_a_trainer_that_a_stop_signal_ended_is_stopped(returncode: int) -> None:
    assert end(returncode, "MemoryError").outcome == "stopped"


@pytest.mark.parametrize("returncode", [-9, -11, 1, 0])
def test_what_the_engine_asked_for_comes_before_how_it_died(returncode: int) -> None:
    lines = OOM_LINES[0]
    assert end(returncode, lines, stopped_because="stop").outcome == "stopped"
    timeout = end(returncode, lines, stopped_because="timeout", limit="run.max_minutes=2")
    assert (timeout.outcome, timeout.kind) == ("timeout", "timeout")
    assert "run.max_minutes=2" in timeout.message
    of_job = end(returncode, lines, stopped_because="timeout", limit="run.max_minutes=auto")
    assert "before the time limit of the job was reached" in of_job.message
    assert "gputui resume" in of_job.hint
    hung = {"stopped_because": "hang", "limit": "no step was completed for 5:00 (run.hang_seconds=300)"}
    hang = end(returncode, lines, **hung)
    assert (hang.outcome, hang.kind) == ("timeout", "hang")
    assert "run.hang_seconds=300" in hang.message
    assert "NCCL" not in hang.hint
    assert ["NCCL" in end(returncode, lines, gpus=gpus, **hung).hint for gpus in (1, 2)] == [False, True]
    assert "NCCL_P2P_DISABLE=1" in end(returncode, lines, gpus=2, **hung).hint


def test_every_ending_is_plain_short_text() -> None:
    for returncode in range(-64, 256):
        for because in ("", "stop", "timeout", "hang"):
            ending = end(returncode, stopped_because=because)
            assert ending.outcome in ("ok", "oom", "error", "stopped", "timeout", "crashed")
            assert ending.message
            assert "\n" not in ending.message + ending.hint


def test_a_crash_while_tensorflow_is_imported_says_so() -> None:
    ending = end(-signal.SIGSEGV, phase="importing")
    assert (ending.outcome, ending.message.endswith("while TensorFlow was being imported")) == ("crashed", True), ending
    assert "doctor --deep" in ending.hint


@pytest.mark.parametrize(
    ("because", "limit", "outcome", "message"),
    [
        ("", "", "timeout", "the trainer (pid 7) was killed but does not end"),
        ("stop", "", "stopped", "the trainer (pid 7) was killed but does not end"),
        ("timeout", "run.max_minutes=5", "timeout", "run.max_minutes=5; the trainer (pid 7) was killed but does not"),
    ],
)
def test_a_trainer_that_does_not_end_is_told_before_why_it_was_ended(
    because: str, limit: str, outcome: str, message: str
) -> None:
    ending = end(0, "MemoryError", stopped_because=because, limit=limit, held_pid=7, lost_gpus=["GPU 0"])
    assert (ending.outcome, ending.kind) == (outcome, "held")
    assert ending.message.startswith(message)


@pytest.mark.parametrize(
    ("returncode", "seen", "kind"),
    [
        (-11, {"memory_share": 0.8}, "crash"),
        (-11, {"memory_share": 0.81}, "out_of_memory"),
        (1, {"memory_share": 0.81}, "crash"),
        (-11, {"ceilings": Ceilings(address_space_bytes=3_999_999_999)}, "address_space"),
        (-11, {"ceilings": Ceilings(address_space_bytes=4_000_000_000)}, "crash"),
        (-11, {"lost_gpus": ["GPU 1"], "memory_share": 0.9}, "gpu_lost"),
        (143, {"lost_gpus": ["GPU 1"]}, "killed"),
    ],
)
def test_how_a_trainer_died_is_told_from_what_was_known(returncode: int, seen: dict[str, object], kind: str) -> None:
    assert end(returncode, **seen).kind == kind


# ---- Each text by which a failure of TensorFlow, XLA, CUDA or NCCL is known, and the kind of failu


# Texts of public issues: the lines, the kind, and words of the advice.
CONV = "%cudnn-conv-bias-activation.7 = (f32[64,16,8,8]{3,2,1,0}, u8[0]{0}) custom-call(%a)"
ISSUES = (
    ("'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'", "gpu_code", "TensorFlow 2.21"),
    ("LLVM ERROR: PTX version 8.5 does not support target 'sm_120'", "xla", "compile.xla=false"),
    ("No PTX compilation provider is available. Neither ptxas/nvlink nor nvjtlink", "xla", "and-cuda"),
    (f"Failed to determine best cudnn convolution algorithm for:\n{CONV}\n\nOriginal error: RESOURCE_EXHAUSTED: Out of "
     "memory while trying to allocate 1 bytes", "out_of_memory", ""),
    (f"Failed to determine best cudnn convolution algorithm for:\n{CONV}\n\nOriginal error: INTERNAL: All algorithms "
     "failed: CUDNN_STATUS_NOT_SUPPORTED", "xla", "compile.xla=false"),
    ("Failed to get convolution algorithm. This is probably because cuDNN failed to initialize", "cudnn", "F5"),
    ("Dst tensor is not initialized.", "out_of_memory", "with tf.device"),
    ("Failed to call ThenRnnForward with model config: [rnn_mode, rnn_input_mode]", "cudnn", "use_cudnn=False"),
    ("NCCL: unhandled cuda error (run with NCCL_DEBUG=INFO for details)", "nccl", "reduction_to_one_device"),
    ("box:1:2 [0] NCCL WARN Call to ibv_create_qp failed\nNCCL: unhandled system error", "nccl", "ulimit -l unlimited"),
    ("failed call to cuInit: CUDA_ERROR_NOT_FOUND: named symbol not found", "driver", "NVIDIA container toolkit"),
    ("failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED", "cublas", "input.batch_size"),
    ("failed call to cuInit: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "cuda", "doctor --deep"),
    ("'cuLaunchKernel(function, gridX)' failed with 'CUDA_ERROR_INVALID_HANDLE'", "gpu_code", "TensorFlow 2.21"),
    ("Couldn't invoke ptxas --version", "xla", "CUDA on PATH"), ("Failed to launch ptxas", "xla", "CUDA on PATH"),
    ("ptxas exited with non-zero error code 256, output: ", "xla", "CUDA on PATH"),
    ("Autotuner could not compile any configs for HLO: %a", "xla", "compile.xla=false"),
    ("Autotuning failed for HLO: %a with error: x", "xla", "compile.xla=false"),
    ("No valid config found!", "xla", "compile.xla=false"),
    ("No algorithm worked!  Error messages:\n  Profiling failure on CUDNN engine eng1{}: INTERNAL: No CUDNN plan",
     "cudnn", "force-reinstall"),
    ("CUDNN_STATUS_EXECUTION_FAILED in cuda_dnn.cc(1892)", "cudnn", "use_cudnn=False"),
    ("Blas xGEMM launch failed : a.shape=[1,64,64], b.shape=[1,64,64]", "cublas", "input.batch_size"),
    ("DNN library is not found.", "cudnn", "F5"), ("No DNN in stream executor.", "cudnn", "F5"),
    ("Failed to run cuFFT routine", "cufft", "input.batch_size"),
    ("Collective ops is aborted by: INTERNAL: x", "collective", "the first error"),
    ("TBNotInstalledError: TensorBoard is not installed, missing implementation for tf.summary.write", "package",
     "pip install tensorboard"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "advice"), ISSUES, ids=[text[:40] for text, *_ in ISSUES])
def test_each_text_of_a_public_issue_has_its_name_and_advice(text: str, kind: str, advice: str) -> None:
    for found in (known_failures.in_exception(text), known_failures.in_log(text.splitlines())):
        assert found is not None
        assert (found.kind.name, advice in found.hint) == (kind, True), found.hint


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["E1 MemoryError", "CUDA_ERROR_UNKNOWN"], "out_of_memory"),
        (["MemoryError", "ncclSystemError"], "out_of_memory"),
        (["W0000 x.cc:1] libdevice not found", "CUDA_ERROR_UNKNOWN"], "xla"),
        (["W0000 x.cc:1] libdevice not found", "MemoryError"], "out_of_memory"),
        (["W0000 x.cc:1] OOM when allocating", "CUDA_ERROR_UNKNOWN"], "cuda"),
        (["I0000 x.cc:1] MemoryError"], None),
        (["2024-01-17 15:41:15.073332: F x.cc:1] MemoryError"], "out_of_memory"),
        (["MemoryError", RESUMED], None),
        (["MemoryError", RESUMED, "ncclSystemError"], "nccl"),
    ],
)
def test_of_several_failures_the_last_specific_one_is_the_reason(lines: list[str], found: str | None) -> None:
    failure = known_failures.in_log(lines)
    assert (failure.kind.name if failure else None) == found


# ---- Deaths of a training get their right names, from the texts that TensorFlow, XLA, CUDA and NCC


NOW = "0000 00:00:1795330088.762672   24212 "  # the prefix of TensorFlow 2.21, behind the letter of the level
OLD = "2024-01-17 15:41:15.073332: "  # and of earlier versions, before it
CUDA = "CUDA error: Failed to query event: "
EVENT = f"F{NOW}device_event_mgr.cc:228] Unexpected Event status: 1"
STACK = (
    "*** Check failure stack trace: ***",
    "    @     0x7fd6f7b1d314  absl::lts_20250814::log_internal::LogMessage::SendToLog()",
    "    @     0x7fd6f567e521  tensorflow::EventMgr::PollEvents()::$_0::operator()<>()",
)
ALL_IS_WELL = (
    f"E{NOW}cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: "
    "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
    f"E{NOW}cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR "
    "(303)",
    f"E{NOW}cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when "
    "one has already been registered",
    f"W{NOW}bfc_allocator.cc:310] Allocator (GPU_0_bfc) ran out of memory trying to allocate 8.50GiB with "
    "freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be "
    "performance gains if more memory were available.",
    f"I{NOW}cuda_executor.cc:479] failed to allocate 9.47GiB (10166992896 bytes) from device: RESOURCE_EXHAUSTED: : "
    "CUDA_ERROR_OUT_OF_MEMORY: out of memory (retrying with less)",
)
TOO_LARGE = (
    f"W{NOW}bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.00GiB (rounded to "
    "2147483648)requested by op model/conv/Conv2D",
    f"W{NOW}local_rendezvous.cc:430] Local rendezvous is aborting with status: RESOURCE_EXHAUSTED: OOM when allocating "
    "tensor with shape[256,64,112,112] and type float on /job:localhost/replica:0/task:0/device:GPU:0",
)

TOO_OLD = (
    f"{OLD}W tensorflow/compiler/mlir/tools/kernel_gen/tf_gpu_runtime_wrappers.cc:40] 'cuModuleLoadData(&module, "
    "data)' failed with 'CUDA_ERROR_UNSUPPORTED_PTX_VERSION'",
    f"{OLD}W tensorflow/core/framework/op_kernel.cc:1829] INTERNAL: 'cuLaunchKernel(function, gridX, gridY, gridZ, "
    "blockX, blockY, blockZ, 0, reinterpret_cast<CUstream>(stream), params, nullptr)' failed with "
    "'CUDA_ERROR_INVALID_HANDLE'",
)

OLD_CUDNN = (
    f"E{NOW}cuda_dnn.cc:522] Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.  CuDNN library "
    "needs to have matching major version and equal or higher minor version. If using a binary install, upgrade your "
    "CuDNN library.",
    f"W{NOW}op_kernel.cc:1841] OP_REQUIRES failed at xla_ops.cc:577 : FAILED_PRECONDITION: DNN library initialization "
    "failed. Look at the errors above for more details.",
)
NO_CONFIGS = "Autotuner could not find any supported configs for HLO: %cudnn-conv-bias-activation.6 = custom-call(%a)"

# What the log ends with. The snapshot has what is said of each.
DEATHS = [
    (*TOO_LARGE, f"E{NOW}cuda_executor.cc:1] Out of memory allocating 1024 bytes.",
     f"E{NOW}cuda_event.cc:53] {CUDA}CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", EVENT),
    (*TOO_LARGE, EVENT), (f"E{NOW}stream_executor.cc:283] fakegpu: the GPU is lost", EVENT),
    (f"E{NOW}cuda_event.cc:53] {CUDA}CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered", EVENT),
    ("NVRM: Xid (PCI:0000:5e:00): 79, pid=1234, name=python, GPU has fallen off the bus.",),
    ("NVRM: Xid (PCI:0000:5e:00): 31, pid=1234, name=python, Ch 00000008, MMU Fault", EVENT),
    TOO_OLD, OLD_CUDNN,
    (f"E{NOW}cuda_dnn.cc:502] Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED",
     f"E{NOW}cuda_dnn.cc:510] Possibly insufficient driver version: 460.106.0",
     f"W{NOW}op_kernel.cc:1857] OP_REQUIRES failed at conv_ops_impl.h:1221 : FAILED_PRECONDITION: DNN library "
     "initialization failed. Look at the errors above for more details."),
    ("NCCL INFO: bootstrap", "box:2143:2561 [1] NCCL WARN Error while creating shared memory segment "
     "/dev/shm/nccl-WU88OE (size 9637888), error: No space left on device (28)",
     f"F{NOW}nccl_manager.cc:1] NCCL: unhandled system error (run with NCCL_DEBUG=INFO for details). Set "
     "NCCL_DEBUG=WARN for detail."),
    (f"F{NOW}parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --foo=1",),
    (f"E{NOW}cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: "
     "CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized",),
    TOO_LARGE,
]  # fmt: skip


def test_all_that_is_said_of_each_failure(snapshot: Any) -> None:
    ends = [classify(Evidence(-signal.SIGABRT, (*ALL_IS_WELL, *lines, *STACK), 64)) for lines in DEATHS]
    said = "\n".join(f"{end.outcome}, {end.kind}: {end.message}\n  {end.hint}" for end in ends)
    assert re.sub(r"(TensorFlow) \d[.\d]*", r"\1 2", said) == snapshot


def of_tensorflow(kind: str, text: str) -> Exception:
    """An exception as TensorFlow's are, in a process that does not import it."""
    fault: Exception = type(kind, (Exception,), {"__module__": "tensorflow.python.framework.errors_impl"})(text)
    return fault


EXCEPTIONS = [
    ("NotFoundError", "Graph execution error:\n\nDetected at node model/conv defined at (most recent call last):\n"
     "  File \"train.py\", line 1, in <module>\n\nNo algorithm worked!  Error messages:\n  Profiling failure on "
     "CUDNN engine eng28{}: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 805306368 bytes.\n\t "
     "[[{{node model/conv}}]]",
     "oom", "out_of_memory", "input.batch_size=32"),
    ("FailedPreconditionError", "{{function_node __wrapped__Conv2D}} DNN library initialization failed. Look at the "
     "errors above for more details. [Op:Conv2D]", "error", "cudnn", "gputui doctor"),
    ("InternalError", "Failed copying input tensor from /job:localhost/replica:0/task:0/device:CPU:0 to /job:localhost/"
     "replica:0/task:0/device:GPU:0 in order to run _EagerConst: Dst tensor is not initialized.",
     "oom", "out_of_memory", "with tf.device('/CPU:0')"),
    ("InternalError", "NCCL: unhandled system error (run with NCCL_DEBUG=INFO for details). Set NCCL_DEBUG=WARN for "
     "detail.\n\t [[{{node NcclAllReduce}}]] [Op:__inference_train_function_44874]", "error", "nccl", "--shm-size"),
    ("InternalError", f"Graph execution error:\n\nDetected at node StatefulPartitionedCall defined at (most recent "
     f"call last):\n<stack traces unavailable>\n{NO_CONFIGS}\n\t [[{{{{node StatefulPartitionedCall}}}}]]",
     "error", "xla", "nvidia-cudnn-cu12>=9.24"),
    ("InvalidArgumentError", "Detected unsupported operations when trying to compile graph __inference_step_7[] on "
     "XLA_GPU_JIT: PyFunc (No registered 'PyFunc' OpKernel for XLA_GPU_JIT devices)", "error", "xla",
     "compile.xla=false"),
    ("InternalError", "fakegpu: the GPU is lost", "crashed", "gpu_lost", "no checkpoint was saved to continue from"),
    ("InternalError", "GPU sync failed", "crashed", "gpu_fault", "dmesg may show an Xid"),
    ("UnknownError", "a text that nobody knows", "error", "UnknownError", "traceback"),
]  # fmt: skip


def test_an_exception_has_the_same_name_in_the_trainer_and_in_code_of_the_users_own(tmp_path: Path) -> None:
    with all_hold() as cases:
        for name, text, outcome, kind, does in EXCEPTIONS:
            with cases.case(f"{name}: {text}"):
                fault, theirs = of_tensorflow(name, text), TrainerError("user_code", "train.py:7: it failed here", "-")
                found, error = session._failed(fault, "training", 64, tmp_path)
                assert (found, error["kind"]) == (outcome, kind)
                assert does in error["hint"]
                theirs.__cause__ = fault
                found, error = session._failed(theirs, "building", 64, tmp_path)
                assert (found, error["kind"]) == (outcome, "user_code" if kind == name else kind)
                assert "train.py:7: it failed here" in error["message"]
                theirs.__cause__ = ValueError(text)
                assert session._failed(theirs, "building", 64, tmp_path)[1]["kind"] == "user_code"
