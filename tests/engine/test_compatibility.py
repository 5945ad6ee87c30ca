"""What goes with what: which cuDNN TensorFlow loads, and what doctor and checks say where it does not fit."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.doctor import libraries
from gputui.engine.interpreter import compatibility, installed, supported_versions
from gputui.engine.interpreter.interpreter import Interpreter

from tests.engine.test_checks import TEXTS, found_by
from tests.support.checked import BLACKWELL, NONE, ONE, PASCAL, TWO, VOLTA, WITH_DISPLAY, gpu, machine


def test_what_the_installed_packages_cannot_do_on_this_machines_chips(
    monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    said = []
    without_cuda, with_cuda, nothing = {"is_cuda_build": False}, {"is_cuda_build": True}, dict[str, object]()
    mend, newest = "pip install 'nvidia-cudnn-cu12>=9.3,<9.11'", "pip install 'nvidia-cudnn-cu12>=9.24,<10'"
    for rule, on, settings, build, version, levels, words in (
        ("build", ONE, "epochs=3", without_cuda, None, ["error"], "pip install 'tensorflow[and-cuda]>=2.18,<2.22'"),
        ("build", ONE, "visible=none", without_cuda, None, [], ""),
        ("build", NONE, "epochs=3", without_cuda, None, [], ""),
        ("build", ONE, "epochs=3", nothing, None, [], ""),
        ("build", ONE, "epochs=3", with_cuda, None, [], ""),
        ("build", ONE, "epochs=3", without_cuda | {"is_rocm_build": True}, None, [], ""),
        ("cudnn", VOLTA, "epochs=3", with_cuda, (9, 28), ["error"], f"{mend}; set compile.xla=false"),
        ("cudnn", PASCAL, "model=mlp", with_cuda, (9, 11), ["warning"], mend),
        ("cudnn", VOLTA, f"entry={TEXTS}:build", with_cuda, (10, 0), ["warning"], mend),
        ("cudnn", VOLTA, "epochs=3 xla=false", with_cuda, (9, 10), [], ""),
        ("cudnn", VOLTA, "epochs=3", with_cuda, None, [], ""),
        ("cudnn", machine(gpu(0, (7, 5))), "epochs=3", with_cuda, (9, 28), [], ""),
        ("cudnn", WITH_DISPLAY, "strategy.kind=mirrored", with_cuda, (9, 28), [], ""),
        # older than the one that TensorFlow was built with
        ("cudnn", ONE, "model=mlp", with_cuda, (9, 1), ["error"], newest),
        ("cudnn", VOLTA, "epochs=3 xla=false", with_cuda, (9, 1), ["error"], mend),
        ("cudnn", ONE, "visible=none", with_cuda, (9, 1), [], ""),
        ("cudnn", NONE, "epochs=3", with_cuda, (9, 1), [], ""),
        # XLA fails at convolutions
        ("cudnn", ONE, "epochs=3", with_cuda, (9, 23), ["warning"], f"{newest}; or set compile.xla=false"),
        ("cudnn", ONE, "xla=true", with_cuda, (9, 5), ["error"], newest),
        ("cudnn", TWO, "strategy.kind=mirrored xla=true", with_cuda, (9, 5), ["error"], newest),
        ("cudnn", ONE, f"entry={TEXTS}:build xla=true", with_cuda, (9, 5), ["warning"], newest),
        ("cudnn", ONE, f"entry={TEXTS}:build", with_cuda, (9, 5), ["note"], newest),
        ("cudnn", VOLTA, "epochs=3", with_cuda, (9, 10), ["warning"], "set compile.xla=false"),
        ("cudnn", ONE, "xla=true model=mlp", with_cuda, (9, 5), [], ""),
        ("cudnn", ONE, "xla=false", with_cuda, (9, 5), [], ""),
        ("cudnn", TWO, "strategy.kind=mirrored", with_cuda, (9, 5), [], ""),
        ("cudnn", BLACKWELL, "epochs=3", with_cuda | {"cuda_version": "12.5.1"}, (9, 5), [], ""),
        ("cudnn", ONE, "epochs=3", with_cuda, (9, 24), [], ""),
    ):
        monkeypatch.setattr(installed, "build_info", lambda build=build: build)
        monkeypatch.setattr(installed, "cudnn_version", lambda version=version: version)
        found = found_by(rule, on, settings)
        assert [finding.level for finding in found] == levels, (rule, settings, version)
        said += [f"{settings}, cuDNN {version}: {finding.level}: {finding}" for finding in found]
        assert all(words in finding.change for finding in found), found
        assert all("<9.11" not in finding.change for finding in found if version == (9, 10)), "it is installed"
    monkeypatch.setattr(installed, "build_info", lambda: without_cuda)
    monkeypatch.setattr(supported_versions, "HAS_CUDA", False)
    (found_on_arm,) = found_by("build", ONE, "epochs=3")
    assert "build TensorFlow 2.18 to 2.21 with CUDA from its source" in found_on_arm.change
    assert "pip" not in found_on_arm.change
    text = "\n".join([*said, str(found_on_arm)]).replace(sys.executable, "PYTHON")
    assert re.sub(r"(XLA of TensorFlow 2)[.\d]+", r"\1", text) == snapshot


def test_a_cudnn_that_ld_library_path_puts_before_pips_is_the_one_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib, others = tmp_path / "cudnn", tmp_path / "site-packages/nvidia/cudnn/lib"
    for folder in (lib, others):
        folder.mkdir(parents=True)
    (lib / "libcudnn.so.9.1.0").touch()
    (lib / "libcudnn.so.9").symlink_to("libcudnn.so.9.1.0")
    (others / "libcudnn.so.9").touch()
    (tmp_path / "site-packages/nvidia_cudnn_cu12-9.5.1.17.dist-info").mkdir()
    own = installed.site("nvidia/cudnn/lib")
    pips = installed.cudnn_version()
    for path, version, level, says, remedy in (
        (f"/nowhere:{own}:{lib}", pips, "", "", ""),
        (f":{lib}:{own}", (9, 1), "error", f"(found in {lib} by LD_LIBRARY_PATH before pip's", f"take {lib} out of it"),
        (str(others), (9, 5), "warning", "fails at convolutions with cuDNN 9.5", f"take {others} out of it"),
    ):
        monkeypatch.setenv("LD_LIBRARY_PATH", path)
        assert installed.cudnn_version() == version
        found = list(libraries.cudnn([{"compute_capability": (8, 0)}], True))
        assert [finding.level for finding in found] == ([level] if level else []), found
        assert all(says in finding.what and remedy in finding.remedy for finding in found), found
    (found_on_volta,) = libraries.cudnn([{"compute_capability": (7, 0)}], True)
    assert found_on_volta.remedy == "set compile.xla=false"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(lib))
    monkeypatch.setattr(installed, "site", lambda relative: None)
    monkeypatch.setattr(installed, "build_info", lambda: {"is_cuda_build": True, "cudnn_version": "9.0.0"})
    assert (
        "needs 9.24" in next(libraries.cudnn([], False)).what
    )  # it fits the TensorFlow that was built with an older one


def test_the_first_cudnn_in_ld_library_path_is_loaded_unless_it_is_pips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, old, empty = tmp_path / "own", tmp_path / "old", tmp_path / "empty"
    for folder in (own, old, empty):
        folder.mkdir()
    for folder, version in ((own, "9.10.2"), (old, "9.1.0")):
        (folder / f"libcudnn.so.{version}").touch()
        (folder / "libcudnn.so.9").symlink_to(f"libcudnn.so.{version}")
    (tmp_path / "link").symlink_to("own")
    pips = installed.Cudnn((9, 10))
    for path, beside_pips, alone in (
        ("", pips, None),
        (f"{empty}:/nowhere", pips, None),
        (f"{own}:{old}", pips, installed.Cudnn((9, 10), str(own))),
        (f"{tmp_path}/link:{old}", pips, installed.Cudnn((9, 10), f"{tmp_path}/link")),
        (f":{empty}:{old}:{own}", installed.Cudnn((9, 1), str(old), (9, 10)), installed.Cudnn((9, 1), str(old))),
    ):
        monkeypatch.setenv("LD_LIBRARY_PATH", path)
        for packages, place, found in (
            ({installed.CUDNN: "9.10.2.21"}, own, beside_pips), (dict[str, str](), None, alone)
        ):  # fmt: skip
            described = Interpreter("/env/bin/python", (3, 11, 0), packages, {}, ())
            monkeypatch.setattr(installed, "intended", lambda described=described: described)
            monkeypatch.setattr(installed, "site", lambda _, place=place: place)
            assert installed.cudnn() == found, (path, packages)


def test_for_an_old_chip_pips_cudnn_is_proposed_only_if_it_has_code_for_the_chip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for pips, capability, remedy in (
        ((9, 10), (7, 0), "unset LD_LIBRARY_PATH, or take /opt/old out of it: then pip's cuDNN 9.10 is loaded"),
        ((9, 24), (7, 0), "pip install 'nvidia-cudnn-cu12>=9.3,<9.11'; take /opt/old out of LD_LIBRARY_PATH"),
        ((9, 24), (8, 0), "unset LD_LIBRARY_PATH, or take /opt/old out of it: then pip's cuDNN 9.24 is loaded"),
    ):
        monkeypatch.setattr(installed, "cudnn", lambda pips=pips: installed.Cudnn((9, 1), "/opt/old", pips))
        (found,) = libraries.cudnn([{"compute_capability": capability}], True)
        assert found.remedy.startswith(remedy), (pips, capability)


def test_machine_code_also_runs_on_later_chips_of_its_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "capabilities", lambda: [(7, 5), (8, 0), (8, 6)])
    monkeypatch.setattr(installed, "cuda_version", lambda: (12, 5))
    for capability, runs in (((8, 0), True), ((8, 7), True), ((8, 9), True), ((7, 0), False), ((9, 0), False)):
        assert (compatibility.driver_lacks(capability, (12, 2)) == "") is runs, capability


def test_a_cudnn_of_the_system_is_known_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcudnn.so.9.2.1").touch()
    (tmp_path / "libcudnn.so.9").symlink_to("libcudnn.so.9.2.1")
    monkeypatch.setattr(installed, "cudnn", lambda: None)
    monkeypatch.setattr(libraries, "_loader_cache", lambda: {"libcudnn.so.9": str(tmp_path / "libcudnn.so.9")})
    (found,) = libraries.cudnn([], True)
    assert (found.level, "loads cuDNN 9.2, and was built with 9.3" in found.what) == ("error", True)


def test_xla_aborts_on_blackwell_where_tensorflow_was_built_before_cuda_12_8(monkeypatch: pytest.MonkeyPatch) -> None:
    for built, capability, aborts in (
        ("12.5.1", (12, 0), True), ("12.5.1", (10, 0), True), ("12.5.1", (9, 0), False), ("12.5.1", None, False),
        ("12.8.0", (12, 0), False), ("13.0", (10, 3), False), (None, (12, 0), False),
    ):  # fmt: skip
        monkeypatch.setattr(installed, "build_info", lambda version=built: {"cuda_version": version})
        assert compatibility.xla_aborts(capability) is aborts, (built, capability)


def test_packages_of_2_18_to_2_20_have_no_code_for_blackwell(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, built, capability, lacks in (
        ("2.18.1", "12.5.1", (12, 0), True), ("2.19.1", "12.5.1", (10, 0), True), ("2.20.0", "12.5.1", (12, 1), True),
        ("2.20.0", "12.5.1", (9, 0), False), ("2.20.0", "12.5.1", None, False), ("2.21.0", "12.5.1", (12, 0), False),
        ("2.20.0", "12.8.0", (12, 0), False),
    ):  # fmt: skip
        monkeypatch.setattr(installed, "tensorflow_version", lambda version=version: version)
        monkeypatch.setattr(installed, "build_info", lambda built=built: {"cuda_version": built})
        assert bool(compatibility.lacks_code(capability)) is lacks, (version, built, capability)


def test_a_cudnn_with_which_xla_fails_matters_if_xla_works_on_one_of_the_chips(monkeypatch: pytest.MonkeyPatch) -> None:
    build = {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9.3.0"}
    monkeypatch.setattr(installed, "build_info", lambda: build)
    monkeypatch.setattr(installed, "cudnn_version", lambda: (9, 5))
    for chips, level in (
        ([], "warning"), ([(8, 0)], "warning"), ([(8, 0), (9, 0)], "warning"), ([(9, 0), (12, 0)], "warning"),
        ([(12, 0), (9, 0)], "warning"), ([None, (12, 0)], "warning"), ([(12, 0)], ""), ([(12, 0), (10, 0)], ""),
    ):  # fmt: skip
        found = list(libraries.cudnn([{"compute_capability": chip} for chip in chips], True))
        assert [finding.level for finding in found] == ([level] if level else []), chips
        assert all(finding.about == "XLA" for finding in found)
        notes = list(libraries.cudnn([{"compute_capability": chip} for chip in chips], False))
        assert [finding.level for finding in notes] == (["note"] if level else []), chips


def test_the_memory_limit_that_is_proposed_fits_the_gpu() -> None:
    for on in (VOLTA, TWO, BLACKWELL):
        for parts in (1, 2, 3, 4):
            together = f"memory_growth=off logical_devices={parts} memory_limit_mb="
            (finding, *_) = found_by("partitions", on, f"{together}999999")
            most = finding.change.removeprefix("give at most ")
            assert found_by("partitions", on, together + most) == [], (parts, finding)
            assert found_by("partitions", on, f"{together}{int(most) * 5 // 4}"), "it is most of what there is"
