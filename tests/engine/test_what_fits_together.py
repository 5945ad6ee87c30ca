"""The whole sentences about versions that do not fit together, and what to install, for each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gputui.engine.doctor import libraries
from gputui.engine.interpreter import compatibility, installed

from tests.support.environments import script

Version = tuple[int, int]
NO_XLA = "; set compile.xla=false"


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is installed: TensorFlow's version, its build info and the cuDNN that it loads."""
    has: dict[str, Any] = {"tensorflow": "2.21.0", "build": {}, "cudnn": None}
    monkeypatch.setattr(installed, "tensorflow_version", lambda: has["tensorflow"])
    monkeypatch.setattr(installed, "build_info", lambda: has["build"])
    monkeypatch.setattr(installed, "cudnn", lambda: has["cudnn"])
    return has


def pip(least: str, below: str) -> str:
    return f"pip install 'nvidia-cudnn-cu12>={least},<{below}'"


@pytest.mark.parametrize(
    ("tensorflow", "build", "chips", "remedy"),
    [
        ("2.21.0", "", [], pip("9.24", "10")), ("2.21.0", "", [(7, 5), None], pip("9.24", "10")),
        ("2.21.0", "", [(7, 0)], pip("9.3", "9.11") + NO_XLA),
        ("2.21.0", "", [(9, 0), (6, 1)], pip("9.3", "9.11") + NO_XLA), ("2.20.0", "", [(9, 0)], pip("9.3", "10")),
        ("2.20.0", "", [(7, 0)], pip("9.3", "9.11")), ("2.99.0", "", [(9, 0)], pip("9.0", "10")),
        ("2.99.0", "10.1.2", [(9, 0)], pip("10.1", "11")), (None, "", [], pip("9.0", "10")),
    ],
)  # fmt: skip
def test_the_cudnn_to_install_follows_from_tensorflow_and_the_chips(
    tensorflow: str | None, build: str, chips: list[Version | None], remedy: str, there: dict[str, Any]
) -> None:
    there.update(tensorflow=tensorflow, build={"cudnn_version": build} if build else {})
    assert compatibility.right_cudnn(chips) == remedy
    there["cudnn"] = installed.Cudnn((9, 1))
    assert compatibility.right_cudnn(chips) == remedy
    there["cudnn"] = installed.Cudnn((9, 1), "/opt/old")
    install, *no_xla = remedy.split("; ")
    shadow = "; ".join([install, "take /opt/old out of LD_LIBRARY_PATH", *no_xla])
    assert compatibility.right_cudnn(chips) == shadow
    there["cudnn"] = installed.Cudnn((9, 1), "/opt/old", (8, 9))
    assert compatibility.right_cudnn(chips) == shadow, "pip's own does not fit either"


@pytest.mark.parametrize(
    ("chip", "pips", "is_enough"),
    [((8, 0), (9, 23), False), ((8, 0), (9, 24), True), ((8, 0), (9, 99), True), ((8, 0), (10, 0), False),
     ((7, 0), (9, 2), False), ((7, 0), (9, 3), True), ((7, 0), (9, 10), True), ((7, 0), (9, 11), False)],
)  # fmt: skip
def test_pips_cudnn_is_proposed_if_it_would_do(
    chip: Version, pips: Version, is_enough: bool, there: dict[str, Any]
) -> None:
    there["cudnn"] = installed.Cudnn((9, 1), "/opt/old", pips)
    unset = (
        f"unset LD_LIBRARY_PATH, or take /opt/old out of it: then pip's cuDNN {pips[0]}.{pips[1]} is loaded"
        f"{NO_XLA if chip < (7, 5) else ''}"
    )
    assert (compatibility.right_cudnn([chip]) == unset) is is_enough


def test_where_a_cudnn_was_found_is_said(there: dict[str, Any]) -> None:
    xla = "XLA of TensorFlow 2.21 fails at convolutions with cuDNN 9.5{}; it needs 9.24"
    old = "TensorFlow loads cuDNN 9.1{}, and was built with 9.3: it cannot use a GPU"
    for cudnn, where in (
        (None, ""), (installed.Cudnn(None), ""),
        (installed.Cudnn(None, "/opt/a"), " (found in /opt/a by LD_LIBRARY_PATH)"),
        (installed.Cudnn(None, "/opt/a", (9, 30)), " (found in /opt/a by LD_LIBRARY_PATH before pip's 9.30)"),
    ):  # fmt: skip
        there["cudnn"] = cudnn
        assert compatibility.xla_fails((9, 5)) == xla.format(where)
        assert compatibility.old_cudnn((9, 1)) == old.format(where)
        assert (compatibility.xla_fails((9, 24)), compatibility.old_cudnn((9, 3))) == ("", "")
        assert (compatibility.xla_fails(), compatibility.old_cudnn()) == ("", ""), "it is not known"
    there["cudnn"] = installed.Cudnn((9, 2))
    assert compatibility.xla_fails() == xla.format("").replace("9.5", "9.2")
    assert compatibility.old_cudnn() == old.format("").replace("9.1", "9.2")
    there["tensorflow"] = "2.20.1"
    assert compatibility.xla_fails() == "", "nothing is known of its XLA"
    there["tensorflow"] = None
    assert (compatibility.xla_fails(), compatibility.old_cudnn()) == ("", "")


@pytest.mark.parametrize(
    ("chips", "remedy"),
    [([(8, 0)], f"{pip('9.24', '10')}; or set compile.xla=false"), ([(8, 0), (7, 0)], "set compile.xla=false"),
     ([], f"{pip('9.24', '10')}; or set compile.xla=false"),
     ([(7, 5), None], f"{pip('9.24', '10')}; or set compile.xla=false")],
)  # fmt: skip
def test_the_remedy_for_xla_depends_on_the_oldest_chip(
    chips: list[Version | None], remedy: str, there: dict[str, Any]
) -> None:
    assert compatibility.for_xla(iter(chips)) == remedy


def test_a_driver_that_cannot_compile_the_kernels_is_told_with_the_one_that_can(there: dict[str, Any]) -> None:
    compiled = ["sm_60", "sm_86", "compute_90"]
    for built, ptx, driver in (
        ("12.5.1", "PTX 8.5", "driver 555 or newer"), ("12.8", "PTX 8.7", "driver 570 or newer"),
        ("12.7", "PTX of CUDA 12.7", "a driver for CUDA 12.7"),
    ):  # fmt: skip
        there["build"] = {"cuda_version": built, "cuda_compute_capabilities": compiled}
        assert compatibility.driver_lacks((9, 0), (12, 2)) == (
            f"TensorFlow's element-wise kernels exist for this chip (compute capability 9.0) only as {ptx}, which this "
            "driver, for CUDA 12.2, cannot compile"
        )
        assert compatibility.newer_driver() == f"install {driver}, or the cuda-compat package"
        number = (int(built.split(".")[0]), int(built.split(".")[1]))
        for chip, cuda in (((9, 0), number), ((9, 0), None), (None, (12, 2)), ((8, 6), (12, 2)), ((8, 9), (12, 2)),
                           ((6, 1), (12, 2))):  # fmt: skip
            assert compatibility.driver_lacks(chip, cuda) == "", (chip, cuda)
        assert compatibility.driver_lacks((8, 0), (12, 2)), "its machine code is for later chips"
        assert compatibility.driver_lacks((7, 5), (12, 2)), "and that of the generation before does not run"
    there["build"] = {}
    assert compatibility.driver_lacks((9, 0), (12, 2)) == ""
    assert compatibility.newer_driver() == "install driver 555 or newer, or the cuda-compat package"


def test_a_chip_is_too_old_if_it_is_older_than_all_that_tensorflow_was_built_for(there: dict[str, Any]) -> None:
    there["build"] = {"cuda_compute_capabilities": ["sm_80", "sm_60", "compute_90"]}
    chips: list[Version | None] = [(5, 2), (6, 0), (7, 0), (9, 0), None]
    assert [compatibility.too_old(chip) for chip in chips] == [True, False, False, False, False]
    assert [compatibility.is_old(chip) for chip in chips] == [True, True, True, False, False]
    there["cudnn"] = installed.Cudnn((9, 11))
    assert [compatibility.lacks_cudnn(chip) for chip in chips] == [True, True, True, False, False]
    for cudnn in (installed.Cudnn((9, 10)), installed.Cudnn(None), None):
        there["cudnn"] = cudnn
        assert not any(map(compatibility.lacks_cudnn, chips))
    there["build"] = {}
    assert not any(map(compatibility.too_old, chips)), "nothing is known"


def test_of_two_libraries_of_a_name_the_first_in_the_loaders_list_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: dict[str, Any]
) -> None:
    files = ("libcudnn.so.9.1.0", "libcudnn.so.9.30.1")
    listed = "".join(f"\\tlibcudnn.so.9 (libc6,x86-64) => {tmp_path}/{name}\\n" for name in files)
    script(tmp_path / "ldconfig", f"printf '2 libs found in cache\\n{listed}'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(libraries, "_loader_cache", libraries._loader_cache.__wrapped__)  # what is asked once
    there["build"] = {"is_cuda_build": True}
    (found,) = libraries.cudnn([], True)
    assert (found.level, found.what) == (
        "error", "TensorFlow loads cuDNN 9.1, and was built with 9.3: it cannot use a GPU",
    )  # fmt: skip
    there["cudnn"] = installed.Cudnn((9, 24))
    assert list(libraries.cudnn([], True)) == [], "pip's own counts instead"
