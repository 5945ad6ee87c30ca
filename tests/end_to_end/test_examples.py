"""The worked examples of docs/own-code.md, each trained in a copy of their folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from gputui.engine import presets

from tests.support.cases import all_hold
from tests.support.forking import Forks, trainer_of
from tests.support.front_door import happened

EXAMPLES = Path(__file__).parents[2] / "examples"
LEARNT = {"arrays": ("val_accuracy", 0.9, 2.0), "images": ("val_accuracy", 0.9, 2.0), "records": ("loss", 0.0, 1.0)}


def test_every_example_has_a_test_and_a_word_in_the_docs() -> None:
    assert {path.stem for path in EXAMPLES.glob("[!_]*.py")} == set(LEARNT) == {p.stem for p in EXAMPLES.glob("*.yaml")}
    text = (EXAMPLES.parent / "docs" / "own-code.md").read_text()
    assert all(f"examples/{name}.py" in text for name in LEARNT)


@pytest.mark.slow
def test_the_examples_train_and_every_option_of_their_presets_applies(
    tmp_path: Path, forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(EXAMPLES, tmp_path / "examples"))
    trainers = {name: trainer_of(presets.resolve(f"{name}.yaml")) for name in LEARNT}
    forks.run(*(trainer for _, trainer in trainers.values()))
    with all_hold() as cases:
        for name, (run, _) in trainers.items():
            with cases.case(name):
                assert run.state == "ok"
                (started,) = happened(run, "started")
                assert started["not_applied"] == []
                assert happened(run, "warning") == []
                metric, least, most = LEARNT[name]
                assert least < (run.result or {})["metrics"][metric] < most
