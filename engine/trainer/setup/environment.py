"""Sets environment variables that must be set before TensorFlow touches a device. Imports no TensorFlow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...options import Options
    from ..measure.run_report import RunReport

_BACKEND = "KERAS_BACKEND"


def choose_backend() -> str:
    """Set Keras' backend before its import; returns a different one that the caller's environment asked for, or
    nothing.
    """
    asked = os.environ.get(_BACKEND, "")
    os.environ[_BACKEND] = "tensorflow"
    return "" if asked == "tensorflow" else asked


def tell_backend(asked: str, report: RunReport) -> None:
    """Warn where the caller's environment asked for a different backend."""
    if asked:
        report.warn("backend", f"{_BACKEND}={asked} does nothing here: gputui trains with TensorFlow", option=_BACKEND)


def prepare(options: Options) -> None:
    """Set the variables that CUDA and TensorFlow read once, at the first device or the first compilation."""
    # NVML numbers GPUs in PCI order: this makes an index mean the same GPU everywhere.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    visible = options.device.visible
    if visible == "none":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    elif visible != "all":
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(name) for name in visible)
    os.environ["TF_GPU_THREAD_MODE"] = options.device.gpu_thread_mode
    # The package has no machine code for the newest chips: keep the kernels that are compiled at first use.
    os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 * 1024**3))
    if options.compile.xla is not True:
        _forbid_automatic_xla()


def _forbid_automatic_xla() -> None:
    """Only the step is compiled by XLA, and only as `compile.xla` says, whatever the caller's environment asks for."""
    flags = os.environ.get("TF_XLA_FLAGS", "").split()
    kept = [flag for flag in flags if not flag.startswith("--tf_xla_auto_jit")]
    if kept:
        os.environ["TF_XLA_FLAGS"] = " ".join(kept)
    else:
        os.environ.pop("TF_XLA_FLAGS", None)
