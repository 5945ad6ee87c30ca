"""Environment variables of TensorFlow, XLA, CUDA and NCCL: which of them a run records, and which slow it down."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PREFIXES = ("TF_", "XLA_", "CUDA_", "NCCL_", "NVIDIA_")
LONGEST = 200  # characters of a value
# Terraform's variables begin with TF_, too.
_SECRET = re.compile(r"^TF_(VAR|TOKEN|CLI)_|TOKEN|SECRET|PASS|CREDENTIAL|KEY|AUTH", re.IGNORECASE)
_USER_OF_ADDRESS = re.compile(r"://[^/?#\s]+@")  # a password may have an @
# They say which GPUs, files and machines are there, not how these compute.
_PLACES = re.compile(
    r"_(VISIBLE_DEVICES|HOME|PATH|DIR|ROOT|ORDER|VERSION)$|^NVIDIA_(REQUIRE|PRODUCT|BUILD)_|^TF_CONFIG$"
)


def recorded(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that begin with one of PREFIXES, without secrets and with shortened values."""
    names = sorted(name for name in environment if name.startswith(PREFIXES) and not _SECRET.search(name))
    return {name: _shortened(environment[name]) for name in names}


def _shortened(value: str) -> str:
    value = _USER_OF_ADDRESS.sub("://...@", "".join(c if c.isprintable() else " " for c in value))
    return value if len(value) <= LONGEST else value[:LONGEST] + "..."


def differing(environments: list[Mapping[str, str]]) -> list[str]:
    """The names of the variables that differ and can change the speed, without those of GPUs, files and machines."""
    names = sorted({name for environment in environments for name in environment if not _PLACES.search(name)})
    return [name for name in names if len({environment.get(name) for environment in environments}) > 1]


def is_true(value: str) -> bool:
    """Return True if TensorFlow reads the value as an enabled switch: `1` or `true`, in any case of letters."""
    return value.strip().lower() in ("1", "true")


def is_false(value: str) -> bool:
    """Return True if TensorFlow reads the value as a disabled switch: `0` or `false`, in any case of letters."""
    return value.strip().lower() in ("0", "false")


@dataclass(frozen=True)
class Harm:
    """A value of a variable that makes a training slow: `applies` is True for it, and `does` says what it causes.
    `where` are the trainings that are slowed: on a GPU, on the CPU, on several GPUs (`GPUs`) or, if empty, all.
    """

    name: str
    applies: Callable[[str], bool]
    does: str
    where: str = "GPU"


HARMS = (
    Harm("CUDA_LAUNCH_BLOCKING", is_true, "the host waits for each kernel before it launches the next"),
    Harm("TF_CUDNN_USE_AUTOTUNE", is_false, "cuDNN's algorithms are guessed instead of measured, and can be slow ones"),
    Harm(
        "CUDA_MODULE_LOADING",
        lambda value: value.strip().upper() == "EAGER",
        "all kernels are loaded at the start, which takes seconds and some hundred MB of each GPU's memory",
    ),
    Harm("TF_FORCE_UNIFIED_MEMORY", is_true, "what does not fit the GPU's memory is moved over the bus at each use"),
    Harm("NCCL_P2P_DISABLE", is_true, "GPUs exchange gradients through the host's memory instead of directly", "GPUs"),
    Harm("NCCL_SHM_DISABLE", is_true, "GPUs without a direct link exchange gradients over the network", "GPUs"),
    Harm("TF_ENABLE_ONEDNN_OPTS", is_false, "the CPU computes without oneDNN's faster kernels", "CPU"),
    Harm("TF_CPP_MAX_VLOG_LEVEL", lambda value: value.strip() not in ("", "0"), "each operation writes to the log", ""),
)


def harmful(environment: Mapping[str, str], kind: str, devices: int) -> list[tuple[str, str, str]]:
    """Name, effect and advice for each that slows a training on so many devices of this `kind` (GPU or CPU)."""
    where = {"", kind, "GPUs" if kind == "GPU" and devices > 1 else kind}
    harms = [harm for harm in HARMS if harm.where in where and harm.applies(environment.get(harm.name, ""))]
    return [
        (harm.name, f"{harm.name}={environment[harm.name]} is set: {harm.does}", f"unset {harm.name}") for harm in harms
    ]


def tf32_overridden() -> bool:
    """NVIDIA_TF32_OVERRIDE=0 forbids TensorFloat-32 to NVIDIA's libraries, whatever TensorFlow requests."""
    return os.environ.get("NVIDIA_TF32_OVERRIDE", "").strip() == "0"
