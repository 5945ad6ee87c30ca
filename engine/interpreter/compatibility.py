"""Which versions of TensorFlow, CUDA, cuDNN, driver and compute capability fit together, in one table with the sources.
docs/troubleshooting.md shows ROWS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..finding import Finding
from . import installed, supported_versions
from .installed import Version

TURING_CAPABILITY = (7, 5)
BLACKWELL_CAPABILITY = (10, 0)
# By version of TensorFlow: the cuDNN that its packages on PyPI were built with, and the oldest with which XLA is known
# to compute convolutions. Convolutions failed with cuDNN 9.3 and 9.5.1; nothing is known of those up to 9.23.
_BUILT_WITH_CUDNN = {(2, 18): (9, 3), (2, 19): (9, 3), (2, 20): (9, 3), (2, 21): (9, 3)}
_XLA_NEEDS_CUDNN = {(2, 21): (9, 24)}
_CUDNN_FROM_TURING = (9, 11)  # the first without code for older chips
# The first CUDA whose PTX (8.7) knows all Blackwell chips.
_BLACKWELL_CUDA = (12, 8)
# By version of CUDA: its PTX, and the first driver for Linux that knows it (NVIDIA's CUDA and PTX release notes).
_PTX = {(12, 3): (8, 3), (12, 4): (8, 4), (12, 5): (8, 5), (12, 6): (8, 5), (12, 8): (8, 7), (12, 9): (8, 8)}
_DRIVERS = {(12, 3): 545, (12, 4): 550, (12, 5): 555, (12, 6): 560, (12, 8): 570, (12, 9): 575}
HOPPER_DRIVER, BLACKWELL_DRIVER = _DRIVERS[12, 5], _DRIVERS[_BLACKWELL_CUDA]
# By version of TensorFlow: the newest target of the PTX in its packages, if that is no help to later chips: PTX of an
# "a" target runs on Hopper alone. 2.21 has `.target sm_90`, which drivers compile for Blackwell.
_LAST_PTX = {(2, 18): "sm_90a", (2, 19): "sm_90a", (2, 20): "sm_90a"}
BLACKWELL_TENSORFLOW = (2, 21)
WITHOUT_XLA = "set compile.xla=false"


def dotted(version: Sequence[int]) -> str:
    """9.3, of a version or a compute capability."""
    return ".".join(map(str, version))


def _package(least: Version, below: Version | None = None) -> str:
    return f"{installed.CUDNN}>={dotted(least)},<{dotted(below) if below else least[0] + 1}"


_NEWEST = max(_XLA_NEEDS_CUDNN)
CUDNN_FOR_XLA = _package(_XLA_NEEDS_CUDNN[_NEWEST])
CUDNN_FOR_OLD_CHIPS = _package(_BUILT_WITH_CUDNN[_NEWEST], _CUDNN_FROM_TURING)


@dataclass(frozen=True)
class Row:
    """What must fit together, what is needed for it, what fails otherwise, and the remedy."""

    what: str
    needs: str
    otherwise: str
    remedy: str
    sources: Mapping[str, str]  # name and address


_GITHUB = "https://github.com"
_SUPPORT_MATRIX = "https://docs.nvidia.com/deeplearning/cudnn/latest/support-matrix/index.html"
ROWS: tuple[Row, ...] = (
    Row(
        "TensorFlow {}.{} to {}.{}".format(*min(_BUILT_WITH_CUDNN), *max(_BUILT_WITH_CUDNN)),
        f"cuDNN {dotted(_BUILT_WITH_CUDNN[_NEWEST])} or a later 9.x: it is built with CUDA 12.5 and this cuDNN",
        '"Loaded runtime CuDNN library: ... but source was compiled with: ...", then "DNN library initialization '
        'failed": no training on a GPU works',
        f"`pip install '{_package(_BUILT_WITH_CUDNN[_NEWEST])}'`; if LD_LIBRARY_PATH leads to an older copy: unset it",
        {
            "tensorflow 60913": f"{_GITHUB}/tensorflow/tensorflow/issues/60913",
            "docker-python 1435": f"{_GITHUB}/Kaggle/docker-python/issues/1435",
            "TensorFlow's extra and-cuda": "https://pypi.org/project/tensorflow/",
        },
    ),
    Row(
        f"TensorFlow {dotted(_NEWEST)} with XLA (which `compile.xla=auto` uses on one GPU)",
        f"cuDNN {dotted(_XLA_NEEDS_CUDNN[_NEWEST])} or later for convolutions: they fail with 9.3 and 9.5.1, and the "
        "versions between are not known to work",
        '"Autotuner could not find any supported configs for HLO: %cudnn-conv-bias-activation": with `auto` the run '
        "begins again without XLA, with `true` it ends",
        f"`pip install '{CUDNN_FOR_XLA}'`, or `compile.xla=false`",
        {
            "deep-learning-containers 6418": f"{_GITHUB}/aws/deep-learning-containers/pull/6418",
            "HGQ2 14": f"{_GITHUB}/calad0i/HGQ2/issues/14",
        },
    ),
    Row(
        "Pascal, Volta (compute capability 6.x, 7.0)",
        f"cuDNN below {dotted(_CUDNN_FROM_TURING)}, as later ones have no code for them",
        "convolutions and other layers of cuDNN crash",
        f"`pip install '{CUDNN_FOR_OLD_CHIPS}'`; with TensorFlow {dotted(_NEWEST)} also `compile.xla=false`",
        {
            "tensorflow-feedstock 457": f"{_GITHUB}/conda-forge/tensorflow-feedstock/issues/457",
            "cuDNN 9.10.2": _SUPPORT_MATRIX,
        },
    ),
    Row(
        "Pascal, Volta, Maxwell",
        "driver 580 or older: later ones do not know these chips",
        "the driver sees no GPU, or is not loaded",
        "install driver 580",
        {
            "hackaday.com": "https://hackaday.com/2025/12/26/nvidia-drops-pascal-support-on-linux-causing-chaos-on-arch-"
            "linux/"
        },
    ),
    Row(
        "TensorFlow built with CUDA 12",
        "driver 525.60.13 or later",
        "TensorFlow sees no GPU",
        "update the driver",
        {"NVIDIA": "https://docs.nvidia.com/deploy/cuda-compatibility/"},
    ),
    Row(
        "Hopper (9.0)",
        f"driver {HOPPER_DRIVER} or later: parts of TensorFlow {dotted(_NEWEST)} exist for it as PTX "
        f"{dotted(_PTX[12, 5])} only, which the driver compiles",
        "the first operations fail with `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`",
        "update the driver, or install the cuda-compat package",
        {"colabtools 5667": f"{_GITHUB}/googlecolab/colabtools/issues/5667"},
    ),
    Row(
        "Blackwell (10.0, 12.0)",
        f"TensorFlow {dotted(BLACKWELL_TENSORFLOW)}, and driver {BLACKWELL_DRIVER} or later: the packages of 2.18 to "
        f"2.20 have their kernels for later chips than 8.9 as PTX for {_LAST_PTX[2, 20]} only, which is Hopper's",
        "`CUDA_ERROR_INVALID_PTX`, then `CUDA_ERROR_INVALID_HANDLE` at the first operation; an older driver does not "
        "know the chip",
        f"install TensorFlow {dotted(BLACKWELL_TENSORFLOW)}; update the driver (unofficial packages of 2.20 that are "
        "built with CUDA 12.8 work, too)",
        {
            "tensorflow 99592": f"{_GITHUB}/tensorflow/tensorflow/issues/99592",
            "tensorflow 89272": f"{_GITHUB}/tensorflow/tensorflow/issues/89272",
            "cuDNN 9.10.2": _SUPPORT_MATRIX,
        },
    ),
    Row(
        "Blackwell with XLA",
        f"a TensorFlow built with CUDA {dotted(_BLACKWELL_CUDA)} or later; {dotted(_NEWEST)} is built with 12.5",
        '"LLVM ERROR: PTX version 8.5 does not support target": the process is aborted',
        "leave `compile.xla` at `auto`, which does not use XLA there",
        {
            "tensorflow 111958": f"{_GITHUB}/tensorflow/tensorflow/issues/111958",
            "xla 47978": f"{_GITHUB}/openxla/xla/issues/47978",
        },
    ),
    Row(
        "a GPU in an ARM machine (GH200, GB10)",
        "a TensorFlow that is built with CUDA: the packages on PyPI are not",
        "only the CPU trains",
        supported_versions.WITH_CUDA_ON_ARM,
        {"tensorflow 121157": f"{_GITHUB}/tensorflow/tensorflow/issues/121157"},
    ),
)


# ---- cuDNN --------------------------------------------------------------------------------------


def cudnn_built_with() -> Version | None:
    """Return the cuDNN of the installed TensorFlow, from its files or else from the table."""
    version = installed.two_numbers(installed.build_info().get("cudnn_version"))
    return version or _BUILT_WITH_CUDNN.get(installed.tensorflow_numbers() or (0, 0))


def old_cudnn(chips: Sequence[Sequence[int] | None], version: Version | None = None) -> Finding | None:
    """TensorFlow loads an older cuDNN than it was built with. `version` is of one that pip has not installed."""
    version, built = version or installed.cudnn_version(), cudnn_built_with()
    if version is None or built is None or version >= built:
        return None
    loads = f"TensorFlow loads cuDNN {dotted(version)}{_from()}"
    what = f"{loads}, and was built with {dotted(built)}: it cannot use a GPU"
    return Finding("error", "CUDA", what, right_cudnn(chips))


def xla_fails(chips: Sequence[Sequence[int] | None], version: Version | None = None) -> Finding | None:
    """XLA of the installed TensorFlow cannot be expected to compute convolutions with this cuDNN. For chips before
    Turing no cuDNN with code for them is new enough.
    """
    tensorflow, version = installed.tensorflow_numbers(), version or installed.cudnn_version()
    needed = _XLA_NEEDS_CUDNN.get(tensorflow or (0, 0))
    if tensorflow is None or version is None or needed is None or version >= needed:
        return None
    fails = f"XLA of TensorFlow {dotted(tensorflow)} fails at convolutions with cuDNN {dotted(version)}{_from()}"
    remedy = WITHOUT_XLA if any(map(is_old, chips)) else f"{right_cudnn(chips)}; or {WITHOUT_XLA}"
    return Finding("warning", "XLA", f"{fails}; it needs {dotted(needed)}", remedy)


def lacks_cudnn(capability: Sequence[int] | None) -> bool:
    """The installed cuDNN has no code for the chip: its first use crashes. False if a version is not known."""
    version = installed.cudnn_version()
    return is_old(capability) and version is not None and version >= _CUDNN_FROM_TURING


def is_old(capability: Sequence[int] | None) -> bool:
    """Return True before Turing (7.5), which newer versions of cuDNN need."""
    return capability is not None and tuple(capability) < TURING_CAPABILITY


def right_cudnn(capabilities: Iterable[Sequence[int] | None] = ()) -> str:
    """How to get a cuDNN that fits TensorFlow and chips of these compute capabilities."""
    needed = _XLA_NEEDS_CUDNN.get(installed.tensorflow_numbers() or (0, 0))
    old = any(map(is_old, capabilities))
    least = (None if old else needed) or cudnn_built_with() or (9, 0)
    below = _CUDNN_FROM_TURING if old else None
    also = f"; {WITHOUT_XLA}" if old and needed else ""
    cudnn = installed.cudnn()
    if cudnn and cudnn.instead_of and least <= cudnn.instead_of < (below or (least[0] + 1, 0)):
        own = dotted(cudnn.instead_of)
        return f"unset LD_LIBRARY_PATH, or take {cudnn.folder} out of it: then pip's cuDNN {own} is loaded{also}"
    shadow = f"; take {cudnn.folder} out of LD_LIBRARY_PATH" if cudnn and cudnn.folder else ""
    return f"{installed.install(_package(least, below))}{shadow}{also}"


def _from() -> str:
    cudnn = installed.cudnn()
    if cudnn is None or not cudnn.folder:
        return ""
    pips = f" before pip's {dotted(cudnn.instead_of)}" if cudnn.instead_of else ""
    return f" (found in {cudnn.folder} by LD_LIBRARY_PATH{pips})"


# ---- chips --------------------------------------------------------------------------------------


def xla_aborts(capability: Sequence[int] | None) -> bool:
    """Blackwell, and a TensorFlow of a CUDA before 12.8: LLVM aborts, as that CUDA's PTX does not know the chip."""
    built = installed.cuda_version()
    blackwell = capability is not None and tuple(capability) >= BLACKWELL_CAPABILITY
    return blackwell and built is not None and built < _BLACKWELL_CUDA


def lacks_code(capability: Sequence[int] | None) -> Finding | None:
    """Blackwell with a package of 2.18 to 2.20 has neither machine code nor PTX."""
    tensorflow, built = installed.tensorflow_numbers(), installed.cuda_version()
    is_new = capability is not None and tuple(capability) >= BLACKWELL_CAPABILITY
    is_of_pypi = tensorflow in _LAST_PTX and (built is None or built < _BLACKWELL_CUDA)
    if capability is None or tensorflow is None or not (is_new and is_of_pypi) or has_code(capability):
        return None
    packages, chip = f"the packages of TensorFlow {dotted(tensorflow)}", f"compute capability {dotted(capability)}"
    major, minor = BLACKWELL_TENSORFLOW
    command = installed.install(f"tensorflow[and-cuda]>={major}.{minor},<{major}.{minor + 1}")
    remedy = f"install TensorFlow {major}.{minor}: {command}"
    return Finding("error", "GPU", f"{packages} have no code for Blackwell ({chip})", remedy)


def driver_lacks(capability: Sequence[int] | None, driver_cuda: tuple[int, int] | None) -> Finding | None:
    """Kernels cannot run. Without machine code for the chip the driver, which supports `driver_cuda`, compiles the PTX
    of TensorFlow's CUDA. 2.21 has most element-wise kernels as code up to 8.9, and as PTX 8.5.
    """
    built = installed.cuda_version()
    if capability is None or driver_cuda is None or built is None or driver_cuda >= built or has_code(capability):
        return None
    ptx = f"PTX {dotted(_PTX[built])}" if built in _PTX else f"PTX of CUDA {dotted(built)}"
    driver = f"driver {_DRIVERS[built]} or newer" if built in _DRIVERS else f"a driver for CUDA {dotted(built)}"
    what = (
        f"TensorFlow's element-wise kernels exist for this chip (compute capability {dotted(capability)}) only as "
        f"{ptx}, which this driver, for CUDA {dotted(driver_cuda)}, cannot compile"
    )
    return Finding("error", "GPU", what, f"install {driver}, or the cuda-compat package")


def has_code(capability: Sequence[int]) -> bool:
    """Machine code of a chip also runs on later chips of its generation."""
    return any(major == capability[0] and minor <= capability[1] for major, minor in installed.capabilities())


def too_old(capability: Sequence[int] | None) -> bool:
    """Older than all chips that TensorFlow was built for; False if not known."""
    built = installed.capabilities()
    return bool(built) and capability is not None and tuple(capability) < min(built)
