"""Deaths of a training get their right names, from the texts that TensorFlow, XLA, CUDA and NCCL really leave."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

from gputui.engine.process import known_failures
from gputui.engine.process.ending import Evidence, classify
from gputui.engine.trainer import session
from gputui.engine.trainer.common.training_errors import TrainerError

from tests.support.cases import all_hold

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

# What the log ends with -> outcome, kind, what the message says, what the hint says.
DEATHS = [
    ((*TOO_LARGE, f"E{NOW}cuda_executor.cc:1] Out of memory allocating 1024 bytes.",
      f"E{NOW}cuda_event.cc:53] {CUDA}CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", EVENT),
     "crashed", "gpu_fault", "CUDA_ERROR_ILLEGAL_ADDRESS", "gputui resume"),
    ((f"{OLD}E tensorflow/stream_executor/cuda/cuda_event.cc:48] Error polling for event status: failed to query "
      "event: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure",
      f"{OLD}F tensorflow/core/common_runtime/gpu/gpu_event_mgr.cc:274] Unexpected Event status: 1"),
     "crashed", "gpu_fault", "CUDA_ERROR_LAUNCH_FAILED", "dmesg"),
    ((*TOO_LARGE, EVENT), "crashed", "gpu_fault", "error without a name", "Xid"),
    ((f"E{NOW}stream_executor.cc:283] fakegpu: the GPU is lost", EVENT), "crashed", "gpu_lost", "lost a GPU", "reboot"),
    ((f"E{NOW}cuda_event.cc:53] {CUDA}CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered", EVENT),
     "crashed", "gpu_ecc", "ECC", "--gpu-reset"),
    ((f"{OLD}F tensorflow/stream_executor/lib/statusor.cc:34] Attempting to fetch value instead of handling error "
      "Internal: failed initializing StreamExecutor for CUDA device ordinal 0: Internal: failed call to "
      "cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",),
     "crashed", "gpu_ecc", "ECC", "replace the GPU"),
    (("NVRM: Xid (PCI:0000:5e:00): 79, pid=1234, name=python, GPU has fallen off the bus.",),
     "crashed", "gpu_lost", "lost a GPU", "dmesg"),
    (("NVRM: Xid (PCI:0000:5e:00): 31, pid=1234, name=python, Ch 00000008, MMU Fault", EVENT),
     "crashed", "gpu_xid", "Xid 31", "NVIDIA's list"),
    (TOO_OLD, "error", "driver", "too old", "driver 555"),
    (OLD_CUDNN, "error", "cudnn", "cuDNN 9.1.0 was loaded, and TensorFlow was built with cuDNN 9.3.0",
     "pip install 'nvidia-cudnn-cu12>=9.3.0,<10'"),
    ((f"W{NOW}local_rendezvous.cc:412] Local rendezvous is aborting with status: INTERNAL: {NO_CONFIGS}",),
     "error", "xla", "XLA of TensorFlow 2.", "compile.xla=false"),
    ((f"W{NOW}tf_gpu_runtime_wrappers.cc:40] 'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'",),
     "error", "gpu_code", "no code for this GPU", "TensorFlow 2.21"),
    (("LLVM ERROR: PTX version 8.5 does not support target 'sm_120' (or 'sm_120a'). Minimum required PTX version is "
      "8.7",),
     "error", "xla", "does not support this GPU", "compile.xla=false"),
    (("LLVM ERROR: ptx87 is required for target sm_120",), "error", "xla", "does not support", "compile.xla=false"),
    ((f"E{NOW}cuda_dnn.cc:502] Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED",
      f"E{NOW}cuda_dnn.cc:510] Possibly insufficient driver version: 460.106.0",
      f"W{NOW}op_kernel.cc:1857] OP_REQUIRES failed at conv_ops_impl.h:1221 : FAILED_PRECONDITION: DNN library "
      "initialization failed. Look at the errors above for more details."), "error", "cudnn", "cuDNN", "gputui doctor"),
    ((f"E{NOW}cuda_blas.cc:197] failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED",),
     "error", "cublas", "cuBLAS", "nvidia-smi"),
    (("NCCL INFO: bootstrap", "box:2143:2561 [1] NCCL WARN Error while creating shared memory segment "
      "/dev/shm/nccl-WU88OE (size 9637888), error: No space left on device (28)",
      f"F{NOW}nccl_manager.cc:1] NCCL: unhandled system error (run with NCCL_DEBUG=INFO for details). Set "
      "NCCL_DEBUG=WARN for detail."), "error", "nccl", "NCCL", "--shm-size"),
    ((f"F{NOW}x.cc:1] INTERNAL: libdevice not found at ./libdevice.10.bc",), "error", "xla", "libdevice", "and-cuda"),
    ((f"F{NOW}parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --foo=1",),
     "error", "environment", "--foo=1", "unset XLA_FLAGS"),
    ((f"E{NOW}cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: "
      "CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized",), "error", "device", "fabric manager", "systemctl"),
    (TOO_LARGE, "oom", "out_of_memory", "batch size 64", "input.batch_size=32"),
    ((f"E{NOW}cuda_executor.cc:1] Out of memory allocating 1024 bytes.", EVENT), "oom", "out_of_memory", "batch", "32"),
]  # fmt: skip


def test_the_end_of_a_log_names_the_failure() -> None:
    with all_hold() as cases:
        for lines, outcome, kind, says, does in DEATHS:
            with cases.case(f"{kind}: {lines[-1]}"):
                end = classify(Evidence(-signal.SIGABRT, (*ALL_IS_WELL, *lines, *STACK), 64))
                assert (end.outcome, end.kind) == (outcome, kind)
                assert says in end.message
                assert does in end.hint
                assert NOW not in end.message
                assert "{" not in end.message + end.hint


def test_all_that_is_said_of_each_failure(snapshot: Any) -> None:
    ends = [classify(Evidence(-signal.SIGABRT, (*ALL_IS_WELL, *lines, *STACK), 64)) for lines, *_ in DEATHS]
    said = "\n".join(f"{end.outcome}, {end.kind}: {end.message}\n  {end.hint}" for end in ends)
    assert re.sub(r"(TensorFlow) \d[.\d]*", r"\1 2", said) == snapshot


def test_harmless_log_lines_name_no_failure() -> None:
    assert known_failures.in_log(ALL_IS_WELL) is None
    ecc = "CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"
    for line, is_one in (
        (f"I{NOW}x.cc:1] {ecc}", False), (f"W{NOW}x.cc:1] {ecc}", True), (f"E{NOW}x.cc:1] {ecc}", True),
        (f"F{NOW}x.cc:1] {ecc}", True), (f"{OLD}I x.cc:1] {ecc}", False), (f"{OLD}W x.cc:1] {ecc}", True), (ecc, True),
    ):  # fmt: skip
        assert (known_failures.in_log([line]) is not None) is is_one, line
    end = classify(Evidence(-signal.SIGSEGV, ALL_IS_WELL, 64))
    assert (end.outcome, end.kind) == ("crashed", "crash")


def test_memory_that_was_full_explains_more_than_an_error_without_a_reason() -> None:
    vague = (f"E{NOW}gpu_timer.cc:1] {CUDA}CUDA_ERROR_INVALID_HANDLE: invalid resource handle",)
    assert classify(Evidence(-signal.SIGABRT, vague, 64)).kind == "gpu_code"
    assert classify(Evidence(-signal.SIGABRT, vague, 64, memory_share=0.9)).kind == "out_of_memory"


def test_a_death_before_the_run_was_resumed_is_not_this_one() -> None:
    before = f"E{NOW}cuda_event.cc:53] {CUDA}CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"
    assert classify(Evidence(-signal.SIGSEGV, (before, known_failures.RESUMED, "Epoch 7"), 64)).kind == "crash"
    assert classify(Evidence(-signal.SIGSEGV, (known_failures.RESUMED, before), 64)).kind == "gpu_ecc"


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
    ("NotFoundError", "No algorithm worked!  Error messages:\n  Profiling failure on CUDNN engine 1: UNKNOWN: "
     "CUDNN_STATUS_INTERNAL_ERROR", "error", "cudnn", "input.batch_size"),
    ("FailedPreconditionError", "{{function_node __wrapped__Conv2D}} DNN library initialization failed. Look at the "
     "errors above for more details. [Op:Conv2D]", "error", "cudnn", "gputui doctor"),
    ("InternalError", "Failed copying input tensor from /job:localhost/replica:0/task:0/device:CPU:0 to /job:localhost/"
     "replica:0/task:0/device:GPU:0 in order to run _EagerConst: Dst tensor is not initialized.",
     "oom", "out_of_memory", "with tf.device('/CPU:0')"),
    ("InternalError", "NCCL: unhandled system error (run with NCCL_DEBUG=INFO for details). Set NCCL_DEBUG=WARN for "
     "detail.\n\t [[{{node NcclAllReduce}}]] [Op:__inference_train_function_44874]", "error", "nccl", "--shm-size"),
    ("InternalError", "{{function_node __wrapped__Mul}} 'cuLaunchKernel(...)' failed with 'CUDA_ERROR_INVALID_HANDLE'",
     "error", "gpu_code", "TensorFlow 2.21"),
    ("InternalError", f"Graph execution error:\n\nDetected at node StatefulPartitionedCall defined at (most recent "
     f"call last):\n<stack traces unavailable>\n{NO_CONFIGS}\n\t [[{{{{node StatefulPartitionedCall}}}}]]",
     "error", "xla", "nvidia-cudnn-cu12>=9.24"),
    ("InternalError", "Autotuner could not find any supported configs for HLO: %gemm_fusion_dot.3 = f32[8,8]",
     "error", "xla", "compile.xla=false"),
    ("InvalidArgumentError", "Detected unsupported operations when trying to compile graph __inference_step_7[] on "
     "XLA_GPU_JIT: PyFunc (No registered 'PyFunc' OpKernel for XLA_GPU_JIT devices)", "error", "xla",
     "compile.xla=false"),
    ("InternalError", "fakegpu: the GPU is lost", "crashed", "gpu_lost", "no checkpoint was saved to continue from"),
    ("UnknownError", "a text that nobody knows", "error", "UnknownError", "traceback"),
]  # fmt: skip


def test_of_an_exception_that_is_but_a_consequence_the_log_has_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    fault = of_tensorflow("InternalError", "'cuLaunchKernel(...)' failed with 'CUDA_ERROR_INVALID_HANDLE'")
    log.write_text("\n".join((*TOO_LARGE, *TOO_OLD, f"InternalError: {fault}")))
    outcome, error = session._failed(fault, "training", 64, tmp_path)
    assert (outcome, error["kind"]) == ("error", "driver")
    assert "install driver 555" in error["hint"]
    assert "CUDA_ERROR_INVALID_HANDLE" in error["message"]
    handle = of_tensorflow("FailedPreconditionError", "DNN library initialization failed. Look at the errors above.")
    log.write_text("\n".join((*OLD_CUDNN, f"FailedPreconditionError: {handle}")))
    for raised in (handle, TrainerError("user_code", "train.py:7: it failed here", "-")):
        raised.__cause__ = handle
        _, error = session._failed(raised, "training", 64, tmp_path)
        assert error["message"].startswith("cuDNN 9.1.0 was loaded, and TensorFlow was built with cuDNN 9.3.0")
    log.write_text("\n".join((*TOO_OLD, known_failures.RESUMED)))
    assert session._failed(fault, "training", 64, tmp_path)[1]["kind"] == "gpu_code"


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


def test_a_gpu_that_the_driver_has_lost_is_named_where_the_log_names_nothing() -> None:
    end = classify(Evidence(-signal.SIGABRT, (EVENT, *STACK), 64, lost_gpus=("GPU 3",)))
    assert (end.outcome, end.kind) == ("crashed", "gpu_lost")
    assert "the driver has lost GPU 3" in end.message
    assert "gputui resume" in end.hint


def test_an_error_that_the_driver_has_reported_explains_a_death_that_the_log_does_not() -> None:
    for number, kind, said in ((79, "gpu_lost", "the driver has lost"), (31, "gpu_xid", "error of a GPU (Xid 31)")):
        reported = (f"NVRM: Xid (GPU 1): {number}, in a few words",)
        for log in ((), (EVENT, *STACK)):
            end = classify(Evidence(-signal.SIGABRT, log, 64, driver_errors=reported))
            assert (end.outcome, end.kind) == ("crashed", kind)
            assert said in end.message
            assert "in a few words" in end.message
    clear = classify(Evidence(-signal.SIGABRT, TOO_LARGE, 64, driver_errors=reported))
    assert clear.outcome == "oom", "the log says more"
