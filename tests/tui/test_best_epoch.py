"""The sentences about the best epochs of a run, from its result."""

from __future__ import annotations

from typing import Any

from gputui.tui.wording.best_epoch import sentences

EARLY = {"option": "train.early_stop", "figure": "val_loss", "epoch": 7, "value": 0.3121, "files": [], "restores": True}
KEPT = {
    "option": "run.keep_best", "figure": "val_loss", "epoch": 7, "value": 0.3121,
    "files": [{"epoch": 7, "value": 0.3121, "file": "best/epoch-0007.keras"}],
}  # fmt: skip
ELSEWHERE: dict[str, Any] = KEPT | {"figure": "val_accuracy", "epoch": 8, "value": 0.9, "files": [
    {"epoch": 8, "value": 0.9, "file": "best/epoch-0008.keras"},
    {"epoch": 6, "value": 0.8, "file": "best/epoch-0006.keras"},
]}  # fmt: skip


def test_the_result_says_why_it_ended_which_epoch_was_best_and_where_it_is_kept() -> None:
    stopped = "stopped early after epoch 12: val_loss has not improved for 5 epochs; best 0.312 in epoch 7"
    for ended_by, best, expected in (
        ("early_stop", [KEPT, EARLY], [f"{stopped}, whose weights the model has, kept in best/epoch-0007.keras"]),
        ("early_stop", [EARLY | {"restores": False}], [stopped]),
        (
            "last_step",
            [ELSEWHERE, EARLY],
            [
                "best val_loss 0.312 in epoch 7, whose weights the model has",
                "best val_accuracy 0.9 in epoch 8, kept in best/epoch-0008.keras and 1 more",
            ],
        ),
        (None, [EARLY, KEPT], ["best val_loss 0.312 in epoch 7, kept in best/epoch-0007.keras"]),  # it crashed
        (
            "last_step",
            [ELSEWHERE | {"files": [{"file": ""}, *ELSEWHERE["files"]]}],  # the file of one is not there
            ["best val_accuracy 0.9 in epoch 8, kept in best/epoch-0008.keras and 1 more"],
        ),
        (
            "last_step",
            [ELSEWHERE | {"epoch": 7, "files": []}, EARLY],
            [
                "best val_loss 0.312 in epoch 7, whose weights the model has",
                "best val_accuracy 0.9 in epoch 7",
            ],
        ),
        ("last_step", [], []),
    ):
        assert list(sentences({"epochs": 12, "ended_by": ended_by, "best": best})) == expected
