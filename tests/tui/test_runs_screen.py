"""The list of runs over entries that need no files: its last line, what it reads, its cursor, and what it compares."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.compare import baseline
from gputui.engine.files import places
from gputui.engine.runs import Run
from gputui.engine.runs.titles import Notes, Title
from gputui.engine.trials.record import UNREAD
from gputui.tui.base.undo import Act
from gputui.tui.reading.queue_places import Waiting
from gputui.tui.reading.run_list import Entry
from gputui.tui.reading.sweep_rows import SweepEntry, SweepTitle
from gputui.tui.screens.runs import screen as runs_screen
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.screens.runs.side_view import SideView
from gputui.tui.widgets.charts import Chart
from textual.pilot import Pilot
from textual.screen import Screen

from tests.support.answering import Answering
from tests.support.form_pilot import told
from tests.support.recorded_proof import PROOF
from tests.support.tiny import Tiny, text_of, tiny, wait_for
from tests.support.typed import as_read

WORDS = " ".join(f"word{number:02}" for number in range(30))


def entry(hour: int, state: Any = "ok", **more: Any) -> Entry:
    run = Run(Path("/runs") / f"20260921-{hour}0000-cnn")
    return replace(Entry(run, state, Title("cnn"), number=hour), **more)


class Listing:
    """What the screen reads, in place of the folders. `asked` has how many runs were to be read."""

    def __init__(self, *entries: Entry) -> None:
        self.entries, self.asked = list(entries), list[int | None]()
        self.total, self.closed = len(entries), 0
        self.sweeps: Mapping[str, Any] = {}
        self.answers = threading.Event()
        self.answers.set()

    def read(self, most: int | None = None) -> list[Entry]:
        self.asked.append(most)
        self.answers.wait(60)
        return self.entries[:most]

    def measure(self) -> bool:
        return False


@asynccontextmanager
async def shown(
    listing: Listing, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int] = (100, 16)
) -> AsyncIterator[tuple[Pilot[None], RunsScreen]]:
    monkeypatch.setattr(runs_screen, "RunList", lambda: listing)
    monkeypatch.setattr(runs_screen, "REFRESH_SECONDS", 600.0)
    async with Tiny(RunsScreen).run_test(size=size, notifications=True) as pilot:
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, RunsScreen) and listing.asked)
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        yield pilot, screen


async def last_lines(pilot: Pilot[None], screen: RunsScreen) -> list[str]:
    """The lines between the table and the keys."""
    await pilot.pause()
    region = screen.query_one("#status").region
    return [line.rstrip() for line in text_of(pilot.app).split("\n")[region.y : region.bottom]]


def spread(left: str, right: str, width: int = 100) -> str:
    return f" {left}{right:>{width - 2 - len(left)}}"


async def read_again(pilot: Pilot[None], screen: RunsScreen, listing: Listing) -> None:
    before = screen.latest
    screen.read_again()
    await wait_for(pilot, lambda: screen.latest is not before)


# ---- the last line --------------------------------------------------------------------------------------


async def test_the_last_line_says_what_is_under_the_cursor_and_how_many_runs_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listing = Listing()
    listing.answers.clear()
    async with shown(listing, monkeypatch) as (pilot, screen):
        assert await last_lines(pilot, screen) == [" reading the runs ..."]
        listing.answers.set()
        await wait_for(pilot, "no runs so far")
        assert await last_lines(pilot, screen) == [
            spread("no runs so far: r in the form (F2) starts one", "0 of 0 runs")
        ]
        changed = Title("cnn", ("batch_size=256", "epochs=9"))
        done = entry(12, title=changed, notes=Notes("slow\n[disk]", ("best",)), description="a small one")
        for at, about in (
            (done, "batch_size=256 epochs=9 #best slow [disk] a small one"),
            (replace(done, workers=("w1", "w2"), notes=Notes("", ())), "batch_size=256 epochs=9 w1 w2 a small one"),
            (replace(done, damage="result.json is damaged\x1b"), "result.json is damaged?"),
            (entry(12), ""),
        ):
            listing.entries, listing.total = [at], 1
            await read_again(pilot, screen, listing)
            left = f"{at.run.id}  {about}" if about else at.run.id
            assert await last_lines(pilot, screen) == [spread(left, "1 of 1 run")]
        listing.entries, listing.closed, listing.total = [replace(done, description=WORDS), entry(11)], 2, 2
        await read_again(pilot, screen, listing)
        (line,) = await last_lines(pilot, screen)
        assert line.endswith("…  2 of 2 runs, 2 not readable"), "the end of the text is cut"
        assert len(line) == 99


@pytest.mark.parametrize(
    ("states", "now"),
    [(("ok", "stopped"), ["-", "R Resume"]), (("stopped", "running"), ["R Resume", "x Stop"]),
     (("failed", "stopped"), ["-", "R Resume"]),
     (("running", "ok"), ["x Stop", "-"])],
)  # fmt: skip
async def test_the_footer_offers_to_stop_what_runs_and_to_resume_what_has_ended_early(
    states: tuple[str, str], now: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def offered(pilot: Pilot[None]) -> str:
        last = text_of(pilot.app).rstrip().split("\n")[-1]
        return " ".join(key for key in ("x Stop", "R Resume") if key in last) or "-"

    before, after = (entry(12, state, has_checkpoint=state != "failed") for state in states)
    listing = Listing(before)
    async with shown(listing, monkeypatch, size=(240, 16)) as (pilot, screen):
        await wait_for(pilot, "1 of 1 run")
        await wait_for(pilot, lambda: offered(pilot) == now[0])
        listing.entries = [after]
        await read_again(pilot, screen, listing)
        await wait_for(pilot, lambda: offered(pilot) == now[1])


async def test_marks_and_marks_that_the_filter_hides_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = Listing(entry(13, "oom"), entry(12), entry(11))
    async with shown(listing, monkeypatch) as (pilot, screen):
        await wait_for(pilot, "3 of 3 runs")
        for pressed, count in (
            (["space", "down", "space"], "2 marked, M clears  3 of 3 runs"),
            (["slash", "o", "o", "m", "enter"], "2 marked (1 hidden), M clears  1 of 3 runs"),
            (["space"], "1 marked (1 hidden), M clears  1 of 3 runs"),
            (["escape", "home", "space"], "2 marked, M clears  3 of 3 runs"),
            (["M"], "3 of 3 runs"),
        ):
            await pilot.press(*pressed)
            (line,) = await last_lines(pilot, screen)
            assert line == spread(screen.current.run.id if screen.current else "", count), pressed


async def test_why_a_run_waits_has_at_most_two_lines_below(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = entry(13, "waiting", waiting=Waiting("r13", 2, why=f"needs a GPU {WORDS}"))
    listing = Listing(waits, entry(12))
    async with shown(listing, monkeypatch) as (pilot, screen):
        await wait_for(pilot, "2 of 2 runs")
        first, *more = await last_lines(pilot, screen)
        assert first == spread(waits.run.id, "2 of 2 runs")
        assert [line[:25] for line in more] == [" place 2: needs a GPU wor", " word11 word12 word13 wor"]
        assert more[1].endswith("…")
        await pilot.press("down")
        assert await last_lines(pilot, screen) == [spread(listing.entries[1].run.id, "2 of 2 runs"), "", ""]
        listing.entries[0] = replace(waits, waiting=Waiting("r13", 2, why="needs a GPU"))
        await read_again(pilot, screen, listing)
        await pilot.press("up")
        assert (await last_lines(pilot, screen))[1:] == [" place 2: needs a GPU"]


# ---- reading and the cursor -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pressed", "most"), [(["down", "down"], 16), (["slash", "x"], None), (["I"], None), (["greater_than_sign"], None)]
)
async def test_more_runs_are_read_if_the_cursor_comes_near_the_end_and_all_for_a_filter_or_another_order(
    monkeypatch: pytest.MonkeyPatch, pressed: list[str], most: int | None
) -> None:
    monkeypatch.setattr(runs_screen, "FIRST", 4)
    listing = Listing(*(entry(50 - number) for number in range(40)))
    async with shown(listing, monkeypatch) as (pilot, screen):
        await wait_for(pilot, "4 of 40 runs")
        await pilot.press("down")
        assert listing.asked == [4], "two rows of those that are read are left"
        await pilot.press("up", *pressed)
        await wait_for(pilot, lambda: len(screen.entries) == (most or 40), 5)
        assert listing.asked == [4, most]


@pytest.mark.parametrize("kept", ["filter: cnn", "sort: loss", "descending: false"])
async def test_a_filter_or_an_order_of_the_settings_needs_all_runs_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    monkeypatch.setattr(runs_screen, "FIRST", 2)
    path = places.settings_file()
    path.parent.mkdir(parents=True)
    path.write_text(f"runs: {{{kept}}}\n")
    listing = Listing(*(entry(50 - number) for number in range(5)))
    async with shown(listing, monkeypatch) as (pilot, _):
        await wait_for(pilot, "5 of 5 runs")
        assert listing.asked == [None]


async def test_a_column_of_the_settings_that_does_not_exist_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = places.settings_file()
    path.parent.mkdir(parents=True)
    for text, wrong in (("columns: [loss, lost, id]", "lost"), ("sort: lost", "lost")):
        path.write_text(f"runs: {{{text}}}\n")
        async with shown(Listing(entry(12)), monkeypatch) as (pilot, screen):
            await wait_for(pilot, lambda screen=screen: screen.table.row_count)  # type: ignore[misc]
            assert told(pilot).startswith(f"{path}: there is no column {wrong}; known: name, run, ")
            assert screen.table.names == (["loss", "id"] if "columns" in text else screen.table.names)
            assert screen.table.order == ("when", True)


async def test_a_run_that_was_brought_back_gets_the_cursor_however_far_down_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs_screen, "FIRST", 4)
    path = places.settings_file()
    path.parent.mkdir(parents=True)
    path.write_text("runs: {filter: cnn}\n")
    listing = Listing(*(entry(50 - number) for number in range(40)))
    async with shown(listing, monkeypatch, (130, 30)) as (pilot, screen):
        await wait_for(pilot, "40 of 40 runs")
        assert screen.table.row_count == 4
        back = listing.entries[30]
        screen.taken_back(Act("deleted 1 run", lambda: None, key=back.run.id))
        await wait_for(pilot, lambda: screen.current == back)
        assert (screen.table.cursor_row, screen.table.row_count) == (30, 34)
        screen.query_one(SideView).post_message(Chart.Opened("loss"))
        await wait_for(pilot, lambda: tiny(pilot).opened == [("run", back.run)])


async def test_a_cursor_on_the_first_row_is_on_the_newest_run_when_the_list_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for row in (0, 1):
        listing = Listing(entry(12), entry(11))
        async with shown(listing, monkeypatch) as (pilot, screen):
            await wait_for(pilot, "2 of 2 runs")
            await pilot.press(*["down"] * row)
            at = screen.current
            assert at is not None
            pilot.app.push_screen(Screen())
            await pilot.pause()
            listing.entries.insert(0, entry(13))
            screen.opened_again(screen)
            pilot.app.pop_screen()
            await wait_for(pilot, lambda: len(screen.entries) == 3)
            assert screen.current == (listing.entries[0] if not row else at)


# ---- comparing ------------------------------------------------------------------------------------------


class Runs(RunsScreen):
    """The list with a row under the cursor, without its table."""

    at: Entry | None = None
    listed: Sequence[Entry] = ()

    @property
    def current(self) -> Entry | None:
        return self.at

    @property
    def entries(self) -> list[Entry]:
        return list(self.listed)


OLD, MIDDLE, NEW = (entry(hour, when=float(hour)) for hour in (11, 12, 13))
SWEEP = SweepEntry(Run(Path("/proofs/s")), "ok", SweepTitle("s", ("16 of 16",)), trials=(NEW, OLD), record=UNREAD)
SAID = "mark a run with space, then press c on another to compare them"


@pytest.mark.parametrize(
    ("at", "marked", "pinned", "compared"),
    [
        (None, (), None, None), (OLD, (), None, None), (MIDDLE, (), None, [OLD, MIDDLE]),
        (NEW, (), None, [MIDDLE, NEW]), (OLD, (NEW,), None, [OLD, NEW]), (NEW, (NEW,), None, None),
        (None, (NEW,), None, None), (MIDDLE, (NEW, OLD), None, [OLD, NEW]),
        (NEW, (OLD, MIDDLE, NEW), None, [OLD, MIDDLE, NEW]), (NEW, (), OLD, [NEW]), (OLD, (), OLD, None),
        (MIDDLE, (), MIDDLE, [OLD, MIDDLE]), (SWEEP, (), None, [NEW, OLD]),
        (SWEEP, (MIDDLE,), None, [OLD, MIDDLE, NEW]),
    ],
)  # fmt: skip
def test_what_is_compared(
    home: Path, monkeypatch: pytest.MonkeyPatch, at: Entry | None, marked: tuple[Entry, ...], pinned: Entry | None,
    compared: list[Entry] | None,
) -> None:  # fmt: skip
    def here(given: Entry) -> Entry:
        return replace(given, run=Run(home / "runs" / given.run.id), trials=tuple(map(here, given.trials)))

    app, screen = Answering(), Runs()
    monkeypatch.setattr(Runs, "app", app)
    for each in (OLD, MIDDLE, NEW):
        here(each).run.path.mkdir(parents=True)
        here(each).run.file("preset.yaml").touch()
    if pinned is not None:
        baseline.pin(here(pinned).run)
    screen.listed, screen.at = [here(each) for each in (NEW, MIDDLE, OLD)], here(at) if at is not None else None
    screen.shown = {screen.at.run.id: screen.at} if screen.at is not None else {}  # a filter hides the others
    screen.marked = {each.run.id: here(each).run for each in marked}
    screen.action_compare()
    assert app.opened == ([("compare", [here(each).run for each in compared])] if compared is not None else [])
    assert app.told == ([SAID] if compared is None else []) or app.told == [f"{SAID} (information)"]


def test_the_trials_of_a_sweep_are_marked_and_unmarked_together_and_a_deleted_sweep_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, screen, shown_again = Answering(), Runs(), list[str]()
    monkeypatch.setattr(Runs, "app", app)
    monkeypatch.setattr(Runs, "rearrange", lambda screen, go_to="": shown_again.append(go_to))
    for at, before, after in (
        (OLD, (), (OLD,)), (OLD, (OLD, NEW), (NEW,)), (SWEEP, (MIDDLE,), (MIDDLE, NEW, OLD)),
        (SWEEP, (NEW, MIDDLE), (NEW, MIDDLE, OLD)), (SWEEP, (NEW, MIDDLE, OLD), (MIDDLE,)), (None, (OLD,), (OLD,)),
    ):  # fmt: skip
        screen.at, screen.marked = at, {each.run.id: each.run for each in before}
        screen.action_mark()
        assert list(screen.marked) == [each.run.id for each in after]
    screen.action_clear_marks()
    assert (screen.marked, shown_again) == ({}, [""] * 7)
    screen.at = OLD
    screen.action_open()
    assert app.opened.pop() == ("run", OLD.run)
    screen.at = SWEEP
    screen.action_sweep()
    assert app.told.pop() == "this sweep was deleted; its trials are still here (information)"
    screen.at = replace(SWEEP, record=as_read(PROOF))
    screen.action_sweep()
    assert [(kind, proof.path) for kind, proof in app.opened] == [("proof", SWEEP.run.path)]
    assert app.told == []


async def test_the_key_of_the_list_opens_what_was_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = Listing(entry(12), entry(11))
    async with shown(listing, monkeypatch, (130, 30)) as (pilot, screen):
        await wait_for(pilot, "2 of 2 runs")
        await pilot.press("down", "p")
        assert tiny(pilot).opened.pop() == ("proofs", None)
        await pilot.click(screen.query_one("#side"))
        assert tiny(pilot).opened == [("run", listing.entries[1].run)]
