"""All that the checks find of options on machines of all kinds, in golden/answers/checks.txt."""

from __future__ import annotations

import re
import shutil
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.contract.conftest import HERE, Golden
from tests.doors.engine import Finding, checks, presets
from tests.support.cases import all_hold
from tests.support.checked import install, named, sites

FILE = "answers/checks.txt"
PROGRAMS = Path(__file__).parents[1] / "support/programs"
CIFAR10 = "keras/datasets/cifar-10-batches-py-target.tar.gz"
NOW = 1_796_120_000.0


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with data and code, outside of any job, at a known time."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROGRAMS, "programs", ignore=shutil.ignore_patterns("__pycache__"))
    for name, arrays in (("labels", "x labels"), ("test", "x y x_test"), ("whole", "x_train y_train x_test y_test")):
        with zipfile.ZipFile(f"{name}.npz", "w") as file:
            for array in arrays.split():
                file.writestr(f"{array}.npy", b"")
    for name in ("no.npz", "empty1.rec", "empty2.rec"):
        Path(name).touch()
    for folder in ("one/cats", "one/.thumbnails", "two/cats", "two/dogs", "three/a", "three/b", "three/c"):
        Path(folder).mkdir(parents=True)
    sites(Path("site"))
    Path("keras/datasets").mkdir(parents=True)
    for image in ("two/cats/1.png", "two/dogs/2.JPG", "three/a/1.png", "three/b/1.txt", "three/c/1.png", CIFAR10):
        Path(image).touch()
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH", "GPUTUI_PYTHON", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setenv("KERAS_HOME", "keras")


def checked(words: str, settings: str) -> list[Finding]:
    with pytest.MonkeyPatch.context() as patched:
        install(words, Path("site"), patched)
        preset = presets.defaults(["drop_remainder=true", *(each.replace("␣", " ") for each in settings.split())])
        return checks.of_preset(preset, named(words, patched))


def asked(question: str) -> Iterator[tuple[str, list[Finding]]]:
    """Each of the settings of a question with its findings."""
    words, _, several = question.partition(" | ")
    return ((settings, checked(words, settings)) for settings in several.split("; "))


def test_each_rule_has_a_section(golden: Golden) -> None:
    lines = (HERE / "golden" / FILE).read_text(encoding="utf-8").splitlines()
    sections = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    assert sections[1:] == [*(rule.__name__ for rule in checks.RULES), "unkept"]


# ---- each change that a finding proposes removes its cause ---------------------------------------

OPTION = r"[a-z]+\.[a-z_]+"
VALUE = r"[a-z\d_]+(?:[.,:]\d+)*"
VALUES = rf"{VALUE}(?:(?:, | or ){VALUE}(?!\.))*"


def proposed(finding: Finding) -> Iterator[Mapping[str, str | None]]:
    """Each change that the finding proposes: values of options, or None for an option that is to be removed."""
    change = "" if "pip install" in finding.remedy else finding.remedy
    for alternative in re.split(r"[,;]? or |; ", change):
        if settings := re.findall(rf"\b({OPTION})=({VALUE})", alternative):
            yield dict(settings)
        if removed := re.search(rf"remove ({OPTION})", alternative):
            yield {removed[1]: None}
    for option, values in re.findall(
        rf"(?:set ({OPTION}|it) to (?:at most )?|give at most )({VALUES})(?: and name|[:;] |, or|$)", change
    ):
        keys = option if "." in option else finding.options[0]
        yield from ({keys: value} for value in re.split(", | or ", values))
    if change == "set one of them to false":
        yield from ({option: "false"} for option in finding.options)
    if change == "keep one of them":
        yield from (dict.fromkeys(finding.options[:position]) for position in range(1, len(finding.options)))


def test_all_that_is_found_and_is_gone_after_each_change_that_it_proposes(golden: Golden) -> None:
    tried: dict[tuple[str, str], tuple[str, str, Finding, Mapping[str, str | None]]] = {}

    def answer(question: str) -> Iterator[str]:
        words, several, found = question.partition(" | ")[0], "; " in question, asked(question)
        for settings, finding in ((settings, finding) for settings, all_ in found for finding in all_):
            line = f"{settings}: {finding.line}" if several else finding.line
            yield line.replace(str(Path.cwd()), "HERE")
            for change in proposed(finding):
                tried.setdefault((finding.what, str(change)), (words, settings, finding, change))

    golden.answers(FILE, answer)
    with all_hold() as cases:
        for words, settings, finding, change in tried.values():
            with cases.case(f"{words} {settings}: {finding.remedy}: {change}"):
                kept = [setting for setting in settings.split() if not _sets(setting, change)]
                more = [f"{option}={value}" for option, value in change.items() if value is not None]
                assert finding.what not in [left.what for left in checked(words, " ".join([*kept, *more]))]
    assert cases.count > 90  # else the words of the proposals are not understood any more


def _sets(setting: str, options: Mapping[str, str | None]) -> bool:
    name = setting.partition("=")[0]
    return any(name in (option, option.partition(".")[2]) for option in options)
