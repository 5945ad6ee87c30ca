"""The wheel: it holds every file of the packages and nothing else, and brings no TensorFlow by itself."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.doors.engine import supported_versions as versions
from tests.support.needs import require

ROOT = Path(__file__).parents[1]
PACKAGES = ("engine", "examples", "presets", "tui")
LINK = re.compile(r"\]\(([^)\s]+)\)")
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """The wheel as pip builds it, from what the Dockerfile copies: .dockerignore leaves out all but its exceptions."""
    copy, made = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("wheel")
    for name in [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]:
        (copy / name).parent.mkdir(exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    done = subprocess.run([sys.executable, "-c", BUILD, made], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = made.glob("*.whl")
    return ZipFile(path)


def tracked() -> list[str]:
    """The files of the repository but those of the tests, which the source archive leaves out."""
    require("git")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if not name.startswith("tests/") and (ROOT / name).is_file()]


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: ZipFile) -> None:
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    own = {f"gputui/{path.relative_to(ROOT)}" for path in files if "__pycache__" not in path.parts}
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert own == packed
    assert wheel.read("gputui/tui/commands/own-code.md") == (ROOT / "docs/own-code.md").read_bytes()  # a link to it
    licences = {name.partition("/licenses/")[2] for name in wheel.namelist()}
    assert {"LICENSE", "engine/trainer/data/DIGITS.md"} <= licences


def test_the_description_has_no_links_that_lead_nowhere(wheel: ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
    description = wheel.read(name).decode().partition("\n\n")[2]
    assert description.startswith("gputui trains TensorFlow")
    assert [link for link in LINK.findall(description) if not link.startswith("https://")] == []


def test_the_source_archive_holds_what_its_readme_and_make_need(tmp_path: Path) -> None:
    """Every file that README.md links to, and what `make demo` reads."""
    for name in tracked():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name, follow_symlinks=False)
    program = BUILD.replace("build_wheel(sys.argv[1])", "build_sdist(sys.argv[1])")
    done = subprocess.run(
        [sys.executable, "-c", program, "."], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        packed = {member.partition("/")[2] for member in archive.getnames()}
    links = {link.partition("#")[0] for link in LINK.findall((ROOT / "README.md").read_text())}
    local = {link for link in links if "://" not in link}
    assert "docs/faster.png" in local
    assert local | {"Makefile", "requirements.lock", "pyproject.toml", "LICENSE"} <= packed


def test_the_wheel_leaves_an_installed_tensorflow_as_it_is(wheel: ZipFile) -> None:
    """Neither TensorFlow nor what it asks for in certain versions is required, but by the extras."""
    (name,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
    lines = [line.partition(": ")[2] for line in wheel.read(name).decode().splitlines() if line.startswith("Requires")]
    always = " ".join(line for line in lines if "extra ==" not in line)
    assert "textual" in always
    for package in ("tensorflow", "keras", "numpy", "protobuf", "ml-dtypes", "h5py"):
        assert package not in always
    for extra in ("cuda", "tensorflow"):
        assert [line for line in lines if line.startswith("tensorflow") and f'extra == "{extra}"' in line]


def test_the_package_asks_for_the_same_range() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {match for name in ("cuda", "tensorflow") for line in extras[name]
             for match in re.findall(r"^tensorflow\S*?>=2\.(\d+),<2\.(\d+)", line)}  # fmt: skip
    oldest, newest = versions.OLDEST_TENSORFLOW, versions.NEWEST_TENSORFLOW
    assert asked == {(str(oldest[1]), str(newest[1] + 1))}
