"""A training whose memory runs out goes on by itself where it is asked to, and ends as an undisturbed one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from gputui.engine import presets, runs
from gputui.engine.runs import Run
from gputui.engine.runs.titles import title

from tests.support.forking import Forks, trainer_of
from tests.support.front_door import Finished, events, gputui, happened
from tests.support.own import PROGRAMS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left_running")]

OWN = (f"entry={PROGRAMS / 'runs_out.py'}:build", f"workload.folder={PROGRAMS}", "batch_size=19", "epochs=3",
       "validation_split=0", "seed=3")  # fmt: skip


def losses(found: Sequence[dict[str, Any]]) -> list[float]:
    """The figures of each epoch, as they were told last."""
    by_epoch = {event["epoch"]: event["metrics"] for event in found}
    return [value for _, metrics in sorted(by_epoch.items()) for _, value in sorted(metrics.items())]


def trained(*settings: str, **more: Any) -> tuple[Finished, Run]:
    words = [word for setting in settings for word in ("--set", setting)]
    done = gputui("--preset", "quickstart", "--json", *words, timeout=300, **more)
    return Finished(done.returncode, events(done.stdout), done.stderr), runs.find("latest")


def undisturbed(forks: Forks, *settings: str) -> list[float]:
    run, trainer = trainer_of(presets.resolve("quickstart", settings))
    forks.run(trainer)
    return losses(happened(run, "epoch"))


def times_left(folder: Path, times: int) -> str:
    """The setting with which memory runs out so many times."""
    (folder / "left").write_text(str(times))
    return f"args={{times_left: {folder / 'left'}}}"


@pytest.mark.usefixtures("forked_trainers")
def test_a_training_goes_on_from_its_last_step_with_the_same_batch_in_parts(tmp_path: Path, forks: Forks) -> None:
    sends = f"notify.command=echo $GPUTUI_NOTICE_OUTCOME >> {tmp_path}/sent"
    done, run = trained(*OWN, times_left(tmp_path, 2), "on_oom=accumulate", "run.checkpoint=4", sends)
    assert (tmp_path / "sent").read_text() == "ok\n", "one notice, at the real end"
    assert done.code == 0, done.errors
    result = done.only("finished")["summary"]
    assert result["outcome"] == "ok"
    assert result == run.result
    answers = result["memory_answers"]
    assert [(one["answer"], one["option"], one["before"], one["after"]) for one in answers] == [
        ("accumulate", "train.micro_batches", 1, 2), ("accumulate", "train.micro_batches", 2, 4),
    ]  # fmt: skip
    assert [one["resumes_at_step"] for one in answers] == [12, 24]
    assert [event["message"] for event in done.of("memory_answer")] == [one["message"] for one in answers]
    told = [event["message"] for event in done.of("warning") if event["kind"] == "out_of_memory"]
    assert told[1].endswith("the training goes on from step 24 with each batch of 19 in 4 parts")
    assert yaml.safe_load(run.file("preset.yaml").read_text())["train"]["micro_batches"] == 4
    assert str(title(run)).startswith("quickstart: micro_batches=4 batch_size=19")
    assert {started["global_batch_size"] for started in done.of("started")} == {19}
    assert result["steps"] == 30
    # The same losses but for rounding: each step has added up its gradients in another order.
    assert losses(done.of("epoch")) == pytest.approx(undisturbed(forks, *OWN), rel=1e-5)
    assert run.whole_result["seconds"] > result["seconds"]
    assert [runs.Run(run.path).file(f"result-{number}.json").exists() for number in (1, 2, 3)] == [True, True, False]


@pytest.mark.usefixtures("forked_trainers")
def test_a_training_begins_again_with_half_the_batch_and_keeps_what_it_had(tmp_path: Path, forks: Forks) -> None:
    done, run = trained(*OWN, times_left(tmp_path, 1), "on_oom=halve", "run.checkpoint=4")
    assert done.code == 0, done.errors
    (answer,) = done.only("finished")["summary"]["memory_answers"]
    assert (answer["option"], answer["before"], answer["after"]) == ("input.batch_size", 19, 9)
    assert answer["resumes_at_step"] is None
    (told,) = [event for event in done.of("warning") if event["kind"] == "out_of_memory"]
    assert "begins again with batch size 9 instead of 19" in told["message"]
    assert told["hint"].startswith("the learning rate stays as it is (your code has chosen the optimizer); ")
    assert [path.name for path in sorted(run.file("checkpoints-1").iterdir())] == ["step-0000000008", "step-0000000012"]
    alone = undisturbed(forks, *(setting.replace("batch_size=19", "batch_size=9") for setting in OWN))
    assert losses(done.of("epoch")) == pytest.approx(alone, rel=1e-6)
