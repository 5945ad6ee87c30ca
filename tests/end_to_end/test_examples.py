"""The worked examples of docs/own-code.md, each through the front door, in a copy of their folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.front_door import events, gputui

EXAMPLES = Path(__file__).parents[2] / "examples"
LEARNT = {"arrays": ("val_accuracy", 0.9, 2.0), "images": ("val_accuracy", 0.9, 2.0), "records": ("loss", 0.0, 1.0)}


def test_every_example_has_a_test_and_a_word_in_the_docs() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(LEARNT) == {p.stem for p in EXAMPLES.glob("*.yaml")}
    text = (EXAMPLES.parent / "docs" / "own-code.md").read_text()
    assert all(f"examples/{name}.py" in text for name in LEARNT)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNT)
def test_the_example_trains_and_every_option_of_its_preset_applies(name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES, tmp_path / "examples")
    done = gputui("--preset", f"{name}.yaml", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    told = events(done.stdout)
    started = next(event for event in told if event["type"] == "started")
    assert started["not_applied"] == []
    assert [event for event in told if event["type"] == "warning"] == []
    metric, least, most = LEARNT[name]
    assert least < told[-1]["summary"]["metrics"][metric] < most
