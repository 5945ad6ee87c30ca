"""Exact texts that views and commands share, and at which values they change: ends, differences, widths, columns."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import checks
from gputui.engine.compare.comparison import Comparison, FigureRow, OptionRow
from gputui.engine.compare.over_seeds import SeedFigure, SeedGroup
from gputui.engine.doctor import HIDDEN, Finding
from gputui.engine.files import run_numbers
from gputui.engine.profile.layer_times import LayerTime
from gputui.engine.profile.reports import ProfileReport
from gputui.engine.profile.xprof_tables import InputStage, InputTime, Operation, Shares
from gputui.engine.runs import Run, events, titles
from gputui.engine.runs.parsing import dated
from gputui.engine.runs.titles import Notes, Title
from gputui.engine.text_table import Table
from gputui.tui.drawing.interval_bar import Interval
from gputui.tui.printing import diagnosis, interval_table, plain_tables, run_progress
from gputui.tui.printing import runs as printed_runs
from gputui.tui.reading.run_list import Entry
from gputui.tui.wording import comparison, doctor
from gputui.tui.wording import run as wording
from rich.console import Console

GIB = 1024**3
Printed = pytest.CaptureFixture[str]


# ---- a run in words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "step", "steps", "early"),
    [("ok", 9, 10, True), ("ok", 10, 10, False), ("ok", 11, 10, False), ("stopped", 9, 10, False),
     ("ok", None, 10, False), ("ok", 9, None, False), ("ok", 9, 899_999_999, True), ("ok", 9, 900_000_000, False)],
)  # fmt: skip
def test_a_training_ended_early_if_it_is_ok_before_its_last_step(
    outcome: str, step: float | None, steps: float | None, early: bool
) -> None:
    assert wording.is_early(outcome, step, steps) is early


def test_phases_in_words_and_in_brief() -> None:
    phases = (("starting", ""), ("compiling", ""), ("compiling", "evaluation"), ("compiling", "smaller batch"),
              ("compiling", "XLA"), ("building", "the model"), ("saving", "checkpoint"), ("training", "x"),
              ("configuring", "waiting for worker 1 (b:1)"), ("configuring", ""), ("other", ""))  # fmt: skip
    assert [(wording.doing(*phase), wording.brief(*phase)) for phase in phases] == [
        ("starting the engine", "engine"), ("compiling the first step", "first step"),
        ("compiling the evaluation", "compiling the evaluation"),
        ("compiling for a smaller last batch", "compiling for a smaller last batch"),
        ("compiling the first step", "first step"), ("building the model", "building"),
        ("saving checkpoint", "saving"), ("training", "training"),
        ("waiting for worker 1 (b:1)", "other workers"), ("opening the devices", "devices"), ("other", "other"),
    ]  # fmt: skip


def test_a_next_step_is_proposed_without_a_verdict_and_a_remedy() -> None:
    proposed = [wording.next_step(diagnosed) != "" for diagnosed in (
        {"verdict": "undecided"}, {"verdict": "healthy"}, {"verdict": "undecided", "remedies": [{}]}, {})]  # fmt: skip
    assert proposed == [True, False, False, False]


def test_the_workers_and_the_slowest_of_them() -> None:
    known = {"samples_per_second": 120.0, "step_ms_p50": 12.5, "input_wait": 0.25}
    workers = [{"index": 0, "address": "a:1", **known, "gpus_busy": [0.5, 0.75]},
               {"index": 1, "address": "b:1", "missing": "no news for 9 s", **known}]  # fmt: skip
    assert list(wording.worker_lines({"workers": workers, "slowest": 0})) == [
        "worker 0 (a:1): 120 samples/s  step 12.5 ms  input wait 25 %  busy 50 %  busy 75 %",
        "worker 1 (b:1): no news for 9 s", "the others wait for worker 0, which waits longest for its input",
    ]  # fmt: skip
    assert list(wording.worker_lines({"workers": workers[1:]})) == ["worker 1 (b:1): no news for 9 s"]
    assert list(wording.worker_lines({})) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [({}, "learning rate 0.004 (linear over 4 replicas)"),
     ({"replicas": 2}, "learning rate 0.004 (linear over 2 replicas)"),
     ({"replicas": 1}, ""), ({"replicas": None}, ""), ({"actual": {}}, ""),
     ({"inapplicable": {"train.learning_rate_scaling": "no"}}, ""),
     ({"options": {"train": {"learning_rate_scaling": "none"}}}, ""),
     ({"options": {"train": {"learning_rate_scaling": "sqrt"}}}, "learning rate 0.004 (sqrt over 4 replicas)")],
)  # fmt: skip
def test_a_scaled_learning_rate(changes: dict[str, Any], text: str) -> None:
    options = {"train": {"learning_rate_scaling": "linear"}}
    started = {"options": options, "replicas": 4, "actual": {"learning_rate": 0.004}}
    assert wording.scaled_learning_rate(started | changes) == text


# ---- a comparison in words ------------------------------------------------------------------------------


def row(values: tuple[float | None, ...], changes: tuple[float | None, ...], noise: float | None = None,
        unit: str = "samples/s") -> FigureRow:  # fmt: skip
    return FigureRow("samples_per_second", "throughput", unit, True, values, changes, noise)


def compared(figures: tuple[FigureRow, ...], **more: Any) -> Comparison:
    fields: dict[str, Any] = {
        "baseline": "20261121-140507-a", "choice": "first", "runs": ("20261121-140507-a", "b"), "states": ("ok", "oom"),
        "groups": (0, 1), "options": (OptionRow("compile.xla", (True, None), ("", "a CPU")),
                                     OptionRow("input.cache", ("none", "memory"))),
        "notes": ("a note",), "titles": (Title("cnn"), Title("cnn", ("xla",))), "names": ("r1", "b"),
        "versions": (OptionRow("TensorFlow", ("2.21", None)),),
    } | more  # fmt: skip
    return Comparison(figures=figures, **fields)


def test_differences_in_words() -> None:
    each = row((1.0,) * 7, (None, 0.0004999, 0.0005, -0.0005, 0.02, 0.0201, -0.123), 0.02)
    assert [comparison.change_text(each, at) for at in range(7)] == [
        "", "same", "~+0.1 %", "~-0.1 %", "~+2.0 %", "+2.0 %", "-12.3 %",
    ]  # fmt: skip
    share = row((0.5, 0.75), (None, 0.25), 0.015, "share")
    assert (comparison.change_text(share, 1), comparison.change_text(share, 1, short=True)) == (
        "+25.0 points", "+25.0 pts",
    )  # fmt: skip
    assert (comparison.noise_text(share), comparison.noise_text(share, short=True)) == ("1.5 points", "1.5 pts")
    assert (comparison.noise_text(each), comparison.noise_text(row((1.0,), (None,)))) == ("2.0 %", "")


def test_a_comparison_as_a_table_and_as_csv() -> None:
    noisy = compared((row((100.0, 150.0), (None, 0.5), 0.02), row((None, 1.0), (None, None), None)))
    assert comparison.table_rows(noisy) == [
        ["", "r1", "b", "spread of repeats"], ["id", "20261121-140507-a", "b", ""], ["title", "cnn", "cnn: xla", ""],
        ["outcome", "ok", "oom", ""], ["TensorFlow", "2.21", "", ""], ["compile.xla", "true", "(null)", ""],
        ["input.cache", "none", "memory", ""], ["throughput", "100 samples/s", "150 samples/s +50.0 %", "2.0 %"],
        ["throughput", "-", "1 samples/s", ""],
    ]  # fmt: skip
    alone = compared((row((100.0, 150.0), (None, 0.5)),), runs=("r1", "b"), versions=(), options=())
    assert comparison.table_rows(alone) == [
        ["", "r1", "b"], ["title", "cnn", "cnn: xla"], ["outcome", "ok", "oom"],
        ["throughput", "100 samples/s", "150 samples/s +50.0 %"],
    ]  # fmt: skip
    assert comparison.table_rows(replace(noisy, figures=alone.figures))[1] == ["id", "20261121-140507-a", "b"]
    assert comparison.as_csv(noisy).splitlines() == [
        "what,unit,20261121-140507-a,b,spread of repeats", "baseline,,first,,", "name,,r1,b,", "title,,cnn,cnn: xla,",
        "outcome,,ok,oom,", "TensorFlow,,2.21,,", "compile.xla,,true,(null),", "input.cache,,none,memory,",
        "samples_per_second,samples/s,100.0,150.0,0.02", "samples_per_second,samples/s,,1.0,", "note,,a note,,",
    ]  # fmt: skip
    assert comparison.as_json(alone).splitlines()[:2] == ["{", ' "baseline": "20261121-140507-a",']
    assert comparison.as_markdown(alone).splitlines() == [
        "|  | r1 | b |", "| --- | ---: | ---: |", "| title | cnn | cnn: xla |", "| outcome | ok | oom |",
        "| throughput | 100 samples/s | 150 samples/s +50.0 % |", "", "- differences are from the first run",
        "- a note",
    ]  # fmt: skip


def test_the_remarks_below_a_comparison() -> None:
    loss, val = (SeedFigure(key, label, "", values, 0.6, 0.1) for key, label, values in (
        ("metrics.loss", "loss", (0.0, 0.7)), ("metrics.val_loss", "val loss", (0.5, None))))  # fmt: skip
    group = SeedGroup((0, 1), (1, 2), (loss, val))
    noisy = compared((row((100.0, 150.0), (None, 0.5), 0.02),), over_seeds=(group,), choice="pinned")
    assert comparison.remarks(noisy) == [
        "differences are from the pinned baseline, r1", "~ is within the spread of repeats",
        "options in parentheses did nothing in that run",
        "r1, b differ only in the seed: val loss 0.6 ± 0.1 (0.5 with 1) (mean ± standard deviation)", "a note",
    ]  # fmt: skip
    brief = "~ is within the spread of repeats; over 2 seeds val loss 0.6 ± 0.1"
    assert [comparison.remarks(noisy, len(brief) - less)[1] for less in (0, 1)] == [brief, comparison.WITHIN]
    assert comparison.remarks(replace(noisy, over_seeds=(group, group)), 200)[1] == comparison.WITHIN
    trained = replace(noisy, over_seeds=(replace(group, figures=(loss,)),), choice="given", options=(), notes=())
    assert comparison.remarks(trained) == [
        "differences are from the baseline, r1", "~ is within the spread of repeats",
        "r1, b differ only in the seed: loss 0.6 ± 0.1 (0 with 1, 0.7 with 2) (mean ± standard deviation)",
    ]  # fmt: skip
    assert comparison.short_names(noisy) == ["r1", ""]


# ---- the doctor ------------------------------------------------------------------------------------------


DUMB = "TERM=dumb, no braille or no UTF-8: pictures are drawn in plain characters"


@pytest.mark.parametrize(
    ("size", "colour", "findings"),
    [((79, 24), "256", [("warning", "79 x 24 characters", "at least 80 x 24 are needed to see everything")]),
     ((80, 23), "256", [("warning", "80 x 23 characters", "at least 80 x 24 are needed to see everything")]),
     ((80, 24), "256", [("ok", "80 x 24 characters, 256 colours", "from 120 x 36 on, more is shown")]),
     ((119, 50), "true", [("ok", "119 x 50 characters, 16,777,216 colours", "from 120 x 36 on, more is shown")]),
     ((200, 24), "true", [("ok", "200 x 24 characters, 16,777,216 colours", "from 120 x 36 on, more is shown")]),
     ((120, 36), "256", [("ok", "120 x 36 characters, 256 colours", "")]),
     ((120, 36), "16", [("note", "16 colours", "export TERM=xterm-256color, if the terminal supports it"),
                        ("ok", "120 x 36 characters, 16 colours", "")]),
     ((120, 36), "dumb", [("note", DUMB, "export LANG=C.UTF-8; in tmux and screen too"),
                          ("note", "no colours", "export TERM=xterm-256color, if the terminal supports it"),
                          ("ok", "120 x 36 characters, 0 colours", "")]),
     ((120, 36), "no", [("note", "no colours", "export TERM=xterm-256color, if the terminal supports it"),
                        ("ok", "120 x 36 characters, 0 colours", "")])],
)  # fmt: skip
def test_what_a_terminal_can_show(
    size: tuple[int, int], colour: str, findings: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    environments = {"256": {"TERM": "xterm-256color"}, "true": {"TERM": "xterm", "COLORTERM": "24bit"},
                    "16": {"TERM": "xterm"}, "dumb": {"TERM": "dumb"},
                    "no": {"TERM": "xterm-256color", "NO_COLOR": "1"}}  # fmt: skip
    environment = {"LANG": "C.UTF-8", **environments[colour]}
    seen = doctor.terminal(environment, os.terminal_size(size))
    assert [(each.level, each.what, each.remedy) for each in seen] == findings


def finding(level: str, about: str = "disk", what: str = "") -> Finding:
    return Finding(level, about, what)


@pytest.mark.parametrize(
    ("findings", "text"),
    [([], "Ready to train on the CPU."), ([finding("ok", "GPU 0")], "Ready to train."),
     ([finding("note", "GPU 0")], "Ready to train on the CPU."),
     ([finding("ok", "GPU 0"), finding("note", HIDDEN)], "Ready to train on the CPU."),
     ([finding("ok", "GPU 0"), finding("warning"), finding("warning")], "Ready to train; 2 warning(s)."),
     ([finding("note", "driver")], "No GPU has answered, so it is unknown whether training on a GPU works."),
     ([finding("note", "driver"), finding("ok", "GPU 0")], "Ready to train."),
     ([finding("note", "driver"), finding("note", HIDDEN)], "Ready to train on the CPU."),
     ([finding("error")], "Not ready to train: see the lines marked error."),
     ([finding("error", "CUDA"), finding("error", "GPU 1"), finding("error", "TensorFlow", "finds no GPU")],
      "Not ready to train: see the lines marked error; device.visible=none trains on the CPU."),
     ([finding("error", "CUDA"), finding("error")], "Not ready to train: see the lines marked error."),
     ([finding("error", "TensorFlow", "is not installed")], "Not ready to train: see the lines marked error.")],
)  # fmt: skip
def test_the_conclusion_of_the_doctor(findings: list[Finding], text: str) -> None:
    assert doctor.conclusion(findings) == text


def test_the_worst_findings_come_first_and_have_their_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = ("ok", "warning", "note", "error", "warning")
    ordered = doctor.worst_first(finding(level, str(number)) for number, level in enumerate(levels))
    assert [(each.level, each.about) for each in ordered] == [
        ("error", "3"), ("warning", "1"), ("warning", "4"), ("note", "2"), ("ok", "0"),
    ]  # fmt: skip
    monkeypatch.setenv("GPUTUI_ASCII", "1")
    assert [doctor.sign(level) for level in ("ok", "note", "warning", "error")] == ["+", "-", "!", "X"]


# ---- printed lines ------------------------------------------------------------------------------------------


def said(view: run_progress.LineView, event: events.Event, t: float = 100.0) -> list[str]:
    out = view.out.file
    assert isinstance(out, StringIO)
    out.seek(0)
    out.truncate()
    view.show(dated(event, t))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def viewed(tmp_path: Path) -> run_progress.LineView:
    return run_progress.LineView(Run(tmp_path), Console(file=StringIO(), width=100))


def test_the_first_lines_of_a_run_are_what_was_found_and_its_names(home: Path) -> None:
    run = Run(home / "runs" / "20260921-100000-cnn")
    run.path.mkdir(parents=True)
    run.file(titles.FILE).write_text(titles.record("cnn", "/x.yaml", {"compile.xla": ("auto", True)}))
    found = [
        checks.Finding("note", ("compile.xla",), "it is new", "wait"),
        checks.Finding("warning", (), "slow", "do"),
    ]
    for numbers, names in (("", ""), (f"{run.id}\n", "r1 cnn: xla  ")):
        run_numbers.file_of(run.path).write_text(numbers)
        view = run_progress.LineView(run, Console(file=StringIO(), width=100))
        view.findings(found)
        assert view.out.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
            "note: compile.xla: it is new; wait", "warning: slow; do", f"{names}run {run.id}",
        ]  # fmt: skip


def progress(step: int, **more: Any) -> events.Progress:
    fields: dict[str, Any] = {
        "epoch": 1, "epochs": 3, "steps": 90, "samples_per_second": 1234.5, "step_ms_p50": 12.5, "step_ms_p95": 20.0,
        "input_wait": 0.25, "loss": 0.5, "metrics": {}, "eta_seconds": 90.0,
    } | more  # fmt: skip
    return events.Progress(step=step, **fields)


STARTED: dict[str, Any] = {
    "pid": 1, "versions": {"tensorflow": "2.21.0"}, "devices": ["/device:GPU:0", "/device:GPU:1"], "replicas": 2,
    "options": {"train": {"learning_rate_scaling": "linear"}}, "actual": {"learning_rate": 0.004},
    "inapplicable": {}, "global_batch_size": 64, "steps_per_epoch": 1, "epochs": 3, "steps": 3, "train_samples": 64,
    "validation_samples": 0,
}  # fmt: skip


def test_a_line_of_progress_every_5_seconds_with_the_busiest_gpu_that_trains(tmp_path: Path) -> None:
    view = viewed(tmp_path)
    line = "step 7/90  1,234 samples/s  step 12.5 ms  input wait 25 %  loss 0.5 so far  time left 1:30"
    assert said(view, progress(7), 100.0) == [line]
    assert said(view, progress(8), 104.9) == []
    assert said(view, progress(9), 105.0) == [line.replace("7/90", "9/90")]
    view.show(events.Started(**STARTED | {"gpus": ["GPU-b", "GPU-c"]}))
    gpus: list[Any] = [{"uuid": f"GPU-{name}", "busy": busy, "memory_used_bytes": 2 * GIB}
                       for name, busy in (("a", 0.9), ("b", 0.5), ("c", 0.75))]  # fmt: skip
    assert said(view, events.GpuReadings(gpus=gpus)) == []
    assert said(view, progress(10), 120.0) == [f"{line.replace('7/90', '10/90')}  GPU busy 75 %, memory 2.0 GiB"]
    assert said(view, events.GpuReadings(gpus=[], missing="no driver")) == ["no GPU readings: no driver"]
    assert said(view, progress(11), 130.0) == [line.replace("7/90", "11/90")]


def test_what_a_training_begins_with(tmp_path: Path) -> None:
    view = viewed(tmp_path)
    assert said(view, events.Started(**STARTED)) == [
        "TensorFlow 2.21.0 on GPU:0, GPU:1, 2 replicas; global batch 64, 1 step per epoch, 3 epochs; learning "
        "rate 0.004 (linear over 2 replicas)"
    ]
    more = {"worker": 1, "workers": ["a:1", "b:1"], "resumed_at_step": 0, "replicas": 1, "versions": {}}
    assert said(view, events.Started(**STARTED | more)) == [
        "TensorFlow - on GPU:0, GPU:1 on 2 workers, this one worker 1; global batch 64, 1 step per epoch, 3 epochs; "
        "resumed after step 0"
    ]


def test_phases_have_a_line_each_but_for_those_between_steps(tmp_path: Path) -> None:
    view = viewed(tmp_path)
    lines = []
    for phase, detail in (("starting", ""), ("importing", ""), ("importing", ""), ("compiling", ""), ("training", ""),
                          ("evaluating", ""), ("compiling", "evaluation"), ("saving", "checkpoint"), ("training", ""),
                          ("configuring", "waiting for worker 1 (b:1)"), ("importing", "")):  # fmt: skip
        lines.append(said(view, events.Phase(phase=phase, detail=detail)))  # type: ignore[arg-type]
    assert lines == [
        [], ["importing TensorFlow ..."], [], ["compiling the first step ..."], [], [],
        ["compiling the evaluation ..."], [], [], ["waiting for worker 1 (b:1) ..."], ["importing TensorFlow ..."],
    ]  # fmt: skip
    assert said(view, events.EpochEnd(epoch=2, step=60, metrics={"loss": 0.5, "val_loss": None}, seconds=1.5)) == [
        "epoch 2  loss 0.5  val_loss -  in 1.5 s"
    ]
    assert said(view, events.Warn(kind="x", message="a\nb", hint="do c")) == ["warning: a; b; do c"]


def test_workers_are_named_if_another_is_the_slowest_and_at_the_end(tmp_path: Path) -> None:
    view = viewed(tmp_path)
    workers: list[Any] = [{"index": 0, "address": "a:1", "missing": "gone"}]
    line, slowest = "worker 0 (a:1): gone", "the others wait for worker 0, which waits longest for its input"
    assert said(view, events.WorkerReadings(workers=workers)) == []
    assert said(view, events.WorkerReadings(workers=workers, slowest=0)) == [line, slowest]
    assert said(view, events.WorkerReadings(workers=workers, slowest=0)) == []
    assert said(view, events.WorkerReadings(workers=workers)) == [line]
    said(view, progress(7))
    summary = {"samples_per_second": 100.0, "metrics": {"accuracy": 0.5}, "epochs": 1}
    assert said(view, events.Finished(outcome="stopped", summary=summary)) == [
        line, "throughput     100 samples/s", "epochs         1", "accuracy       0.5",
        "loss, metrics  means of the last whole epoch", f"stopped; everything is in {tmp_path}",
    ]  # fmt: skip


def test_a_training_that_a_callback_has_ended_names_the_furthest_step(tmp_path: Path) -> None:
    view = viewed(tmp_path)
    said(view, progress(80))
    said(view, events.EpochEnd(epoch=1, step=60, metrics={}, seconds=1.5))
    assert said(view, events.Finished(outcome="ok", summary={}))[-1] == (
        f"done early: a callback ended the training after step 80 of 90; everything is in {tmp_path}"
    )
    said(view, progress(90))
    assert said(view, events.Finished(outcome="ok", summary={}))[-1] == f"done; everything is in {tmp_path}"


def test_resume_is_named_if_a_run_left_a_checkpoint_and_was_not_to_end(tmp_path: Path) -> None:
    def last_line(outcome: Any) -> str:
        return said(viewed(tmp_path), events.Finished(outcome=outcome, summary={}))[-1]

    ends = ("ok", "oom", "error", "stopped", "timeout", "crashed")
    assert [last_line(outcome).partition(";")[0] for outcome in ends] == [
        "done", "out of memory", "failed", "stopped", "ended by its time limit", "crashed",
    ]  # fmt: skip
    (tmp_path / "checkpoints" / "step-0000000007").mkdir(parents=True)
    resume = f"gputui resume {tmp_path.name} continues from the last checkpoint"
    assert [last_line(outcome) == resume for outcome in ends] == [False, False, False, True, True, True]


# ---- printed tables ------------------------------------------------------------------------------------------


def test_lines_are_broken_between_words_and_indented() -> None:
    assert plain_tables.broken("a bb ccc\n\ndddddddddddd e", 8) == "a bb ccc\n\ndddddddddddd\n    e"
    assert plain_tables.broken("a bb cccc", 8) == "a bb\n    cccc"
    assert plain_tables.broken("well-known words", 12) == "well-known\n    words"
    assert plain_tables.broken("a well-known word", 8) == "a\n    well-known\n    word"


@pytest.mark.parametrize(
    ("columns", "width", "tables"), [(99, 31, 2), (100, 21, 1), (129, 21, 1), (130, 31, 1), (None, 31, 1)]
)
def test_bars_are_a_column_if_there_is_room_else_a_table(
    columns: int | None, width: int, tables: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Table] = []
    monkeypatch.setattr(interval_table, "show_table", shown.append)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: columns is not None)
    monkeypatch.setenv("COLUMNS", str(columns or 40))
    table = Table(["change", "gain", "why"], [["xla", "+1 %", "a"]], right=[1])
    interval_table.show_with_bars(table, [Interval(0.1, 0.0, 0.2)], after=1)
    assert len(shown) == tables
    head = shown[-1].head
    assert [name if name in table.head else len(name) for name in head] == (
        ["change", width] if tables == 2 else ["change", "gain", width, "why"]
    )
    interval_table.show_with_bars(table, [None], after=1)
    assert shown[-1] is table


def run_entry(name: str, **more: Any) -> Entry:
    fields: dict[str, Any] = {"title": Title("cnn", ("batch_size=512", "xla=true", "epochs=9")), "when": 1e9}
    return Entry(Run(Path("/runs") / name), "ok", **fields | more)


def test_the_columns_of_listed_runs_that_fit(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    note = Notes("a note of some length", ())
    rows = [run_entry("20260921-100000-cnn", number=1, notes=note), run_entry("20260921-110000-vit", number=2)]
    unnamed = [*rows, run_entry("20260921-120000-mlp")]

    def printed(columns: int, *listed: Entry) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        printed_runs.show(listed)
        text = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
        return [" ".join(line.split()) for line in text.splitlines()]

    title, first = "cnn: batch_size=512 +2 more", "r1 done cnn: batch_size=512 +2 more"
    for width, head, row in (
        (40, "name state samples/s train loss size", "r1 done - -"), (41, "name state title", first),
        (46, "name state title", first), (47, "name state title size", first), (48, "name state title size", first),
        (49, "name state title when", f"{first} 2001"),
        (71, "name state title samples/s train loss size", f"{first} - -"),
        (72, "name state title samples/s train loss when", f"{first} - - 2001"),
        (92, "name state title samples/s tensors host mem train loss when", f"{first} - - - - 2001"),
        (93, "name id state title samples/s train loss when", f"r1 20260921-100000-cnn done {title} - - 2001"),
    ):  # fmt: skip
        assert printed(width, *rows)[:2] == [head, row], width
    whole = "name id state title samples/s step ms wait tensors host mem train loss time size when"
    changes = "cnn: batch_size=512 xla=true epochs=9"
    for width, row in ((156, f"{changes} - - - - - - - 2001"), (157, f"{title} - - - - - - - 2001 a note of some.."),
                       (199, f"{changes} - - - - - - - 2001 a note of some length")):  # fmt: skip
        assert printed(width, *rows)[:2] == [
            f"{whole}{' note' * (width > 156)}", f"r1 20260921-100000-cnn done {row}"
        ], width  # fmt: skip
    assert printed(31, *unnamed)[0] == "name id size"
    assert printed(62, *unnamed)[::3] == ["name id state title", f"20260921-120000-mlp done {title}"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert printed(20, *unnamed)[:2] == [
        f"{whole} note", f"r1 20260921-100000-cnn done {rows[0].title.whole} - - - - - - - 2001 a note of some length",
    ]  # fmt: skip
    assert printed(20, unnamed[2])[0] == whole.removeprefix("name "), "columns without a value are left out"
    active = run_entry("20260921-100000-cnn", latest={"step": 1, "steps": 4}, figures={"eta_seconds": 90.0})
    assert printed(20, replace(active, state="running"), unnamed[2])[0].startswith(
        "id state title done left samples/s "
    )


def test_a_profile_in_lines() -> None:
    names = ("n" * 61, *(f"layer{n}" for n in range(1, 14)))
    layers = tuple(LayerTime(name, 2.0, 1.0, 0.05) for name in names)
    shares = Shares(**dict.fromkeys(Shares.__dataclass_fields__))
    report = ProfileReport(
        Path("/p"), "GPU", 20, 12.5, shares, 0.25, "GPU kernels",
        (Operation("k" * 61, "MatMul", 3.0, 0.5), Operation("k" * 60, "", 2.0, 0.25)),
        InputStage("read", "ParallelMap", 9.0, 0.75, 2.5), InputTime(1.0, 0.0, None, 0.5), 3 * GIB, layers,
    )  # fmt: skip
    assert diagnosis.lines(report) == [
        "profile of 20 steps on the GPU, 12.5 ms each, read by XProf",
        "slowest input stage: read (ParallelMap), 75 % of the input's own time, 2.5 ms per batch",
        "input's own time: preparing 1 ms, other 0.5 ms",
        "kernels on the GPU that take most, over the whole profile:",
        f"        3 ms  50 %  {'k' * 57}...  MatMul", f"        2 ms  25 %  {'k' * 60}",
        "layers that take most, as shares of all kernels on the GPU (ms forward, ms backward):",
        f"    5 %         2        1  ...{'n' * 57}", *(f"    5 %         2        1  layer{n}" for n in range(1, 12)),
        "   10 %         4        2  2 more layers",
        "   30 %                     outside of layers: optimizer, loss, metrics",
        "25 % of the device's computing in 16 bits", "3.0 GiB of tensors at most", "for TensorBoard and XProf: /p",
    ]  # fmt: skip
    bare = replace(report, operations_on="GPU", operations=(Operation("a" + "k" * 60, "MatMul", 3.0, 0.5),), layers=(),
                   slowest_stage=InputStage("Map", "Map", 9.0, 0.75, None), input_time=None, compute_16bit=None,
                   peak_memory_bytes=None)  # fmt: skip
    assert diagnosis.lines(bare)[1:] == [
        "slowest input stage: Map, 75 % of the input's own time",
        "operations on the GPU that take most, over the whole profile:",
        f"        3 ms  50 %  ...{'k' * 57}  MatMul",
        "no operation has the name of a layer: with compile.xla=false they have", "for TensorBoard and XProf: /p",
    ]  # fmt: skip
    assert len(diagnosis.lines(replace(bare, layers=None, operations=(), slowest_stage=None))) == 2
