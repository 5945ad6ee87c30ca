"""Known failures of TensorFlow, XLA, CUDA and NCCL: the text by which each is recognized, and what to do about it. The
patterns are messages of TensorFlow 2.21 and of the CUDA libraries that it installs, and of older versions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..interpreter import compatibility, installed
from ..runs.events import Outcome

MEMORY, THREADS = "out_of_memory", "process_limit"  # their messages depend on the limits of the process
CONSEQUENCE = "collective"  # any other error in the log is the reason
XLA = "xla"  # after these failures a training can continue without XLA
LOST_HINT = (
    "reboot; dmesg shows the reason (Xid), often power, heat or the slot; gputui resume continues from the last "
    "checkpoint"
)
RESUMED = "gputui: the run is resumed"  # a line in the log, which continues when a run is resumed
RESUME = "gputui resume continues from the last checkpoint"


@dataclass(frozen=True)
class FailureKind:
    """Named groups of `pattern` may be used in `message` and `hint`, {tensorflow} and {cudnn} in `message`. A `vague`
    one can have many causes, so that any other error in the log is preferred. If `quoted`, the line follows.
    """

    name: str
    pattern: str
    message: str
    hint: str
    outcome: Outcome = "error"
    vague: bool = False
    quoted: bool = True


@dataclass(frozen=True)
class KnownFailure:
    kind: FailureKind
    match: re.Match[str]
    line: str

    @property
    def message(self) -> str:
        """With the versions of the interpreter that trains, if it names any."""
        cudnn = installed.cudnn_version()
        versions = {
            "tensorflow": installed.tensorflow_version() or "of unknown version",
            "cudnn": compatibility.dotted(cudnn) if cudnn else "of unknown version",
        }
        return self.kind.message.format(**self.match.groupdict(), **versions)

    @property
    def hint(self) -> str:
        return self.kind.hint.format(**self.match.groupdict())


_BLACKWELL = f"Blackwell (RTX 50, B200) needs TensorFlow {compatibility.dotted(compatibility.BLACKWELL_TENSORFLOW)}"
_COMPUTED = (
    "often memory is short or the GPU fails: try a smaller input.batch_size; F5 names other programs, dmesg an Xid"
)
FAILURES = (
    FailureKind(
        "environment",
        r"Unknown flags? in (?P<variable>[A-Z_]+): (?P<flags>--\S+(?: --\S+)*)",
        "{variable} in the environment has flags that TensorFlow does not know: {flags}",
        "correct the flags, or: unset {variable}",
        quoted=False,
    ),
    FailureKind(
        "cache_lock",
        r"cache lockfile already exists \('(?P<file>[^']+)'\)",
        "another run fills the cache of a Dataset of your code, or one that was killed has left its lock",
        "if no other run uses it: rm {file}",
    ),
    FailureKind(THREADS, r"can't start new thread|pthread_create(\(\))? failed", "no more threads can be started", ""),
    FailureKind(
        "gpu_ecc",
        r"ECC_UNCORRECTABLE|[Uu]ncorrectable ECC|[Uu]ncorrectable NVLink|NVLINK_UNCORRECTABLE|CUDA_ERROR_CONTAINED",
        "a GPU has an error in its memory or NVLink that ECC could not correct",
        "as root: nvidia-smi --gpu-reset, or reboot; if the error comes back, replace the GPU; " + RESUME,
        "crashed",
    ),
    FailureKind(
        "gpu_lost",
        r"GPU is lost|GPU_IS_LOST|fallen off the bus|Xid\b.*: 79\b",
        "the driver has lost a GPU: it no longer responds",
        LOST_HINT,
        "crashed",
    ),
    FailureKind(
        "gpu_xid",
        r"NVRM: Xid \([^)]*\): (?P<number>\d+)",
        "the NVIDIA driver has reported an error of a GPU (Xid {number})",
        "dmesg has the full report, and NVIDIA's list of Xid errors explains it; " + RESUME,
        "crashed",
    ),
    FailureKind(
        "device",
        r"CUDA_ERROR_SYSTEM_NOT_READY|system not yet initialized",
        "CUDA is not ready: the fabric manager for the NVSwitches of this machine does not run",
        "as root: systemctl start nvidia-fabricmanager; its version must be that of the driver",
    ),
    FailureKind(
        "device",
        r"CUDA_ERROR_DEVICES?_UNAVAILABLE|busy or unavailable",
        "a GPU is not available: another process uses it exclusively, or it has failed",
        "nvidia-smi -q -d COMPUTE shows its mode; as root: nvidia-smi -c DEFAULT lets several processes use it",
    ),
    FailureKind(
        "driver",
        r"UNSUPPORTED_PTX_VERSION|compiled with an unsupported toolchain|driver version is insufficient for CUDA",
        "the NVIDIA driver is too old for TensorFlow's code for this GPU",
        f"install driver {compatibility.HOPPER_DRIVER} or later ({compatibility.BLACKWELL_DRIVER} for Blackwell)",
    ),
    FailureKind(
        "gpu_code",
        r"CUDA_ERROR_INVALID_PTX|CUDA_ERROR_NO_BINARY_FOR_GPU|no kernel image is available",
        "TensorFlow or one of its libraries has no code for this GPU",
        f"{_BLACKWELL}; gputui doctor says what other chips need",
    ),
    FailureKind(  # tensorflow 68710
        "driver",
        r"CUDA_ERROR_NOT_FOUND\b.*named symbol not found",
        "CUDA does not start: its libraries in this container do not fit the driver",
        "in Docker with WSL: update the NVIDIA container toolkit (Docker Desktop brings it), then wsl --shutdown",
    ),
    FailureKind(
        "package",
        r"TBNotInstalledError|TensorBoard is not installed",
        "the package tensorboard is missing, which TensorFlow 2.21 no longer brings and tf.summary needs",
        "pip install tensorboard",
    ),
    FailureKind(
        XLA,
        r"LLVM ERROR:.*PTX|PTX version \S+ does not support target|ptx\d+ is required for target",
        "XLA of this TensorFlow does not support this GPU",
        "set compile.xla=false",
    ),
    FailureKind(
        XLA,
        r"libdevice not found|libdevice is required by this HLO|No PTX compilation provider",
        "XLA does not find a part of the CUDA toolkit (libdevice or ptxas)",
        "install it with pip install 'tensorflow[and-cuda]', or set compile.xla=false",
    ),
    FailureKind(
        XLA,
        r"could not find any supported configs for HLO: %?cudnn-conv",
        "XLA of TensorFlow {tensorflow} has found no way to compute a convolution with cuDNN {cudnn}",
        f"pip install '{compatibility.CUDNN_FOR_XLA}' (which has no code for Volta and Pascal), "
        "or set compile.xla=false",
    ),
    FailureKind(
        XLA,
        r"could not find any supported configs for HLO|Detected unsupported operations when trying to compile graph",
        "XLA cannot compile an operation of this training",
        "set compile.xla=false",
    ),
    FailureKind(
        "cudnn",
        r"Loaded runtime CuDNN(?: library)?:? (?P<loaded>\d[\d.]*\d) but (?:source was )?compiled with:? "
        r"(?P<built>\d[\d.]*\d)",
        "cuDNN {loaded} was loaded, and TensorFlow was built with cuDNN {built}: it cannot use a GPU",
        f"pip install '{installed.CUDNN}>={{built}},<10'; if that is installed, LD_LIBRARY_PATH leads to an older one: "
        "gputui doctor says where",
        quoted=False,
    ),
    FailureKind(
        "gpu_fault",
        r"(?P<name>CUDA_ERROR_ILLEGAL_ADDRESS|CUDA_ERROR_MISALIGNED_ADDRESS|CUDA_ERROR_ILLEGAL_INSTRUCTION"
        r"|CUDA_ERROR_INVALID_PC|CUDA_ERROR_INVALID_ADDRESS_SPACE|CUDA_ERROR_HARDWARE_STACK_ERROR"
        r"|CUDA_ERROR_LAUNCH_FAILED|an illegal memory access was encountered|unspecified launch failure)",
        "a kernel failed on a GPU ({name})",
        "a bug in a library or a hardware fault: dmesg may show an Xid; try compile.xla=false, another driver or "
        "another GPU; " + RESUME,
        "crashed",
    ),
    FailureKind(
        "gpu_timeout",
        r"CUDA_ERROR_LAUNCH_TIMEOUT|the launch timed out and was terminated",
        "the driver ended a kernel that ran too long on a GPU that drives a display",
        "use a GPU without a display, or a smaller input.batch_size; " + RESUME,
        "crashed",
    ),
    FailureKind(
        MEMORY,
        r"Dst tensor is not initialized",
        "an array that is copied to the GPU as a whole does not fit into its memory",
        "in your own code keep the array on the host: with tf.device('/CPU:0'): "
        "tf.data.Dataset.from_tensor_slices(...); else try a smaller input.batch_size",
        "oom",
    ),
    FailureKind(
        MEMORY,
        r"OOM when allocating|Out of memory|out of memory|ResourceExhausted|RESOURCE_EXHAUSTED|std::bad_alloc"
        r"|CUDA_ERROR_OUT_OF_MEMORY|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED|MemoryError"
        r"|failed to allocate|[Cc]annot allocate memory|failed to map segment",
        "out of memory",
        "",
        "oom",
    ),
    FailureKind(
        "nccl",
        r"Error while creating shared memory segment",
        "NCCL, which exchanges gradients between GPUs, has too little shared memory",
        "/dev/shm is too small: docker run --shm-size=1g",
    ),
    FailureKind(
        "nccl",
        r"Call to ibv_\w+ failed",
        "NCCL, which exchanges gradients between GPUs, cannot use InfiniBand",
        "often too little memory may be locked: ulimit -l unlimited (in Slurm PropagateResourceLimitsExcept=MEMLOCK); "
        "NCCL_IB_DISABLE=1 does without InfiniBand",
    ),
    FailureKind(
        "nccl",
        r"ncclSystemError|unhandled system error",
        "NCCL, which exchanges gradients between GPUs, got a system error",
        "NCCL_DEBUG=INFO writes the reason into the log; often /dev/shm is too small: docker run --shm-size=1g",
        vague=True,
    ),
    FailureKind(
        "nccl",
        r"NCCL operation .* failed|NCCL: \w|ncclInternalError|ncclUnhandledCudaError|ncclRemoteError",
        "NCCL, which exchanges gradients between GPUs, has failed",
        "NCCL_DEBUG=INFO writes the reason into the log; try NCCL_P2P_DISABLE=1, or "
        "strategy.communication=reduction_to_one_device",
        vague=True,
    ),
    FailureKind(
        XLA,
        r"ptxas exited with|[Ff]ailed to launch ptxas|[Cc]ould(?: not|n't) invoke ptxas",
        "XLA could not run ptxas, which compiles for the GPU",
        "often an old CUDA on PATH has it: pip install 'tensorflow[and-cuda]' brings a right one; or set "
        "compile.xla=false",
        vague=True,
    ),
    FailureKind(  # of the autotuner, in TensorFlow 2.18 to 2.20 and in 2.21
        XLA,
        r"Failed to determine best cudnn convolution algorithm|No valid config found!"
        r"|could not compile any configs for HLO|Autotuning failed for HLO",
        "XLA has found no way to compute an operation of this training",
        "set compile.xla=false; gputui doctor says which cuDNN XLA needs",
        vague=True,
    ),
    FailureKind(
        "cudnn",
        r"[Cc]ould not create cudnn handle|cudnn library could not create a handle|DNN library initialization failed"
        r"|DNN library is not found|No DNN in stream executor|Failed to get convolution algorithm"
        r"|CUDNN_STATUS_(NOT_INITIALIZED|ARCH_MISMATCH|SUBLIBRARY)",
        "cuDNN could not be started on the GPU",
        "other programs may hold its memory (F5, nvidia-smi), or the installed cuDNN is too old, or has no code for "
        "this GPU: see gputui doctor",
        vague=True,
    ),
    FailureKind(
        "cublas",
        r"create cublas handle|Failed to create cuBlas instance|CUBLAS_STATUS_NOT_INITIALIZED",
        "cuBLAS could not be started on the GPU",
        "other programs may hold its memory: F5 and nvidia-smi name them; device.visible chooses another GPU",
        vague=True,
    ),
    FailureKind(
        "cudnn",
        r"No CUDNN plan",
        "cuDNN has no plan for a convolution: usually its files are damaged or of different versions",
        "pip install --force-reinstall nvidia-cudnn-cu12, and see gputui doctor",
        vague=True,
    ),
    FailureKind(
        "cudnn",
        r"No algorithm worked",
        "cuDNN found no working algorithm for a convolution, usually because memory is short",
        "try a smaller input.batch_size, and see gputui doctor",
        vague=True,
    ),
    FailureKind(
        "cudnn",
        r"Failed to call (Then|Do)Rnn\w+|CUDNN_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)",
        "cuDNN failed to compute a layer",
        "often memory is short: try a smaller input.batch_size; for LSTM and GRU also use_cudnn=False",
        vague=True,
    ),
    FailureKind(
        "cublas",
        r"[Ff]ailed to run cuBLAS routine|CUBLAS_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)|Blas x?GEMM\w* launch failed",
        "cuBLAS failed to compute a matrix product on the GPU",
        _COMPUTED,
        vague=True,
    ),
    FailureKind(
        "cufft", r"[Ff]ailed to run cuFFT routine", "cuFFT failed to compute on the GPU", _COMPUTED, vague=True
    ),
    FailureKind(
        "gpu_fault",
        r"Unexpected Event status|GPU sync failed|PluggableDevice SyncAll failed",
        "a GPU reported an error without a name",
        "dmesg may show an Xid, which means a fault of the hardware or the driver; " + RESUME,
        "crashed",
        vague=True,
    ),
    FailureKind(
        "gpu_code",
        r"CUDA_ERROR_INVALID_HANDLE",
        "CUDA could not start a kernel (CUDA_ERROR_INVALID_HANDLE), usually as there is no code for this GPU",
        f"{_BLACKWELL}; move TextVectorization and lookup layers from the model into Dataset.map",
        vague=True,
    ),
    FailureKind(
        "cuda",
        r"(?P<name>CUDA_ERROR_(?!OUT_OF_MEMORY)\w+)",
        "CUDA reported an error ({name})",
        "see the end of engine.log; gputui doctor --deep tests driver and libraries",
        vague=True,
    ),
    FailureKind(
        CONSEQUENCE,
        r"Collective ops is aborted by",
        "the exchange between replicas was ended by a failure of one of them",
        "engine.log has the first error, perhaps that of another worker",
        vague=True,
    ),
)

# Printed by trainer/cluster/connection_watch.py, which watches the other workers while TensorFlow connects this one.
_LOST_PEER = re.compile(r"^gputui: (?P<worker>worker \d+ \(\S+\)) has ended while TensorFlow connected the workers$")
LOST_PEER_HINT = (
    "its own run or its log says why it ended; then start all workers again, with --resume-if-any if the training "
    "had begun before"
)

# These are not errors: allocators log them while they try several sizes or algorithms, CUDA logs NO_DEVICE if the CPU
# trains on purpose, and peer access may be enabled twice.
_HARMLESS = re.compile(
    r"this is not a failure|retrying with less|[Ww]ill retry|retrying with smaller"
    r"|CUDA_ERROR_NO_DEVICE|PEER_ACCESS_ALREADY_ENABLED"
)
# Log lines of TensorFlow 2.21 (`E0000 00:00:1795330088.760963   24111 file.cc:283] ...`) and of older ones.
_PREFIX = re.compile(
    r"^(?:(?P<level>[IWEF])\d{4} (?:\d\d:\d\d:[\d.]+ +\d+ )?|\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: (?P<old>[IWEF]) )"
    r"(?P<text>.*)$"
)


def in_log(lines: Sequence[str]) -> KnownFailure | None:
    """The last specific error in a log, else the last specific warning (except lack of memory), else the last vague
    error, else the last other warning. Lines without TensorFlow's prefix count as errors.
    """
    newest_first = itertools.takewhile(lambda line: line != RESUMED, reversed(lines))
    entries = [_level(line) for line in newest_first if not _HARMLESS.search(line)]
    errors = list(_failures(text for level, text in entries if level in "EF"))
    warnings = list(_failures(text for level, text in entries if level == "W"))
    # A failed attempt to get memory is also logged as a warning; any other specific warning is the reason.
    reasons = [failure for failure in warnings if failure.kind.name != MEMORY]
    specific = [failure for failure in errors + reasons if not failure.kind.vague]
    failures = specific + errors + warnings
    reason = (failure for failure in failures if failure.kind.name != CONSEQUENCE)
    return next(reason, next(iter(failures), None))


def lost_peer(lines: Sequence[str]) -> str:
    """The worker that ended before TensorFlow had connected the workers, such as `worker 1 (host:port)`."""
    newest_first = itertools.takewhile(lambda line: line != RESUMED, reversed(lines))
    return next((match["worker"] for line in newest_first if (match := _LOST_PEER.match(line.strip()))), "")


def in_exception(text: str) -> KnownFailure | None:
    """Return the failure by the first kind in FAILURES that fits."""
    failures = list(_failures(line for line in text.splitlines() if not _HARMLESS.search(line)))
    return min(failures, key=lambda failure: FAILURES.index(failure.kind), default=None)


def _level(line: str) -> tuple[str, str]:
    match = _PREFIX.match(line)
    return (match["level"] or match["old"], match["text"]) if match else ("E", line)


def _failures(lines: Iterable[str]) -> Iterator[KnownFailure]:
    for line in lines:
        for kind in FAILURES:
            if match := re.search(kind.pattern, line):
                yield KnownFailure(kind, match, line.strip())
                break
