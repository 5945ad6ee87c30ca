"""What the doctor and the checks say on machines as they are met, one new process on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from gputui.engine.doctor import Finding
from gputui.tui.wording.doctor import conclusion

from tests.support import boxes
from tests.support.boxes import Box
from tests.support.fakenvml import FakeNvml
from tests.support.visits import Visits

pytest_plugins = ("tests.support.fakenvml.fixture",)

PROGRAM = """
here = this_machine.read()
told = {"doctor": [[f.level, f.about, f.what, f.remedy] for f in doctor.examine()], "reason": no_gpu.reason()}
for settings in sys.argv[1:]:
    options = presets.defaults(settings.split()).options
    told[settings] = [[f.level, str(f)] for f in checks.check(options, here)]
    told[f"gpus {settings}"] = [gpu.index for gpu in checks.training_gpus(options, here)]
"""
MIRRORED = "strategy.kind=mirrored"


class Told:
    """What a process on the box was told; each question names the words that must be there."""

    def __init__(self, visits: Visits, box: Box, *settings: str) -> None:
        self._told = visits.visit(box, PROGRAM, *settings)
        self.reason: str = self._told["reason"]

    def doctor(self, words: str) -> tuple[str, str, str]:
        """Level, part and remedy of the one finding that says so."""
        found = [(level, about, remedy) for level, about, what, remedy in self._told["doctor"] if words in what]
        assert len(found) == 1, (words, self._told["doctor"])
        return found[0]

    def says(self, words: str) -> bool:
        """Whether the doctor says so anywhere."""
        return any(words in what for _, _, what, _ in self._told["doctor"])

    def conclusion(self) -> str:
        return conclusion([Finding(*told) for told in self._told["doctor"]])

    def bad(self) -> list[tuple[str, str]]:
        """The doctor's errors and warnings about GPUs, driver and packages."""
        host = ("memory", "/dev/shm", "runs", "CPU", "pynvml")
        return [
            (level, f"{about}: {what}")
            for level, about, what, _ in self._told["doctor"]
            if level in ("error", "warning") and about not in host
        ]

    def checks(self, settings: str) -> list[tuple[str, str]]:
        """The errors and warnings."""
        return [(level, text) for level, text in self._told[settings] if level != "note"]

    def gpus(self, settings: str) -> list[int]:
        return list(self._told[f"gpus {settings}"])


Asked = Callable[..., Told]


@pytest.fixture(scope="module")
def told(nvml: FakeNvml, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """told(box, "KEY=VALUE ...", ...): a new process on the box, about each of the presets."""
    visits = Visits(nvml, tmp_path_factory.mktemp("boxes"))
    yield lambda box, *settings: Told(visits, box, *settings)
    visits.end()


def test_volta_and_pascal_need_an_older_cudnn(told: Asked) -> None:
    v100 = told(boxes.V100, "epochs=3", "model=mlp policy=mixed_float16")
    mend = "pip install 'nvidia-cudnn-cu12>=9.3,<9.11'; set compile.xla=false"
    assert v100.doctor("cuDNN 9.28 has no code for compute capability 7.0") == ("error", "GPU 0", mend)
    assert v100.doctor("compute capability 7.0: float16")[2] == ""  # no advice to use what does not run
    ((level, text),) = v100.checks("epochs=3")
    assert level == "error"
    assert mend in text
    assert [level for level, _ in v100.checks("model=mlp policy=mixed_float16")] == ["warning"]
    mended = told(boxes.V100_WITH_ITS_CUDNN, "epochs=3", "policy=mixed_float16 xla=false")
    assert mended.doctor("compute capability 7.0: float16")[2] == "precision.policy=mixed_float16 uses its tensor cores"
    fails = "XLA of TensorFlow 2.21 fails at convolutions with cuDNN 9.10; it needs 9.24"
    assert mended.bad() == [("warning", f"XLA: {fails}")]
    assert mended.doctor(fails)[2] == "set compile.xla=false"  # a newer cuDNN would have no code for it
    assert [fails in text and text.endswith("; set compile.xla=false") for _, text in mended.checks("epochs=3")] == [
        True
    ]
    assert mended.checks("policy=mixed_float16 xla=false") == []
    p100 = told(boxes.P100, "policy=mixed_float16 xla=false", "policy=mixed_bfloat16 xla=false")
    assert p100.doctor("compute capability 6.0: float32, and float16 without tensor cores")[0] == "ok"
    assert [level for level, _ in p100.bad()] == ["warning"]
    assert [level for level, _ in p100.checks("policy=mixed_float16 xla=false")] == ["warning"]
    assert [level for level, _ in p100.checks("policy=mixed_bfloat16 xla=false")] == ["error"]


def test_a_cudnn_that_does_not_fit_tensorflow_is_told_with_both_versions(told: Asked) -> None:
    older = told(boxes.T4_WITH_TOO_OLD_A_CUDNN, "model=mlp", "visible=none")
    what = "TensorFlow loads cuDNN 9.1, and was built with 9.3: it cannot use a GPU"
    install = "pip install 'nvidia-cudnn-cu12>=9.24,<10'"
    assert older.bad() == [("error", f"CUDA: {what}")]
    assert older.doctor(what)[2] == install
    assert [(level, what in text, install in text) for level, text in older.checks("model=mlp")] == [
        ("error", True, True)
    ]
    assert older.checks("visible=none") == []
    old = told(boxes.T4_WITH_AN_OLD_CUDNN, "epochs=3", "xla=true drop_remainder=true", "xla=false")
    what = "XLA of TensorFlow 2.21 fails at convolutions with cuDNN 9.5; it needs 9.24"
    assert old.bad() == [("warning", f"XLA: {what}")]
    assert old.doctor(what)[2] == f"{install}; or set compile.xla=false"
    assert "Ready to train" in old.conclusion()
    for settings, level in (("epochs=3", "warning"), ("xla=true drop_remainder=true", "error")):
        assert [(found, what in text) for found, text in old.checks(settings)] == [(level, True)]
    assert old.checks("xla=false") == []


def test_without_cudas_packages_there_is_one_error_with_one_command(told: Asked) -> None:
    box = told(boxes.T4_WITHOUT_CUDAS_PACKAGES)
    assert [level for level, _ in box.bad()] == ["error"]
    remedy = box.doctor("CUDA's libraries are missing (libcudart.so.12, ")[2]
    assert "tensorflow[and-cuda]>=2.18,<2.22" in remedy
    assert box.reason.startswith("CUDA's libraries are missing")


def test_a_chip_that_tensorflow_has_no_code_for_gets_no_advice_about_cudnn(told: Asked) -> None:
    box = told(boxes.MAXWELL)
    assert [text for _, text in box.bad()] == ["GPU 0: TensorFlow has no code for compute capability 5.2"]


def test_an_old_driver_is_an_error_on_hopper_alone(told: Asked) -> None:
    h100 = told(boxes.H100_R535, "epochs=3", "visible=none")
    words = "element-wise kernels exist for this chip (compute capability 9.0) only as PTX 8.5"
    assert h100.doctor(words) == ("error", "GPU 0-7", "install driver 555 or newer, or the cuda-compat package")
    ((level, text),) = h100.checks("epochs=3")
    assert (level, words in text, "driver 555 or newer" in text) == ("error", True, True)
    assert h100.checks("visible=none") == []
    assert h100.doctor("TensorFlow was built for CUDA 12.5")[0] == "note"
    a100 = told(boxes.A100_R535, "epochs=3", f"{MIRRORED} policy=mixed_bfloat16")
    assert a100.bad() == a100.checks("epochs=3") == a100.checks(f"{MIRRORED} policy=mixed_bfloat16") == []
    sound = told(boxes.H100_R570, "epochs=3", MIRRORED)
    assert sound.bad() == sound.checks("epochs=3") == sound.checks(MIRRORED) == []
    assert sound.reason == ""
    assert not sound.says("compiles its kernels")  # its few kernels of PTX take a second or two
    assert (sound.gpus("epochs=3"), sound.gpus(MIRRORED)) == ([0], list(range(8)))


def test_blackwell_works_without_xla_and_compiles_first(told: Asked) -> None:
    box = told(boxes.RTX_5090, "epochs=3", "compile.xla=true drop_remainder=true")
    assert box.doctor("compiles its kernels for this chip at first use")[0] == "note"
    assert box.doctor("works only without XLA, which crashes")[0] == "note"
    assert "costs bandwidth" in box.doctor("ECC is off")[2]
    assert box.bad() == box.checks("epochs=3") == []
    ((level, text),) = box.checks("compile.xla=true drop_remainder=true")
    assert (level, "crashes on GPU 0 (compute capability 12.0)" in text) == ("error", True)


def test_aarch64_needs_another_tensorflow(told: Asked) -> None:
    box = told(boxes.GH200, "epochs=3")
    level, _, remedy = box.doctor("built without CUDA: it cannot use a GPU")
    honest = "build TensorFlow 2.18 to 2.21 with CUDA from its source"
    assert (level, honest in remedy, "pip" in remedy, "nvcr.io" in remedy) == ("error", True, False, False)
    assert "device.visible=none" in remedy
    ((level, text),) = box.checks("epochs=3")
    assert (level, honest in text, text.count("none")) == ("error", True, 1)
    assert "built without CUDA" in box.reason


def test_a_display_card_beside_the_gpu_is_left_out(told: Asked) -> None:
    box = told(boxes.WORKSTATION, f"{MIRRORED} policy=mixed_bfloat16", "visible=0")
    assert box.doctor("it has 2 multiprocessors, fewer than 8")[:2] == ("note", "GPU 0")
    assert box.bad() == []
    assert [level for level, _ in box.checks(f"{MIRRORED} policy=mixed_bfloat16")] == ["warning"]  # mirrored over one
    assert box.gpus(f"{MIRRORED} policy=mixed_bfloat16") == [1]
    assert [level for level, _ in box.checks("visible=0")] == ["error"]  # alone it is used, and has no cuDNN
    assert box.gpus("visible=0") == [0]


def test_of_two_mig_instances_one_trains(told: Asked) -> None:
    box = told(boxes.MIG, MIRRORED, "visible=MIG-0000-101 gpu_thread_mode=gpu_private")
    assert box.doctor("MIG is on, with 2 instance(s)")[0] == "note"
    assert box.bad() == []
    assert ["no faster than single" in text for _, text in box.checks(MIRRORED)] == [True]
    assert box.checks("visible=MIG-0000-101 gpu_thread_mode=gpu_private") == []


def test_without_nvml_nothing_is_concluded(told: Asked) -> None:
    wanted = f"{MIRRORED} communication=nccl gpu_thread_mode=gpu_private memory_limit_mb=4096 policy=mixed_float16"
    box = told(boxes.CONTAINER_WITHOUT_NVML, wanted, "visible=0")
    assert box.conclusion() == "Ready to train; 1 warning(s)."
    assert box.doctor("CUDA shows 1 GPU(s): training works, without readings of them")[:2] == ("ok", "GPU")
    level, _, remedy = box.doctor("libnvidia-ml.so.1 is missing: nothing is known of the GPUs")
    assert (level, remedy) == (
        "warning", "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility (it is 'compute' now)"
    )  # fmt: skip
    assert box.checks(wanted) == box.checks("visible=0") == []


def test_a_board_without_its_fabric_manager(told: Asked) -> None:
    box = told(boxes.NO_FABRIC_MANAGER, "epochs=3")
    level, _, remedy = box.doctor("CUDA does not start (CUDA_ERROR_SYSTEM_NOT_READY)")
    assert (level, "systemctl start nvidia-fabricmanager" in remedy, "570.86.15" in remedy) == ("error", True, True)
    assert "systemctl start nvidia-fabricmanager" in box.reason
    assert not box.says("CUDA cannot start")  # said once


def test_a_slurm_job_keeps_to_its_gpus(told: Asked) -> None:
    box = told(boxes.SLURM, MIRRORED, "visible=0", "visible=5", "visible=none")
    assert box.doctor("this job is allocated GPU 4,5 (CUDA_VISIBLE_DEVICES)")[0] == "note"
    assert (box.gpus(MIRRORED), box.checks(MIRRORED)) == ([4, 5], [])
    ((level, text),) = box.checks("visible=0")
    assert (level, "this job is allocated GPU 4,5" in text) == ("error", True)
    assert (box.gpus("visible=5"), box.checks("visible=5")) == ([5], [])
    assert box.checks("visible=none") == []
