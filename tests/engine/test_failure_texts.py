"""Each text by which a failure of TensorFlow, XLA, CUDA or NCCL is known, and the kind of failure that it means."""

from __future__ import annotations

import pytest
from gputui.engine.process import known_failures
from gputui.engine.process.known_failures import FAILURES, RESUMED

TEXTS = {
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
VAGUE = (
    "NCCL operation ncclAllReduce(a) failed", "NCCL: internal error", "ncclInternalError", "ncclUnhandledCudaError",
    "ncclRemoteError", "Could not create cudnn handle: x", "could not create cudnn handle",
    "cudnn library could not create a handle", "DNN library initialization failed", "DNN library is not found",
    "CUDNN_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_ARCH_MISMATCH", "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
    "No algorithm worked! Error messages:", "failed to create cublas handle: x", "Failed to create cuBlas instance",
    "CUBLAS_STATUS_NOT_INITIALIZED", "Unexpected Event status: 1", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_UNKNOWN",
)  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
def test_each_text_means_its_kind_of_failure(kind: tuple[str, str]) -> None:
    for text in TEXTS[kind]:
        for found in (known_failures.in_exception(f"x\n  {text}"), known_failures.in_log(["begin", text, "end"])):
            assert found is not None, text
            assert (found.kind.name, found.kind.outcome) == kind, text
            assert (found.line, found.kind.vague) == (text, text in VAGUE), text


def test_each_kind_has_a_text_and_other_texts_have_none() -> None:
    found = {known_failures.in_exception(text) for texts in TEXTS.values() for text in texts}
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
        (["MemoryError", "ncclSystemError"], "nccl"),
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
