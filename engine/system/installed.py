"""Tells what is installed for training, from the lists and files of pip's packages: nothing is imported for it."""

from __future__ import annotations

import ast
import functools
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

_TENSORFLOW = ("tensorflow", "tensorflow-cpu")
CUDNN = "nvidia-cudnn-cu12"
_WITH_CUDA = "pip install 'tensorflow[and-cuda]'"
_WITH_CUDA_ON_ARM = "use NVIDIA's TensorFlow container (nvcr.io/nvidia/tensorflow) or a TensorFlow built with CUDA"


def version(*packages: str) -> str | None:
    """The version of the first of these packages that is installed."""
    for name in packages:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def tensorflow_version() -> str | None:
    return version(*_TENSORFLOW)


def with_cuda() -> str:
    """How to get a TensorFlow that can use GPUs: TensorFlow's own packages for aarch64 are built without CUDA."""
    return _WITH_CUDA if platform.machine() in ("x86_64", "AMD64") else _WITH_CUDA_ON_ARM


def cudnn_version() -> tuple[int, int] | None:
    """The version of the cuDNN that pip has installed; one of the system's own package manager is not known."""
    return _two_numbers(version(CUDNN))


@functools.cache
def build_info() -> dict[str, Any]:
    """What `tf.sysconfig.get_build_info()` would return, read from its source file; empty where that cannot be read."""
    path = site("tensorflow/python/platform/build_info.py")
    try:
        source = path.read_text(encoding="utf-8") if path else ""
        found = re.search(r"OrderedDict\((\[.*\])\)", source, re.DOTALL)
        return dict(ast.literal_eval(found[1])) if found else {}
    except (OSError, ValueError, SyntaxError):
        return {}


def cuda_version() -> tuple[int, int] | None:
    """The CUDA version that TensorFlow was built with; None for one without CUDA."""
    return _two_numbers(build_info().get("cuda_version"))


def capabilities() -> list[tuple[int, int]]:
    """The compute capabilities that TensorFlow contains machine code for."""
    return _targets("sm")


def newest_target() -> tuple[int, int] | None:
    """The newest compute capability that TensorFlow was built for, as machine code or as PTX; later ones compile it."""
    return max([*_targets("sm"), *_targets("compute")], default=None)


def _targets(kind: str) -> list[tuple[int, int]]:
    names = build_info().get("cuda_compute_capabilities", [])
    found = [re.fullmatch(rf"{kind}_(\d+)(\d)", str(name)) for name in names]
    return [(int(match[1]), int(match[2])) for match in found if match]


def site(relative: str) -> Path | None:
    """A file beside the installed packages, wherever those are."""
    for name in _TENSORFLOW:
        try:
            path = Path(str(metadata.distribution(name).locate_file(relative)))
        except metadata.PackageNotFoundError:
            continue
        return path if path.exists() else None
    return None


def _two_numbers(text: object) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", str(text or ""))
    return (int(found[1]), int(found[2])) if found else None
