"""Why TensorFlow sees no GPU: which of several causes is named, and which findings are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.doctor import Finding, libraries, no_gpu
from gputui.engine.doctor.cuda_library import UNKNOWN, CudaAnswer
from gputui.engine.doctor.nvml_query import NvmlAnswers
from gputui.engine.telemetry import chips

from tests.support.bare_machine import built as built
from tests.support.bare_machine import tree as tree

MODELS = tuple(
    {"index": index, "uuid": f"GPU-{index}", "name": name, "compute_capability": (8, 0), "compute_mode": 0, "mig": None}
    for index, name in enumerate(("RTX 3090", "RTX 4090"))
)
WORKS = CudaAnswer(True, "", 2)


class Box:
    """A machine with two GPUs of different models. `cuda` is the answer of its CUDA library."""

    def __init__(self) -> None:
        self.gpus: list[dict[str, Any]] = [dict(gpu) for gpu in MODELS]
        self.cuda = WORKS
        self.steps: list[str] = []
        self.of_libraries: dict[str, list[Finding]] = {"tensorflow": [], "libcuda": [], "cuda": []}

    def found(self, name: str, *_given: object) -> Iterator[Finding]:
        yield from self.of_libraries[name]

    def answers(self, deadline: float) -> NvmlAnswers:
        return NvmlAnswers(tuple(self.gpus), len(self.gpus), driver="580.10", cuda=(13, 0))


@pytest.fixture
def box(built: None, tree: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    made = Box()
    monkeypatch.setattr(no_gpu, "NvmlQuery", lambda: SimpleNamespace(by=made.answers))
    monkeypatch.setattr(
        no_gpu, "CudaQuery", lambda: SimpleNamespace(by=lambda _: made.cuda, end=lambda: made.steps.append("ended"))
    )
    monkeypatch.setattr(chips, "gpus_on_bus", lambda: ["0000:01:00.0", "0000:02:00.0"])
    monkeypatch.setattr(chips, "confined", lambda: False)
    monkeypatch.setattr(libraries, "missing", dict)
    for name in made.of_libraries:
        monkeypatch.setattr(libraries, name, lambda *given, name=name: made.found(name, *given))
    return made


def test_what_only_disturbs_is_no_cause(box: Box) -> None:
    assert (no_gpu.first(), no_gpu.reason()) == (None, ""), "the models differ, and their order may mislead"
    assert box.steps == ["ended"] * 2, "no process stays"


def test_the_cause_that_comes_first_is_named(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    log = "E0000 cuda: Could not load dynamic library 'libcufft.so.11'"

    def cause() -> str:
        found = no_gpu.first(log)
        return "" if found is None else f"{found.level} {found.about}: {found.what}"

    last = Finding("error", "CUDA", "libcublas.so.12 is missing", "get it")
    box.of_libraries["cuda"] = [last]
    assert cause() == "error TensorFlow: the library libcufft.so.11 cannot be loaded"
    log = ""
    assert cause() == "error CUDA: libcublas.so.12 is missing"
    box.of_libraries["libcuda"] = [Finding("error", "CUDA", "libcuda.so.1 is missing")]
    assert cause() == "error CUDA: libcuda.so.1 is missing"
    box.cuda = CudaAnswer(True, "CUDA_ERROR_STUB_LIBRARY")
    stub = "the stub of the CUDA toolkit is found before the driver's own libcuda.so.1"
    assert cause() == f"error CUDA: CUDA does not start (CUDA_ERROR_STUB_LIBRARY): {stub}"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert cause() == "error GPU: CUDA_VISIBLE_DEVICES=7 shows no GPU: 7 fits no single GPU"
    box.gpus[1]["compute_mode"] = 2
    assert cause() == "error GPU 1: its compute mode is PROHIBITED: CUDA cannot use it"
    for gpu in box.gpus:
        gpu["mig"] = []
    assert cause().startswith("error GPU 0, 1: MIG is on without an instance")
    box.of_libraries["tensorflow"] = [
        Finding("warning", "TensorFlow", "is new"),
        Finding("error", "TensorFlow", "is old"),
    ]
    assert cause() == "error TensorFlow: is old"


def test_a_warning_is_named_if_there_is_no_error(box: Box) -> None:
    box.cuda = UNKNOWN
    box.gpus[1] = {"index": 1, "missing": "the GPU is lost"}
    box.of_libraries["cuda"] = [Finding("ok", "CUDA", "all is there"), Finding("note", "CUDA", "noted")]
    found = no_gpu.first()
    assert found is not None
    assert (found.level, found.about, found.what) == ("warning", "GPU 1", "the GPU is lost")
    assert no_gpu.reason().startswith("the GPU is lost; nvidia-smi -i 1 may show why; ")
