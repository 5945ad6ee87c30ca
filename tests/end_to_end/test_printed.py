"""What the commands print about recorded runs, proofs and searches, word for word: `__snapshots__` holds the texts."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.files import writing
from gputui.engine.options import Options
from gputui.engine.proof import request
from gputui.engine.proof.markdown import as_markdown
from gputui.engine.runs import Run, checkpoint_files
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import Outcome, Started
from gputui.engine.runs.titles import record
from gputui.engine.trials.record import Record
from gputui.tui import cli
from gputui.tui.commands import proof as proof_command
from gputui.tui.commands import runs as runs_command
from gputui.tui.printing import proof as printing
from gputui.tui.printing import tune
from gputui.tui.printing.run_progress import LineView
from rich.console import Console

from tests.proof import test_scaling
from tests.support import recorded
from tests.support.cases import all_hold
from tests.support.proving import Figures, Planted, proving, searching
from tests.support.recorded_proof import DIAGNOSIS, PROOF, STAGES, write_proof
from tests.support.recorded_search import write_search
from tests.tune import test_search

Snapshot = Any
Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def fixed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Dates and times of a place that is not at UTC, and folders of one size, on any machine."""
    for module in (writing, proof_command, runs_command):  # the commands may have been imported before
        monkeypatch.setattr(module, "used_bytes", lambda *folders: 1_900_000)
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "IST-5:30")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def runs(home: Path) -> list[Run]:
    """Runs of each end and one that goes on, the oldest first; the first and the second are repeats."""
    fast = {"gpus": 2, "mfu": 0.52, "settings": ("batch_size=512", "xla=true"), "samples_per_second": 12_150.0}
    ends: tuple[tuple[str, dict[str, Any]], ...] = (
        ("cnn", {"gpus": 2, "mfu": 0.41, "settings": ("batch_size=512",)}),
        ("cnn", {"gpus": 2, "mfu": 0.42, "settings": ("batch_size=512",), "samples_per_second": 9_900.0}),
        ("cnn", fast),
        ("vit", {"gpus": 0, "outcome": "stopped"}),
        ("big", {"gpus": 1, "outcome": "oom", "seconds": 25}),
        ("mlp", {"gpus": 0, "outcome": "crashed", "warnings": (("input.shuffle", "a small buffer"),)}),
        ("cnn", {"gpus": 0, "outcome": None, "engine_pid": os.getpid()}),
    )
    made = []
    for number, (name, changes) in enumerate(ends):
        settings: dict[str, Any] = {"seconds": 60, "diagnosis": DIAGNOSIS, "input_stages": STAGES} | changes
        run = recorded.write(home, name=f"20260921-1{number}0000-{name}", **settings)
        run.file("origin.json").write_text(record(name, f"/x/{name}.yaml", {}))
        os.utime(run.file("preset.yaml"), (1_000_000_000 + number,) * 2)
        made.append(run)
    return made


def printed(capsys: Printed, home: Path, *words: str) -> str:
    """Exit code, output and errors of a command, with HOME for gputui's folder, and floats to six digits."""
    capsys.readouterr()
    code = cli.run(words)
    found = capsys.readouterr()
    errors = f"\n--- errors\n{found.err}" if found.err else ""
    return f"exit code {code}\n{_portable(found.out, home)}{_portable(errors, home)}"


def _portable(text: str, home: Path) -> str:
    text = re.sub(r"\b\d{1,6}\.\d{6,}", lambda found: f"{float(found[0]):.6g}", text.replace(str(home), "HOME"))
    text = re.sub(r"```yaml.*?```", "(the preset)", text, flags=re.DOTALL)  # it has all options and their defaults
    return re.sub(r"\n +(?=[^{ ])", " ", text) if text.startswith("{\n") else text


ABOUT_RUNS = (
    "runs",
    "runs --json",
    "runs --state stopped --state oom",
    "runs --last 2",
    "compare 20260921-10 20260921-11 20260921-12 20260921-13",
    "compare 20260921-10 20260921-11 20260921-12 --markdown",
    "compare 20260921-10 20260921-11 20260921-12 --csv",
    "compare 20260921-10 20260921-11 20260921-12 --json",
    "compare 20260921-12 20260921-10 --baseline 20260921-10",
    "compare 20260921-15 20260921-14 20260921-13 20260921-12 20260921-11 20260921-10",
    "logs 20260921-13 -n 2",
    "diagnose 20260921-10",
    "diagnose 20260921-15",
    "history 20260921-14",
)


def test_commands_about_runs(runs: list[Run], home: Path, capsys: Printed, snapshot: Snapshot) -> None:
    for arguments in (("tag", runs[0].id, "baseline", "h100"), ("note", runs[1].id, "the second of the repeats")):
        assert cli.run(arguments) == 0
    with all_hold() as cases:
        for words in ABOUT_RUNS:
            with cases.case(words):
                assert printed(capsys, home, *words.split()) == snapshot(name=words)


def test_the_lines_of_a_run(runs: list[Run], home: Path, snapshot: Snapshot) -> None:
    """Of one that has ended on two GPUs, and of a stopped and a crashed one; the first two have a checkpoint."""
    lines = StringIO()
    for run, checkpoint in ((runs[0], True), (runs[3], True), (runs[5], False)):
        if checkpoint:
            checkpoint_files.path_of(run.file("checkpoints"), 300).mkdir(parents=True)
        view = LineView(run, Console(file=lines, width=100))
        for event in read_events(run.path).events:
            if isinstance(event, Started) and run is runs[0]:
                event = replace(event, gpus=[f"GPU-{index:08d}-aaaa-bbbb-cccc-000000000000" for index in (0, 1)])
            view.show(event)
        lines.write("\n")
    assert _portable("\n".join(map(str.rstrip, lines.getvalue().splitlines())), home) == snapshot


# ---- proofs and searches ------------------------------------------------------------------------


@pytest.fixture
def proofs(home: Path) -> None:
    """One proof of each kind that is written by hand: a loop, a diagnosis, an A/B comparison, and two searches."""
    write_proof(home)
    write_proof(home, "20260921-140000-diagnosis", kind="diagnosis", comparisons=[], changes_kept={}, before=None,
                after=None, gain_total=None, preset_after=None)  # fmt: skip
    write_proof(home, "20260921-150000-ab", kind="ab", diagnosis=None, comparisons=PROOF["comparisons"][:1])
    write_proof(home, "20260921-160000-broken", state="failed", error="the preset was deleted", comparisons=[],
                gain_total=None, changes_kept={}, preset_after=None, before=None, after=None)  # fmt: skip
    write_search(home)
    write_search(home, "20260921-170000-undecided", comparisons=[], gain_total=None, changes_kept={}, preset_after=None)


ABOUT_PROOFS = (
    "proof",
    "proof 20260921-130000-input-heavy",
    "proof 20260921-130000-input-heavy --markdown",
    "proof 20260921-14",
    "proof 20260921-15",
    "proof 20260921-15 --markdown",
    "proof 20260921-16",
    "proof 20260921-17",
    "proof 20260921-130000-cnn",
    "proof 20260921-130000-cnn --markdown",
)


def test_commands_about_proofs(proofs: None, home: Path, capsys: Printed, snapshot: Snapshot) -> None:
    with all_hold() as cases:
        for words in ABOUT_PROOFS:
            with cases.case(words):
                assert printed(capsys, home, *words.split()) == snapshot(name=words)


def test_tables_on_a_narrow_terminal(
    runs: list[Run], proofs: None, home: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with all_hold() as cases:
        for words in ("runs", "compare 20260921-10 20260921-12", "diagnose 20260921-15", "proof", "proof 20260921-17"):
            for width in ("60", "80", "120"):
                monkeypatch.setenv("COLUMNS", width)
                with cases.case(f"{words}, {width}"):
                    text = re.sub(r"\x1b\[[\d;]*m", "", printed(capsys, home, *words.split()))
                    assert text == snapshot(name=f"{words}, {width} columns")


def _all_of(data: Record, home: Path) -> str:
    """All that is printed of a proof that has ended: the lines of a search, its trials, its result and the report."""
    out = StringIO()
    data.state, data.started_t, data.seconds = "done", recorded.BEGAN, 300.0
    with redirect_stdout(out):
        print(*(dict(tune.news(data)).values() if data.search else ()), sep="\n")
        printing.show_trials(data)
        printing.show_result(data)
        print(as_markdown(data))
    return _portable(out.getvalue(), home)


def _larger_is_faster(options: Options, before: int) -> Planted:
    """Batches up to 200 fit, those above 100 learn less, and XLA fails."""
    batch, together = options.input.batch_size, options.compile.steps_per_execution
    speed = 2000.0 * batch / (batch + 64) * (1.1 if together > 1 else 1.0)
    outcome: Outcome = "oom" if batch > 200 else "crashed" if options.compile.xla is True else "ok"
    peak = (40 + batch) * 1024**2
    return Planted(speed, 0.1, 0.05, outcome, "out of it", 2.0 if batch <= 100 else 2.4, peak_memory_bytes=peak)


SEARCHES: dict[str, tuple[tuple[str, ...], dict[str, Any], Figures]] = {
    "fast input": ((), {"memory_bytes": 12 * recorded.GIB}, test_search.fast_input),
    "memory and loss": ((), {"memory_bytes": 12 * recorded.GIB, "largest_batch": 400}, _larger_is_faster),
    "a limit of memory": ((), {"memory_bytes": 120 * 1024**2, "only": ["batch_size"]}, _larger_is_faster),
    "a worse loss": (
        (),
        {"allow_worse_loss": True, "largest_batch": 190, "memory_bytes": 12 * recorded.GIB},
        _larger_is_faster,
    ),
    "slow input": (test_search.PIPELINE, {"minutes": 60.0}, test_search.slow_input(500.0)),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_whole_search(tmp_path: Path, name: str, snapshot: Snapshot) -> None:
    settings, limits, figures = SEARCHES[name]
    searcher, _bench = searching(tmp_path / "search", test_search.asked(*settings, **limits), figures)
    searcher.run()
    assert _all_of(searcher.record, tmp_path) == snapshot


def test_a_whole_loop(tmp_path: Path, snapshot: Snapshot) -> None:
    def figures(options: Options, before: int) -> Planted:
        waits = 0.02 if options.input.cache == "memory" or options.input.one_batch else 0.6
        speed = 400 / waits * (1.3 if options.compile.steps_per_execution > 1 else 1)
        return Planted(speed + before % 3, waits, 0.01 if options.compile.steps_per_execution > 1 else 0.4)

    made = proving(tmp_path / "loop", request.of_preset("loop", "input-heavy", []), figures)
    made.prover.prove()
    assert _all_of(made.record, tmp_path) == snapshot


def test_a_whole_scaling(tmp_path: Path, snapshot: Snapshot) -> None:
    def figures(options: Options, before: int) -> Planted:
        count = test_scaling.replicas(options)
        return Planted((1 if count == 1 else 0.93 * count - 0.05 * count**2) * 1000 + before % 2, 0.02 * count)

    data, _bench = test_scaling.measured(tmp_path / "scaling", test_scaling.asked(), figures)
    assert _all_of(data, tmp_path) == snapshot
