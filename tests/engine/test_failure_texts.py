"""Each text by which a failure of TensorFlow, XLA, CUDA or NCCL is known, and the kind of failure that it means."""

from __future__ import annotations

import pytest
from gputui.engine.process import known_failures
from gputui.engine.process.known_failures import FAILURES, RESUMED

TEXTS = {
    ("cache_lock", "error"): (
        "There appears to be a concurrent caching iterator running - cache lockfile already exists "
        "('/a/train_0.lockfile'). If you are sure no other running TF computations are using this cache prefix, "
        "delete the lockfile and re-initialize the iterator. Lockfile contents: Created at: 1795938329",
    ),
    ("environment", "error"): (
        "Unknown flag in XLA_FLAGS: --a=1", "Unknown flags in TF_XLA_FLAGS: --a=1 --b",
    ),
    ("process_limit", "error"): (
        "RuntimeError: can't start new thread", "pthread_create failed: 11", "pthread_create() failed (error=11)",
    ),
    ("gpu_ecc", "crashed"): (
        "CUDA_ERROR_ECC_UNCORRECTABLE", "Uncorrectable ECC error", "an uncorrectable ECC error encountered",
        "uncorrectable NVLink error detected", "Uncorrectable NVLink error", "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "CUDA_ERROR_CONTAINED: a contained error",
    ),
    ("gpu_lost", "crashed"): (
        "the GPU is lost", "NVML_ERROR_GPU_IS_LOST", "GPU has fallen off the bus",
        "NVRM: Xid (PCI:0000:5e:00): 79, pid=1", "Xid (0000:5e:00): 79 x",
    ),
    ("gpu_xid", "crashed"): ("NVRM: Xid (PCI:0000:5e:00): 31, pid=1", "NVRM: Xid (PCI:0000:5e:00): 790"),
    ("device", "error"): (
        "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized", "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "CUDA_ERROR_DEVICES_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable",
    ),
    ("driver", "error"): (
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain.",
        "CUDA driver version is insufficient for CUDA runtime version",
    ),
    ("gpu_code", "error"): (
        "CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution",
    ),
    ("xla", "error"): (
        "LLVM ERROR: Cannot select PTX", "PTX version 8.5 does not support target 'sm_120'",
        "ptx87 is required for target sm_120", "libdevice not found at ./libdevice.10.bc",
        "libdevice is required by this HLO module", "No PTX compilation provider is available",
        "Autotuner could not find any supported configs for HLO: %cudnn-conv.1",
        "could not find any supported configs for HLO: cudnn-conv.1",
        "could not find any supported configs for HLO: %dot.1",
        "Detected unsupported operations when trying to compile graph f[]",
    ),
    ("cudnn", "error"): (
        "Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.",
        "Loaded runtime CuDNN 8.6 but compiled with 8.9", "Could not create cudnn handle: x",
        "could not create cudnn handle", "cudnn library could not create a handle", "DNN library initialization failed",
        "DNN library is not found", "CUDNN_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_ARCH_MISMATCH",
        "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH", "No algorithm worked! Error messages:",
    ),
    ("gpu_fault", "crashed"): (
        "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_INVALID_PC", "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_LAUNCH_FAILED", "an illegal memory access was encountered", "unspecified launch failure",
        "Unexpected Event status: 1",
    ),
    ("gpu_timeout", "crashed"): ("CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"),
    ("out_of_memory", "oom"): (
        "Dst tensor is not initialized.", "OOM when allocating tensor", "Out of memory allocating 1024 bytes.",
        "ran out of memory", "ResourceExhaustedError", "RESOURCE_EXHAUSTED: x", "std::bad_alloc",
        "CUDA_ERROR_OUT_OF_MEMORY", "CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED", "MemoryError",
        "failed to allocate 9 GiB", "Cannot allocate memory", "[Errno 12] cannot allocate memory",
        "failed to map segment from shared object",
    ),
    ("nccl", "error"): (
        "ncclSystemError: x", "unhandled system error", "Error while creating shared memory segment /dev/shm/x",
        "NCCL operation ncclAllReduce(a) failed", "NCCL: internal error", "ncclInternalError", "ncclUnhandledCudaError",
        "ncclRemoteError",
    ),
    ("cublas", "error"): (
        "failed to create cublas handle: x", "Failed to create cuBlas instance", "CUBLAS_STATUS_NOT_INITIALIZED",
    ),
    ("cuda", "error"): ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_UNKNOWN"),
}  # fmt: skip
# Texts of public issues: the lines, the kind, and words of the advice.
CONV = "%cudnn-conv-bias-activation.7 = (f32[64,16,8,8]{3,2,1,0}, u8[0]{0}) custom-call(%a)"
HLO = "%gemm_fusion_dot.3 = f32[8,8]"
ISSUES = (
    ("'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'", "gpu_code", "TensorFlow 2.21"),
    ("'cuLaunchKernel(function, gridX)' failed with 'CUDA_ERROR_INVALID_HANDLE'", "gpu_code", "TensorFlow 2.21"),
    ("LLVM ERROR: PTX version 8.5 does not support target 'sm_120'", "xla", "compile.xla=false"),
    ("No PTX compilation provider is available. Neither ptxas/nvlink nor nvjtlink", "xla", "and-cuda"),
    ("libdevice not found at ./libdevice.10.bc", "xla", "and-cuda"),
    ("INTERNAL: Couldn't invoke ptxas --version", "xla", "and-cuda"),
    ("Failed to launch ptxas", "xla", "and-cuda"),
    ("ptxas exited with non-zero error code 256, output: ptxas fatal", "xla", "and-cuda"),
    (f"Failed to determine best cudnn convolution algorithm for:\n{CONV}\n\nOriginal error: RESOURCE_EXHAUSTED: Out of "
     "memory while trying to allocate 1 bytes", "out_of_memory", ""),
    (f"Failed to determine best cudnn convolution algorithm for:\n{CONV}\n\nOriginal error: INTERNAL: All algorithms "
     "failed: CUDNN_STATUS_NOT_SUPPORTED", "xla", "compile.xla=false"),
    ("INTERNAL: No valid config found!", "xla", "compile.xla=false"),
    (f"Autotuner could not compile any configs for HLO: {CONV}", "xla", "compile.xla=false"),
    (f"Autotuning failed for HLO: {HLO} with error: INTERNAL: x", "xla", "compile.xla=false"),
    (f"Autotuning failed for HLO: {HLO} with error: RESOURCE_EXHAUSTED: Out of memory", "out_of_memory", ""),
    ("Failed to get convolution algorithm. This is probably because cuDNN failed to initialize", "cudnn", "F5"),
    ("No algorithm worked!  Error messages:\n  Profiling failure on CUDNN engine: INTERNAL: No CUDNN plan", "cudnn",
     "--force-reinstall nvidia-cudnn-cu12"),
    ("Dst tensor is not initialized.", "out_of_memory", "with tf.device"),
    ("cuMemAllocAsync failed to allocate 1024 bytes", "out_of_memory", ""),
    ("Failed to call ThenRnnForward with model config: [rnn_mode, rnn_input_mode]", "cudnn", "use_cudnn=False"),
    ("Failed to call DoRnnBackward with model config: [rnn_mode, rnn_input_mode]", "cudnn", "use_cudnn=False"),
    ("CUDNN_STATUS_EXECUTION_FAILED in tensorflow/stream_executor/cuda/cuda_dnn.cc(1957)", "cudnn", "input.batch_size"),
    ("No DNN in stream executor.", "cudnn", "gputui doctor"),
    ("NCCL: unhandled cuda error (run with NCCL_DEBUG=INFO for details)", "nccl", "reduction_to_one_device"),
    ("box:1:2 [0] NCCL WARN Call to ibv_create_qp failed\nNCCL: unhandled system error", "nccl", "ulimit -l unlimited"),
    ("failed call to cuInit: CUDA_ERROR_NOT_FOUND: named symbol not found", "driver", "NVIDIA container toolkit"),
    ("failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED", "cublas", "input.batch_size"),
    ("Blas xGEMMBatched launch failed : a.shape=[1,2,3]", "cublas", "input.batch_size"),
    ("Blas xGEMM launch failed : a.shape=[1,2,3]", "cublas", "input.batch_size"),
    ("Failed to run cuFFT routine cufftSetStream: 1", "cufft", "input.batch_size"),
    ("failed call to cuInit: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "cuda", "doctor --deep"),
    ("CUDA_ERROR_UNKNOWN\nCollective ops is aborted by: INTERNAL: x", "cuda", "doctor --deep"),
    ("Collective ops is aborted by: INTERNAL: x", "collective", "the first error"),
    ("TBNotInstalledError: TensorBoard is not installed, missing implementation for tf.summary.write", "package",
     "pip install tensorboard"),
)  # fmt: skip
VAGUE = (
    "ncclSystemError: x", "unhandled system error",
    "NCCL operation ncclAllReduce(a) failed", "NCCL: internal error", "ncclInternalError", "ncclUnhandledCudaError",
    "ncclRemoteError", "Could not create cudnn handle: x", "could not create cudnn handle",
    "cudnn library could not create a handle", "DNN library initialization failed", "DNN library is not found",
    "CUDNN_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_ARCH_MISMATCH", "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
    "No algorithm worked! Error messages:", "failed to create cublas handle: x", "Failed to create cuBlas instance",
    "CUBLAS_STATUS_NOT_INITIALIZED", "Unexpected Event status: 1", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_UNKNOWN",
)  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "advice"), ISSUES, ids=[text[:40] for text, *_ in ISSUES])
def test_each_text_of_a_public_issue_has_its_name_and_advice(text: str, kind: str, advice: str) -> None:
    for found in (known_failures.in_exception(text), known_failures.in_log(text.splitlines())):
        assert found is not None
        assert (found.kind.name, advice in found.hint) == (kind, True), found.hint


@pytest.mark.parametrize("kind", TEXTS)
def test_each_text_means_its_kind_of_failure(kind: tuple[str, str]) -> None:
    for text in TEXTS[kind]:
        for found in (known_failures.in_exception(f"x\n  {text}"), known_failures.in_log(["begin", text, "end"])):
            assert found is not None, text
            assert (found.kind.name, found.kind.outcome) == kind, text
            assert (found.line, found.kind.vague) == (text, text in VAGUE), text


def test_each_kind_has_a_text_and_other_texts_have_none() -> None:
    texts = [*(text for texts in TEXTS.values() for text in texts), *(text for text, *_ in ISSUES)]
    found = {known_failures.in_exception(text) for text in texts}
    assert {failure.kind for failure in found if failure} == set(FAILURES)
    for text in (
        "an ECC error was corrected", "Xid", "NVRM: loading", "device is busy", "PTX", "libdevice", "a launch failed",
        "memory", "NCCL version 2.21", "NCCL: ", "cudnn", "handle", "CUDA_ERROR_NO_DEVICE", "nothing is available",
        "out of memory: this is not a failure", "out of memory (retrying with less)", "OOM, retrying with smaller",
        "failed to allocate, Will retry", "failed to allocate, will retry", "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
    ):  # fmt: skip
        assert known_failures.in_exception(text) is None, text
        assert known_failures.in_log([text]) is None, text


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["E1 MemoryError", "CUDA_ERROR_UNKNOWN"], "out_of_memory"),
        (["ncclSystemError", "MemoryError"], "out_of_memory"),
        (["MemoryError", "ncclSystemError"], "out_of_memory"),
        (["W0000 x.cc:1] libdevice not found", "CUDA_ERROR_UNKNOWN"], "xla"),
        (["W0000 x.cc:1] libdevice not found", "MemoryError"], "out_of_memory"),
        (["W0000 x.cc:1] OOM when allocating", "CUDA_ERROR_UNKNOWN"], "cuda"),
        (["W0000 x.cc:1] OOM when allocating", "W0000 x.cc:1] No algorithm worked"], "cudnn"),
        (["I0000 x.cc:1] MemoryError"], None),
        (["2024-01-17 15:41:15.073332: I x.cc:1] MemoryError"], None),
        (["2024-01-17 15:41:15.073332: F x.cc:1] MemoryError"], "out_of_memory"),
        (["MemoryError", RESUMED], None),
        (["MemoryError", RESUMED, "ncclSystemError"], "nccl"),
    ],
)
def test_of_several_failures_the_last_specific_one_is_the_reason(lines: list[str], found: str | None) -> None:
    failure = known_failures.in_log(lines)
    assert (failure.kind.name if failure else None) == found


@pytest.mark.parametrize(
    ("lines", "worker"),
    [
        (["gputui: worker 1 (host:1) has ended while TensorFlow connected the workers"], "worker 1 (host:1)"),
        ([" gputui: worker 12 (host:1) has ended while TensorFlow connected the workers\n", "x"], "worker 12 (host:1)"),
        (["gputui: worker 1 (a:1) has ended while TensorFlow connected the workers",
          "gputui: worker 2 (b:1) has ended while TensorFlow connected the workers"], "worker 2 (b:1)"),
        (["gputui: worker 1 (a:1) has ended while TensorFlow connected the workers", RESUMED], ""),
        (["x gputui: worker 1 (a:1) has ended while TensorFlow connected the workers"], ""), ([], ""),
    ],
)  # fmt: skip
def test_the_worker_that_was_lost_before_the_connection_is_named(lines: list[str], worker: str) -> None:
    assert known_failures.lost_peer(lines) == worker
