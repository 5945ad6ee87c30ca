"""What the checks read of earlier runs. What they find of options is in tests/contract/golden/answers/checks.txt."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.doors.engine import checks, options_json, presets, runs
from tests.support import recorded
from tests.support.checked import NONE, machine
from tests.support.training import options


def test_what_did_nothing_in_the_last_run_of_the_same_code_is_told(home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def build(context): ...\n")
    os.utime(tmp_path / "train.py", (recorded.BEGAN - 60, recorded.BEGAN - 60))
    entry = ("entry=train.py:build", f"workload.folder={tmp_path}")
    wanted = options(*entry, "batch_size=256", "cache=memory")
    assert checks.check(wanted, machine()) == checks.check(options(*entry), machine())
    run = recorded.write(home, name="a", seconds=14)
    run.file("options.json").write_text(options_json.to_json(options(*entry)))
    why = "your code has batched the data"
    events = [json.loads(line) for line in run.file("events.jsonl").read_text().splitlines()]
    known = {"inapplicable": {"input.batch_size": why}, "global_batch_size": 32}
    lines = [json.dumps(event | known if event["type"] == "started" else event) for event in events]
    run.file("events.jsonl").write_text("\n".join(lines) + "\n")
    (found,) = [one for one in checks.check(wanted, machine()) if "input.batch_size" in one.options]
    assert found.what == f"did nothing in the last run of this code: {why}"
    assert found.remedy.startswith("use context.global_batch_size")
    assert checks.own_batch(wanted) == 32
    assert checks.check(options(*entry), machine()) == [], "a default asks for nothing"
    os.utime(tmp_path / "train.py")
    assert checks.own_batch(wanted) is None, "the code has been changed since"


def test_a_long_training_without_a_checkpoint_is_told_with_its_time_before_it_starts(home: Path) -> None:
    def warned(*settings: str) -> list[str]:
        preset = presets.resolve("quickstart", settings)
        return [str(finding) for finding in checks.of_preset(preset, NONE) if finding.options == ("run.checkpoint",)]

    assert not warned("epochs=50")
    (message,) = warned("epochs=1000")
    assert message.startswith("run.checkpoint: 1,000 epochs, no checkpoint: a run that ends early cannot be resumed")
    assert not warned("epochs=1000", "checkpoint=epoch")
    preset = presets.resolve("quickstart", ["epochs=2", "seed=1"])
    run = runs.create("quickstart", preset.to_yaml())
    run.file("result.json").write_text('{"outcome": "ok", "seconds": 10.0, "startup_seconds": 4.0, "epochs": 2}')
    (message,) = warned("epochs=1000")
    assert "1,000 epochs, about 50 min, no checkpoint" in message
    assert not warned("epochs=100"), "five minutes"
    run.file("result-1.json").write_text('{"outcome": "stopped", "seconds": 6.0, "startup_seconds": 4.0, "epochs": 1}')
    assert "about 1.7 h" in warned("epochs=1000")[0], "the epochs of a resumed run are those of all its sittings"
    run.file("result-1.json").unlink()
    assert not warned("epochs=1000", "max_minutes=5")
    run.file("status.json").write_text('{"host": "other"}')
    assert "about" not in warned("epochs=1000")[0], "nor one of another machine"
    run.file("status.json").unlink()
    assert "about" not in warned("epochs=1000", "batch_size=64")[0], "a run of other settings tells nothing"
