"""What the screens of proofs, sweeps and searches keep and show while they read, and what their rows open."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import Run
from gputui.engine.trials import scaling_sentences
from gputui.engine.trials.record import UNREAD
from gputui.engine.trials.sweep_record import Axis, Sweep, SweepSettings, SweepTrial
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.base.settings import Charts
from gputui.tui.base.themes import painted_colour
from gputui.tui.drawing import tune_memory
from gputui.tui.drawing.charts import MOST_COMPARED
from gputui.tui.reading.proofs import ProofEntry, SearchReading
from gputui.tui.reading.run.snapshot import Snapshot
from gputui.tui.screens.compare.screen import CompareScreen
from gputui.tui.screens.proof import actions, proofs
from gputui.tui.screens.proof import screen as proof_screen
from gputui.tui.screens.proof.proofs import ProofsScreen
from gputui.tui.screens.proof.scaling import ScalingScreen
from gputui.tui.screens.proof.screen import ProofScreen, latest_run
from gputui.tui.screens.proof.sweep import SweepScreen
from gputui.tui.screens.tune import screen as tune_screen
from gputui.tui.screens.tune.screen import TuneScreen
from gputui.tui.widgets.charts import Chart
from textual.geometry import Size
from textual.widgets import DataTable

from tests.support.answering import Answering
from tests.support.form_pilot import told
from tests.support.recorded_proof import PROOF, running, write_proof
from tests.support.recorded_search import ENDED
from tests.support.recorded_search import running as searching
from tests.support.tiny import Tiny, lines_of, tiny, wait_for
from tests.support.typed import as_read

DONE, GOES_ON = as_read(PROOF), as_read(PROOF | running())
SEARCHED, SEARCHES = as_read(ENDED), as_read(ENDED | searching())
PROVED = Proof(Path("/proofs/20260921-130000-x"))


# ---- reading --------------------------------------------------------------------------------------------


class Painted:
    """Stands for the parts of a screen. `painted` has the names of those that were painted again."""

    def __init__(self) -> None:
        self.painted: list[str] = []

    def part(self, name: Any, _kind: Any = None) -> Any:
        self.name = str(name)
        return self

    def repaint(self) -> None:
        self.painted.append(self.name)


@pytest.mark.parametrize(("kind", "ended", "going"), [(ProofScreen, DONE, GOES_ON), (TuneScreen, SEARCHED, SEARCHES)])
def test_a_screen_keeps_what_was_read_before_and_is_painted_only_for_something_new(
    monkeypatch: pytest.MonkeyPatch, kind: Any, ended: Any, going: Any
) -> None:
    parts, screen, shown = Painted(), kind(PROVED), list[Any]()
    monkeypatch.setattr(kind, "show_now", lambda screen: shown.append(screen.data))
    monkeypatch.setattr(kind, "_show_charts", lambda screen: None, raising=False)
    monkeypatch.setattr(kind, "query_one", lambda screen, *given: parts.part(*given))
    assert screen.data is UNREAD
    for record, data, painted_anew in (
        (None, UNREAD, False), (UNREAD, UNREAD, False), (going, going, True), (going, going, False),
        (UNREAD, going, False), (ended, ended, True), (ended, ended, False), (UNREAD, ended, False),
    ):  # fmt: skip
        reading = record if kind is ProofScreen or record is None else SearchReading(record)
        screen.set_reactive(cast("Any", kind).latest, reading)
        parts.painted, before = [], len(shown)
        screen.show_latest()
        assert (screen.data, len(shown) - before) == (data, int(painted_anew))
        assert ("#head" in parts.painted) is (data is going and not painted_anew), "its time goes on"


@pytest.mark.parametrize(("state", "seconds"), [("running", 0.5), ("done", 3.0), ("stopped", 3.0), ("", 3.0)])
def test_a_running_proof_is_read_twice_a_second_and_an_ended_one_every_three_seconds(
    monkeypatch: pytest.MonkeyPatch, state: str, seconds: float
) -> None:
    record = as_read(PROOF | {"state": state})
    monkeypatch.setattr(Proof, "record", record)

    class Leaving(threading.Event):
        waits: list[Any]

        def wait(self, timeout: float | None = None) -> bool:
            self.waits.append(timeout)
            self.set()
            return True

    leaving = Leaving()
    leaving.waits = []
    assert list(ProofScreen(PROVED).readings(leaving)) == [record]
    assert leaving.waits == [seconds]


@pytest.mark.parametrize(
    ("kind", "module", "height", "low"),
    [(ProofScreen, proof_screen, 19, True), (ProofScreen, proof_screen, 20, False), (TuneScreen, tune_screen, 29, True),
     (TuneScreen, tune_screen, 30, False)],
)  # fmt: skip
def test_on_a_low_terminal_the_large_figures_are_one_line(
    monkeypatch: pytest.MonkeyPatch, kind: Any, module: Any, height: int, low: bool
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(f"{module.__name__}.drawing.head", lambda *_, low: asked.append(low))
    monkeypatch.setattr(kind, "size", Size(80, height))
    monkeypatch.setattr(kind, "glyphs", PLAIN)
    kind(PROVED)._head(78, height)
    assert asked == [low]


@pytest.mark.parametrize(
    ("kind", "name"),
    [(SweepScreen, "go_on_with_sweep"), (ScalingScreen, "go_on_with_scaling"), (TuneScreen, "go_on")],
)
def test_what_goes_on_is_read_again_at_once(monkeypatch: pytest.MonkeyPatch, kind: Any, name: str) -> None:
    did: list[Any] = []

    async def go_on(_app: Any, proof: Proof, *_: Any) -> None:
        did.append(proof)

    monkeypatch.setattr(kind, "app", Answering())
    monkeypatch.setattr(actions, name, go_on)
    monkeypatch.setattr(kind, "read_again", lambda screen: did.append("read"))
    asyncio.run(kind.action_resume.__wrapped__(kind(PROVED)))
    assert did == [PROVED, "read"]


def test_the_question_whether_to_stop_is_needed_as_long_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    moots: list[Any] = []

    class Asking(Answering):
        async def push_screen_wait(self, screen: Any) -> Any:  # type: ignore[override]
            moots.append(screen._moot)

    for kind, what in (("ab", "proof"), ("tune", "search")):
        asyncio.run(actions.stop(Asking(), PROVED, kind))
        for state, said in (
            ("running", ""), ("done", f"the {what} has ended meanwhile"), ("stopped", f"the {what} has ended meanwhile")
        ):  # fmt: skip
            monkeypatch.setattr(Proof, "state", state)
            assert moots[-1]() == said


# ---- trials ---------------------------------------------------------------------------------------------


def test_the_latest_trial_with_a_run_is_opened_if_its_folder_is_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, proof = Answering(), write_proof(home)
    monkeypatch.setattr(ProofScreen, "app", app)
    (proof.path / "trials" / "06-b").mkdir(parents=True)
    screen = ProofScreen(proof)
    for name, opened in (("06-b", True), ("../../06-b", True), ("07-a", False), ("", False)):
        screen.open_trial(name)
        assert app.opened == ([("run", Run(proof.path / "trials" / "06-b"))] if opened else []), name
        app.opened.clear()
    trials = DONE.comparisons[0].trials
    assert latest_run(trials) == trials[-1].run != ""
    assert latest_run([*trials[:2], replace(trials[2], run="")]) == trials[1].run
    assert latest_run([]) == ""


async def test_a_report_is_copied_or_it_is_said_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    app, copied = Answering(), list[str]()
    monkeypatch.setattr(app, "copy", lambda text, what: copied.append(f"{what}: {text.splitlines()[0]}"))
    await actions.copy_report(app, DONE)
    assert (copied, app.told) == (["the report as Markdown: # Faster, one change at a time: input-heavy"], [])

    def without_trials(_: object) -> str:
        raise ValueError("no trial has ended")

    monkeypatch.setattr(actions, "as_markdown", without_trials)
    await actions.copy_report(app, GOES_ON)
    assert (len(copied), app.told) == (1, ["there is no report so far: no trial has ended (error)"])


def sweep(*trials: SweepTrial, higher: bool = False) -> Sweep:
    axes = (Axis(key="train.learning_rate", values=(0.1, 0.2, 0.3)),)
    return Sweep(settings=SweepSettings(axes=axes, metric="val_loss", higher=higher, seeds=2), trials=list(trials))


def trial(number: int, rate: float, value: float | None = None, **more: Any) -> SweepTrial:
    state = more.pop("state", "done" if value is not None else "running")
    changes = {"train.learning_rate": rate}
    return SweepTrial(run=f"s-{number:03}", changes=changes, seed=number, state=state, value=value, **more)


TRIALS = (trial(1, 0.1, 0.5), trial(2, 0.1, 0.6), trial(3, 0.2, 0.25), trial(4, 0.2, 0.3), trial(5, 0.3))


@pytest.mark.parametrize(("higher", "order"), [(False, [3, 4, 1, 2, 5]), (True, [1, 2, 3, 4, 5])])
def test_the_best_runs_of_a_sweep_are_compared_first(
    home: Path, monkeypatch: pytest.MonkeyPatch, higher: bool, order: list[int]
) -> None:
    monkeypatch.setattr(SweepScreen, "app", Answering())
    screen = SweepScreen(PROVED)
    screen.data = replace(as_read(PROOF), sweep=sweep(*TRIALS, higher=higher))
    assert screen.check_action("compare", ()) is False
    for number in order[:1]:
        (home / "runs" / f"s-{number:03}").mkdir(parents=True)
    assert screen.check_action("compare", ()) is False, "one run is compared with nothing"
    for number in order[1:]:
        (home / "runs" / f"s-{number:03}").mkdir(parents=True)
    assert screen.check_action("compare", ()) is True
    screen.action_compare()
    app: Any = screen.app
    ((kind, runs),) = app.opened
    assert (kind, [run.id for run in runs]) == ("compare", [f"s-{number:03}" for number in order])
    app.opened.clear()
    screen.open_trial("s-003")
    screen.open_trial("s-009")
    screen.open_trial("")
    assert app.opened == [("run", Run(home / "runs" / "s-003"))]


async def test_a_row_of_a_sweep_opens_its_latest_run_and_the_cursor_stays_while_it_goes_on(home: Path) -> None:
    def record(*trials: SweepTrial, doing: str = "") -> Any:
        return replace(as_read(PROOF), kind="sweep", sweep=sweep(*trials), doing=doing)

    screen = SweepScreen(PROVED)
    for number in (1, 2, 3):
        (home / "runs" / f"s-{number:03}").mkdir(parents=True)
    records = [record(*TRIALS)]
    screen.readings = lambda leaving: iter(records)  # type: ignore[method-assign]
    async with Tiny(lambda: screen).run_test(size=(80, 24), notifications=True) as pilot:

        async def read(now: Any) -> None:
            records[:] = [now]
            screen.read_again()
            await wait_for(pilot, lambda: screen.data is now)

        table = screen.query_one(DataTable)
        await wait_for(pilot, lambda: table.row_count == 3)
        for rows, run in ((0, "s-003"), (1, "s-002"), (2, None)):
            table.move_cursor(row=rows)
            await pilot.press("enter")
            await pilot.pause()
            assert [each.id for _, each in tiny(pilot).opened] == ([run] if run else [])
            tiny(pilot).opened.clear()
        table.move_cursor(row=1)
        await read(record(*TRIALS, doing="trains"))
        assert table.cursor_row == 1
        await read(record(*TRIALS, trial(6, 0.4, 0.1)))
        assert table.cursor_row == 0, "on the best, as there is a new setting"


def test_at_most_so_many_runs_have_curves_and_the_others_are_counted() -> None:
    for count, more in ((2, ""), (MOST_COMPARED, ""), (MOST_COMPARED + 1, ", without the last 1"),
                        (MOST_COMPARED + 3, ", without the last 3")):  # fmt: skip
        about = CompareScreen([Run(Path(f"/runs/{number}")) for number in range(count)]).about
        assert about == f"{count} runs{more}"


# ---- the charts of a search -----------------------------------------------------------------------------


def test_the_charts_of_a_search_are_those_of_the_running_trial_and_of_memory() -> None:
    screen = TuneScreen(PROVED)
    run = Run(Path("/proofs/x/trials/07-b"))
    assert screen.charts() == []
    trains = Snapshot(phase="training", progress={"step": 1})
    starts = Snapshot(phase="compiling")
    for record, now, of, noted in (
        (SEARCHES, trains, run, False), (SEARCHES, starts, run, True), (SEARCHES, None, None, False),
        (SEARCHED, trains, run, False),
    ):  # fmt: skip
        screen.data, screen._memory = record, tune_memory.plot(record)
        screen.set_reactive(
            cast("Any", TuneScreen).latest, SearchReading(record, of, now) if now else SearchReading(record)
        )
        charts = screen.charts(Charts())
        assert charts[-1].key == tune_memory.KEY
        of_trial = charts[:-1]
        assert bool(of_trial) is (record is SEARCHES and now is not None)
        assert all(plot.title.endswith(" of 07-b") for plot in of_trial)
        assert all(("compiling" in plot.note) is noted for plot in of_trial if plot.title.startswith("throughput"))
        pace = now.pace.axes() if now is not None else ()
        assert screen.axes() == pace, "those of the trial"
    assert screen.about == PROVED.id


def test_the_charts_of_a_search_are_drawn_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    app, drawn = Answering(), list[Charts | None]()
    monkeypatch.setattr(app, "settings", SimpleNamespace(charts=Charts(logarithmic=True, smoothing=0.5)))
    chart = SimpleNamespace(display=True, show=lambda plot: None)

    def charts(_: TuneScreen, settings: Charts | None = None) -> list[Any]:
        drawn.append(settings)
        return []

    monkeypatch.setattr(TuneScreen, "app", app)
    monkeypatch.setattr(TuneScreen, "query_one", lambda *_: chart)
    monkeypatch.setattr(TuneScreen, "charts", charts)
    TuneScreen(PROVED)._show_charts()
    assert drawn == [app.settings.charts]


def test_the_chart_that_is_clicked_or_else_the_first_is_shown_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    app, shown = Answering(), list[Any]()
    monkeypatch.setattr(app, "push_screen", shown.append)
    monkeypatch.setattr(TuneScreen, "app", app)
    screen = TuneScreen(PROVED)
    screen.data, screen._memory = SEARCHES, tune_memory.plot(SEARCHES)
    reading = SearchReading(SEARCHES, Run(Path("/trials/07-b")), Snapshot(phase="training", progress={"step": 1}))
    screen.set_reactive(cast("Any", TuneScreen).latest, reading)
    screen._chart_clicked(Chart.Opened(tune_memory.KEY))
    screen.action_chart()
    keys = [tune_memory.KEY, screen.charts()[0].key]
    assert [(chart.source, chart.key) for chart in shown] == [(screen, key) for key in keys]
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("decision", "run", "opened"), [("running", "09-b", "09-b"), ("kept", "09-b", "03-b"), ("running", None, "03-b")]
)
def test_a_candidate_opens_its_running_trial_or_its_latest_one(
    monkeypatch: pytest.MonkeyPatch, decision: str, run: str | None, opened: str
) -> None:
    names: list[str] = []
    trials = [SimpleNamespace(run=name) for name in ("02-a", "03-b", "")]
    monkeypatch.setattr(TuneScreen, "picked", SimpleNamespace(decision=decision, trials=trials))
    monkeypatch.setattr(TuneScreen, "open_trial", lambda screen, name: names.append(name))
    screen = TuneScreen(PROVED)
    reading = SearchReading(SEARCHES, Run(Path("/trials") / run) if run else None)
    screen.set_reactive(cast("Any", TuneScreen).latest, reading)
    screen.on_data_table_row_selected()
    monkeypatch.setattr(TuneScreen, "picked", None)
    screen.on_data_table_row_selected()
    assert names == [opened]


def test_texts_of_a_measurement_of_scaling_are_shortened_only_as_far_as_they_have_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def words(what: str) -> str:
        return " ".join(f"{what}{number}" for number in range(25))

    point = SimpleNamespace(trials=[1, 2])
    for name, text in (
        ("points", lambda data: [point]), ("remarks", lambda data: [words("remark")]), ("about", lambda data: "about"),
        ("trial", lambda trial: words(f"trial {trial} word")),
    ):  # fmt: skip
        monkeypatch.setattr(scaling_sentences, name, text)
    monkeypatch.setattr(ScalingScreen, "glyphs", PLAIN)
    monkeypatch.setattr(ScalingScreen, "picked", point)
    screen = ScalingScreen(PROVED)

    def first_words(height: int) -> list[str]:
        rows = screen._detail(60, height)
        assert len(rows) <= height
        return [f"{text.split()[0]} {look}" for ((text, look),) in rows]

    everything = first_words(99)
    remark, about, one, two = everything[:4], everything[4], everything[5:12], everything[12:]
    assert (len(remark), about, len(one), len(two)) == (4, "about label", 7, 7)
    assert first_words(len(everything)) == everything
    fewer = [*remark, about, one[0], two[0]]
    assert first_words(len(everything) - 1) == fewer, "trials first"
    assert first_words(len(fewer)) == fewer
    least = [*remark[:2], about, one[0], two[0]]
    assert first_words(len(fewer) - 1) == least
    assert first_words(3) == least[:3]
    monkeypatch.setattr(scaling_sentences, "points", lambda data: [])
    monkeypatch.setattr(ScalingScreen, "picked", None)
    assert [text for row in screen._detail(60, 9) for text, _ in row] == ["reading ..."]
    screen.data = DONE
    assert [text for row in screen._detail(60, 9) for text, _ in row] == ["nothing has been measured so far"]


@pytest.mark.parametrize(("by_slurm", "asked"), [(True, ["slurm"]), (False, ["slurm", "process"]), (None, ["process"])])
def test_a_queued_measurement_is_stopped_by_slurm_if_it_trains_there(
    home: Path, monkeypatch: pytest.MonkeyPatch, by_slurm: bool | None, asked: list[str]
) -> None:
    did: list[str] = []
    proof = write_proof(home)
    if by_slurm is not None:
        proof.queue_file.parent.mkdir()
        proof.queue_file.write_text("{}")

    def stop(of: str) -> bool:
        assert of == proof.id
        did.append("slurm")
        return bool(by_slurm)

    monkeypatch.setattr("gputui.engine.queue.slurm_queue.stop", stop)
    monkeypatch.setattr("gputui.engine.proof.folder.request_stop", lambda proof: did.append("process"))
    asyncio.run(actions.stop(Answering("Stop"), proof))
    assert did == asked


KEPT, SLOWER, *_ = PROOF["comparisons"]
ONE: dict[str, Any] = {"kind": "ab", "gain_total": None, "changes_kept": {}}
ONES = (
    ONE | {"comparisons": [SLOWER]}, ONE | {"comparisons": [KEPT], "changes_kept": KEPT["changes"]},
    ONE | {"comparisons": [SLOWER | {"decision": "undecided"}]}, ONE | {"comparisons": []},
)  # fmt: skip


# ---- the list -------------------------------------------------------------------------------------------


async def test_the_last_line_of_the_list_says_the_result_or_what_is_done_and_a_running_proof_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Listing:
        def read(self) -> list[ProofEntry]:
            return entries

        def measure(self) -> bool:
            return False

    def listed(name: str, data: Any, **more: Any) -> ProofEntry:
        return ProofEntry(Proof(Path("/proofs") / name), data, **more)

    entries = [
        listed("going", replace(GOES_ON, doing="repeat 2 of 3\x1b")), listed("done", DONE, size=2048),
        listed("lost", UNREAD), listed("search", SEARCHES), listed("waits", as_read(PROOF | {"state": "waiting"})),
        *(listed(f"ab {at}", as_read(PROOF | one)) for at, one in enumerate(ONES)),
        listed("none", replace(SEARCHED, changes_kept={}, gain_total=None, state="stopped")),
        listed("sweep", replace(as_read(PROOF | {"gain_total": 2.4, "changes_kept": {}}),
                                sweep=replace(sweep(*TRIALS), best={"train.learning_rate": 0.1}))),
    ]  # fmt: skip
    monkeypatch.setattr(proofs, "ProofList", Listing)
    monkeypatch.setattr(proofs, "when_text", lambda then: "Sep 21")
    async with Tiny(ProofsScreen).run_test(size=(120, 16), notifications=True) as pilot:
        await wait_for(pilot, "3.70 times")
        screen = pilot.app.screen
        assert isinstance(screen, ProofsScreen)
        for text in (
            "repeat 2 of 3?", "3.70 times as fast with cache=memory, steps_per_execution=16",
            "proof.json cannot be read", SEARCHES.doing,
        ):  # fmt: skip
            await pilot.pause()
            assert lines_of(pilot.app).split("\n")[-2].strip().startswith(text[:100])
            await pilot.press("down")
        rows = [[str(cell).strip() for cell in screen.table.get_row_at(at)][:4] for at in range(5)]
        assert [row[1] for row in rows] == ["… measuring", "✓ done", "✗ crashed", "… measuring", "… waiting"]
        assert [row[3] for row in rows] == ["", "2.0 KiB", "", "", ""]
        states = [screen.table.get_row_at(at)[1].style for at in range(5)]
        looks = ("curve1", "good", "bad", "curve1", "label")
        assert states == [painted_colour(pilot.app, look) for look in looks]
        assert [tuple(str(cell).strip() for cell in screen.table.get_row_at(at))[2::3] for at in range(5, 11)] == [
            ("-9.8 %", "xla=true"), ("+257 %", "cache=memory"), ("undecided", "xla=true"), ("-", "nothing kept"),
            ("not proven", "search: batch_size=256, policy=mixed_bfloat16, cache=…"),
            ("2.40 times", "sweep: learning_rate=0.1"),
        ]  # fmt: skip
        assert screen.offers("take_back") is False
        await pilot.press("home", "d")
        assert told(pilot) == "the proof goes on; stop it before deleting it"
        await pilot.press("enter")
        await pilot.press("down", "enter")
        assert [proof.id for _, proof in tiny(pilot).opened] == ["going", "done"]
        await pilot.resize_terminal(95, 16)
        await pilot.pause()
        assert "size" not in lines_of(pilot.app).split("\n")[1].split()
        await pilot.resize_terminal(96, 16)
        await pilot.pause()
        assert "size" in lines_of(pilot.app).split("\n")[1].split()
