"""A machine without limits or settings of its own, and the facts of a TensorFlow that is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doors.engine import installed, resource_limits


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of the file system in which limits and GPUs are looked for; no GPU is chosen."""
    monkeypatch.setattr(resource_limits, "ROOT", tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts of a TensorFlow 2.21 as its packages have them, whatever is installed here."""
    info = {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9.3.0",
            "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"]}  # fmt: skip
    monkeypatch.setattr(installed, "build_info", lambda: info)
    monkeypatch.setattr(installed, "tensorflow_version", lambda: "2.21.0")
