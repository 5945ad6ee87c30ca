"""Which TensorFlow and Keras gputui trains with, and what it says of others, by what pip has listed as installed."""

from __future__ import annotations

import json
import os
import platform
import re
import runpy
import tomllib
from pathlib import Path

import pytest
from gputui.engine.interpreter import interpreter
from gputui.engine.interpreter import supported_versions as versions
from gputui.engine.tune.wide import storage
from packaging.requirements import Requirement

from tests.support.front_door import gputui
from tests.support.machines import put

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def listed(site: Path, **packages: str) -> dict[str, str]:
    """The environment of a process before whose packages these stand in pip's list; files of theirs are not there."""
    for name, version in packages.items():
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"
        put(site, {f"{name}-{version}.dist-info/METADATA": about})
    return os.environ | {"PYTHONPATH": str(site)}


def test_versions_outside_of_the_range() -> None:
    said = {
        (tensorflow, keras): [remark.level for remark in versions.remarks(tensorflow, keras, str.upper)]
        for tensorflow in ("2.9.3", "2.17.1", "2.18.0", "2.21.0", "2.22.0rc0", "2.22.0.dev20261120", None)
        for keras in ("3.9.2", "3.10.0", "3.15.1", "3.16.0.dev2026102704", None)
    }
    of_one = {"2.9.3": ["error"], "2.17.1": ["error"], "2.22.0rc0": ["warning"], "2.22.0.dev20261120": ["warning"],
              "3.9.2": ["error"], "3.16.0.dev2026102704": ["warning"]}  # fmt: skip
    expected = {(one, other): of_one.get(str(one), []) + of_one.get(str(other), []) for one, other in said}
    assert said == expected


def test_the_package_asks_for_the_same_range() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    asked = {match for name in ("cuda", "tensorflow") for line in extras[name]
             for match in re.findall(r"^tensorflow\S*?>=2\.(\d+),<2\.(\d+)", line)}  # fmt: skip
    oldest, newest = versions.OLDEST_TENSORFLOW, versions.NEWEST_TENSORFLOW
    assert asked == {(str(oldest[1]), str(newest[1] + 1))}


def test_no_cuda_is_installed_where_tensorflow_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GH200, whose processor is an ARM."""
    cuda = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]["cuda"]
    for processor, extra in (("x86_64", "[and-cuda]"), ("aarch64", "")):
        monkeypatch.setattr(platform, "machine", lambda processor=processor: processor)
        assert runpy.run_path(str(versions.__file__))["TENSORFLOW"] == f"tensorflow{extra}>=2.18,<2.22"
        here = {"sys_platform": "linux", "platform_machine": processor}
        (installed,) = [
            found for found in map(Requirement, cuda) if found.marker is None or found.marker.evaluate(here)
        ]
        assert installed.extras == ({"and-cuda"} if extra else set())


def test_what_pip_is_to_install_is_what_the_package_asks_for() -> None:
    """And never gputui itself: there is no such package on PyPI, so that the name may be anybody's."""
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    asked = {line.partition(";")[0] for lines in extras.values() for line in lines} | {versions.KERAS}
    own = interpreter.own()
    told = {own.install(versions.TENSORFLOW), own.install(versions.KERAS), storage.MISSING}
    told |= {path.read_text() for folder in ("engine", "tui") for path in (PYPROJECT.parent / folder).rglob("*.py")}
    named = {name for text in told for name in re.findall(r"pip install (?:--python \S+ )?'([^'{]+)'", text)}
    ranged = {name for name in named if ">=2." in name or ">=5" in name or "keras" in name}
    assert ranged <= asked, ranged - asked
    assert {"optuna>=5,<6", "xprof>=2.24", versions.TENSORFLOW, versions.KERAS} <= named
    assert not [name for name in named if name.startswith("gputui")]


def test_another_tensorflow_is_refused_or_warned_of_before_anything_starts(tmp_path: Path, home: Path) -> None:
    for packages, code, words in (
        ({"tensorflow": "2.17.1"}, 2, "TensorFlow 2.17.1 is too old: gputui trains with TensorFlow 2.18 to 2.21; "),
        ({"keras": "3.6.0"}, 2, "Keras 3.6.0 is too old: gputui trains with Keras 3.10 to 3.15; "),
        ({"tensorflow": "2.23.0"}, 0, "warning: TensorFlow 2.23.0 is newer than gputui has been tested with (2.18 to"),
    ):
        site = tmp_path / "-".join(packages.values())
        done = gputui("--preset", "quickstart", "--dry-run", env=listed(site, **packages))
        assert (done.returncode, words in done.stderr, done.stderr.count("\n")) == (code, True, 1), done.stderr
        found = json.loads(gputui("doctor", "--json", env=listed(site, **packages)).stdout)["findings"]
        level = "error" if code else "warning"
        assert [one for one in found if one["level"] == level and one["what"][:20] in words], found
    assert not home.exists()
