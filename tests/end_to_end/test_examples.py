"""The worked examples of docs/own-code.md, each trained in a copy of their folder."""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.doors.engine import Run, presets
from tests.support.cases import all_hold
from tests.support.exporting import trained_by_both
from tests.support.forking import Forks, Program, trainer_of
from tests.support.front_door import happened

EXAMPLES = Path(__file__).parents[2] / "examples"
# Preset -> a metric at the end of the run, and its limits. Presets with an underscore need files of those without.
LEARNT = {
    "arrays": ("val_accuracy", 0.9, 2.0),
    "images": ("val_accuracy", 0.9, 2.0),
    "records": ("loss", 0.0, 1.0),
    "two-phases": ("val_accuracy", 0.5, 0.9),
    "two-phases-unfrozen": ("val_accuracy", 0.95, 2.0),
    "distillation": ("val_accuracy", 0.95, 2.0),
    "quantisation": ("val_accuracy", 0.85, 2.0),
}
TEACHER, STUDENT = "distillation", "distillation-student"
IN_EXTRAS = {"lora"}  # tests/extras/test_lora.py
SECOND = {"two-phases-unfrozen"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(copy)
    return copy


def test_every_example_has_a_test_and_a_word_in_the_docs() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == {*LEARNT, STUDENT, *IN_EXTRAS}
    text = (EXAMPLES.parent / "docs" / "own-code.md").read_text()
    for path in EXAMPLES.glob("[!_]*.py"):
        assert path.with_name(f"{path.stem.replace('_', '-')}.yaml").exists()
        assert f"examples/{path.name}" in text


def applies(run: Run) -> bool:
    """Whether the run trained to its end, and every option of its preset applied."""
    (started,) = happened(run, "started")
    return run.state == "ok" and started["not_applied"] == [] and happened(run, "warning") == []


def learns(name: str, run: Run) -> None:
    assert applies(run)
    metric, least, most = LEARNT[name]
    assert least < (run.result or {})["metrics"][metric] < most


@pytest.mark.nightly
def test_the_examples_train_and_every_option_of_their_presets_applies(folder: Path, forks: Forks) -> None:
    first = {name: trainer_of(presets.resolve(f"{name}.yaml")) for name in LEARNT if name not in {*SECOND, TEACHER}}
    forks.run(*(trainer for _, trainer in first.values()))
    second = {name: trainer_of(presets.resolve(f"{name}.yaml")) for name in SECOND}
    quantised = Program(str(folder), str(folder / "quantised.out"), ["quantisation.py"])
    forks.run(*(trainer for _, trainer in second.values()), quantised)
    runs = {name: run for name, (run, _) in (first | second).items()}
    with all_hold() as cases:
        for name, run in runs.items():
            with cases.case(name):
                learns(name, run)
        with cases.case("the second phase begins with the weights of the first"):
            begun = happened(runs["two-phases-unfrozen"], "epoch")[0]["metrics"]["loss"]
            assert begun < 0.8 * (runs["two-phases"].result or {})["metrics"]["loss"]
        with cases.case("int8 takes less than a third, and loses less than 2 % of accuracy"):
            rows = re.findall(r"\.keras +(\d+) kB +accuracy ([\d.]+)", (folder / "quantised.out").read_text())
            (size, accuracy), (size8, accuracy8) = ((int(kilobytes), float(share)) for kilobytes, share in rows)
            assert size8 < size / 3
            assert abs(accuracy8 - accuracy) < 0.02


@pytest.mark.nightly
def test_a_student_learns_from_its_teacher_as_its_exported_script_does(folder: Path, forks: Forks) -> None:
    """The fit of the script keeps a backup."""
    if not (Path(find_spec("keras").origin).parent / "distillation").exists():  # type: ignore[union-attr, arg-type]
        pytest.skip("this Keras distils nothing")
    teacher, trainer = trainer_of(presets.resolve(f"{TEACHER}.yaml"))
    forks.run(trainer)
    learns(TEACHER, teacher)
    run, ours, theirs = trained_by_both(forks, presets.resolve(f"{STUDENT}.yaml", ["shuffle=off"]), folder)
    assert applies(run)
    assert theirs == pytest.approx(ours, rel=1e-4)
    told = [event["metrics"]["distillation_loss"] for event in happened(run, "epoch")]
    assert 0 < told[-1] < told[0] / 5
    assert Path("student.keras").stat().st_size < Path("teacher.keras").stat().st_size / 4
