"""The preset that a search saves says at each changed value why it stands, and keeps the user's own comments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gputui.engine import presets
from gputui.engine.options import Options
from gputui.engine.proof import folder, improved_preset, request
from gputui.engine.trials.record import Record
from gputui.engine.trials.search_record import Limits

from tests.support.proving import Planted, searching
from tests.support.typed import typed

BLOCK = """\
# My training.
workload:
  model: cnn
  data: digits
input:
  batch_size: 32   # fits my laptop
train:
  seed: 1
  learning_rate: 0.001  # as ever
compile:
  steps_per_execution: 1
"""
BRACES = """\
# My training.
workload: {model: cnn, data: digits}  # small
train: {seed: 1}
input: {batch_size: 32, shuffle: off}
"""


def figures(options: Options, before: int) -> Planted:
    """Batches of 128 are the fastest, and learn worse than those of 64 at the same learning rate."""
    batch, together = options.input.batch_size, options.compile.steps_per_execution
    learns = batch <= 64 or options.train.learning_rate > 0.001
    return Planted(
        samples_per_second=1000 * (batch / 32) ** 0.5 * (1.2 if together >= 4 else 1.0), loss=0.5 if learns else 0.7
    )


def saved(source: Path, target: Path, *settings: str, **limits: Any) -> str:
    """Search from this preset, save what was found, and return the file's text."""
    only = ["batch_size", "steps_per_execution"]
    wanted = request.of_preset("tune", str(source), settings, search=Limits(only=only, largest_batch=128, **limits))
    made = folder.create(replace(wanted, seed=7))
    searcher, _ = searching(made.path, wanted, figures)
    searcher.run()
    searcher.record.state = "done"
    searcher.record.write("ended")
    improved_preset.save(made, target)
    kept = presets.resolve(str(target)).options
    assert kept.input.batch_size == searcher.record.changes_kept["input.batch_size"]
    assert kept.compile.steps_per_execution == 7
    return target.read_bytes().decode()


@pytest.mark.usefixtures("home")
def test_each_changed_value_says_why_it_stands(tmp_path: Path) -> None:
    source = tmp_path / "mine.yaml"
    source.write_text(BLOCK)
    text = saved(source, tmp_path / "best.yaml")
    assert text.startswith("# tuned: all changes: 1.70 times as fast as the preset that it was made from, ")
    assert "\n# My training.\n" in text
    assert "  # tuned: batch_size: 128 is faster and learns worse; validation loss 0.5, 0.5 with the preset's\n" in text
    assert "  batch_size: 64   # fits my laptop\n" in text
    assert "  steps_per_execution: 7  # tuned: tried alone: 1.20 times as fast as 1 (spread 4.2 %)\n" in text
    assert "  learning_rate: 0.001  # as ever\n" in text

    source.write_bytes(BRACES.replace("\n", "\r\n").encode())
    text = saved(source, tmp_path / "scaled.yaml", learning_rate="linear")
    assert "# tuned: batch_size: tried alone: 2.00 times as fast as 32 (spread 6.0 %)\r\ninput: {batch_size: 1" in text
    assert "# tuned: learning_rate: scaled in proportion to the batch size\r\ntrain: {seed: 1, learning_r" in text
    assert text.count("\n") == text.count("\r\n")


@pytest.mark.usefixtures("home")
def test_tuning_again_replaces_the_comments(tmp_path: Path) -> None:
    source = tmp_path / "mine.yaml"
    source.write_text(BLOCK)
    first = saved(source, tmp_path / "best.yaml")
    again = tmp_path / "again.yaml"
    again.write_text(first.replace("batch_size: 64", "batch_size: 32").replace("execution: 7", "execution: 1"))
    assert saved(again, tmp_path / "twice.yaml") == first


def test_a_smaller_batch_that_was_kept_as_the_preset_does_not_fit_is_not_called_faster() -> None:
    tried = {"stage": "batch_size", "tried": {"input.batch_size": 24}, "decision": "kept", "gain": 1.0, "spread": 0.1}
    data: dict[str, Any] = {
        "kind": "tune", "changes_kept": {"input.batch_size": 24}, "gain_total": None, "comparisons": [],
        "search": {"candidates": [tried]},
    }  # fmt: skip
    assert improved_preset.reasons(typed(Record, data), {"input.batch_size": 32}) == {
        "input.batch_size": "32 runs out of memory"
    }
    assert improved_preset.in_total(typed(Record, data)) == "the preset that it was made from runs out of memory"


def test_what_was_kept_instead_of_another_option_is_compared_with_the_preset() -> None:
    """XLA with the precision as it was is a third faster than the mixed precision, which had gained a quarter."""
    steps, policy, xla = "compile.steps_per_execution", "precision.policy", "compile.xla"
    tried = [({steps: 64}, 0.5), ({policy: "mixed_bfloat16"}, 0.25), ({xla: True, policy: "float32"}, 1 / 3)]
    candidates = [{"tried": one, "decision": "kept", "gain": gain, "spread": 0.03} for one, gain in tried]
    data: dict[str, Any] = {"changes_kept": {steps: 64, xla: True}, "search": {"candidates": candidates}}
    assert improved_preset.reasons(typed(Record, data), {steps: 1, policy: "float32", xla: False}) == {
        steps: "tried alone: 1.50 times as fast as 1 (spread 3.0 %)",
        xla: "tried alone: 1.67 times as fast as false (spread 4.2 %)",
    }


def test_what_was_kept_with_others_first_is_not_told_as_tried_alone() -> None:
    """16 steps gained with the prefetch, then 4 instead of 16 alone."""
    steps, prefetch = "compile.steps_per_execution", "input.prefetch"
    tried = [({steps: 16, prefetch: "auto"}, 0.25), ({steps: 4}, 0.2)]
    candidates = [{"tried": one, "decision": "kept", "gain": gain, "spread": 0.03} for one, gain in tried]
    data: dict[str, Any] = {"changes_kept": {steps: 4, prefetch: "auto"}, "search": {"candidates": candidates}}
    assert improved_preset.reasons(typed(Record, data), {steps: 1, prefetch: "off"}) == {
        steps: "tried with prefetch=auto: 1.50 times as fast as 1 (spread 4.2 %)",
        prefetch: "tried with steps_per_execution=16: 1.25 times as fast as off (spread 3.0 %)",
    }


def ended(source: str, changes_kept: dict[str, Any], **search: Any) -> folder.Proof:
    """A search of a preset without a description that has ended."""
    before = replace(presets.defaults(["input.batch_size=32"]), description="")
    proof = SimpleNamespace(
        id="p",
        record=typed(Record, {"kind": "tune", "state": "done", "changes_kept": changes_kept, "search": search}),
        request=SimpleNamespace(baseline=lambda: before, source=source),
    )
    return cast(folder.Proof, proof)


def test_settings_that_are_not_proved_say_so_in_the_description() -> None:
    proved, best = {"input.batch_size": 64}, {"input.batch_size": 128}
    taken = improved_preset.preset(ended("", proved, unproved=best))
    assert (taken.options.input.batch_size, taken.description) == (64, "")
    taken = improved_preset.preset(ended("", {}, unproved=best))
    assert (taken.options.input.batch_size, taken.description) == (128, "(tuned, not proved)")
    with pytest.raises(request.ProofError, match="p has kept no change: there is nothing to save"):
        improved_preset.preset(ended("", {}))


@pytest.mark.parametrize("source", ["", "gone.yaml", "mine.yaml"])
def test_a_preset_whose_file_is_gone_is_saved_without_its_comments(source: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(BLOCK)
    target = tmp_path / "best.yaml"
    improved_preset.save(ended(str(tmp_path / source) if source else "", {"input.batch_size": 64}), target)
    assert presets.resolve(str(target)).options.input.batch_size == 64
    assert ("# My training." in target.read_text()) is (source == "mine.yaml")


def test_a_file_that_a_preset_cannot_be_saved_in_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "there.yaml").touch()
    (tmp_path / "empty.yaml").mkdir()

    def refused(path: Path) -> str:
        with pytest.raises(request.ProofError) as fault:
            improved_preset.refuse(path)
        return str(fault.value)

    for name in ("new.yaml", "new.yml"):
        improved_preset.refuse(tmp_path / name)
    for name in ("new", "new.yaml.txt", "new.YAML", "yaml"):
        path = tmp_path / name
        assert refused(path) == f"{path}: give a file that ends in .yaml, so that --preset finds it"
    assert refused(tmp_path / "there.yaml").startswith(f"{tmp_path / 'there.yaml'} exists, and is not overwritten; ")
    assert refused(tmp_path / "empty.yaml") == f"{tmp_path / 'empty.yaml'} is a folder; name a file"
    for folder_of in ("file", "missing"):
        assert refused(tmp_path / folder_of / "new.yaml") == f"{tmp_path / folder_of} is not a folder"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.yaml", "file", "there.yaml"], "nothing is made"
