"""What the live view reads of its run, and when: pictures, place in the queue, checkpoints, names, earlier starts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gputui.engine.runs import Run, titles
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.drawing.live import phases
from gputui.tui.drawing.plot.scales import soon
from gputui.tui.drawing.rows import plain
from gputui.tui.reading import earlier_starts
from gputui.tui.reading.earlier_starts import EarlierStarts
from gputui.tui.reading.queue_places import Waiting
from gputui.tui.reading.run.reader import Picture
from gputui.tui.reading.run.snapshot import Message, Snapshot
from gputui.tui.screens.live import screen as live_screen
from gputui.tui.screens.live import view as live_view
from gputui.tui.screens.live.screen import LiveScreen

from tests.support import recorded
from tests.support.answering import Answering


class Reader:
    """A reader of a run: each poll takes the next of its steps, a picture (None: the one before) and whether the disk
    has more. After the last step the run has ended.
    """

    def __init__(self, *steps: tuple[Picture | None, bool]) -> None:
        self.steps = list(steps)
        self.picture = Picture()
        self.made: list[Any] = []

    def __call__(self, *given: Any) -> Reader:
        self.made.append(given)
        return self

    @property
    def ended(self) -> bool:
        return not self.steps

    def poll(self) -> bool:
        picture, behind = self.steps.pop(0) if self.steps else (None, False)
        self.picture = picture or self.picture
        return behind


class Leaving(threading.Event):
    """Is set after so many waits. `waits` has how long each would have taken."""

    def __init__(self, most: int, clock: list[float]) -> None:
        super().__init__()
        self.most, self.clock, self.waits = most, clock, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        self.clock[0] += timeout
        if len(self.waits) == self.most:
            self.set()
        return self.is_set()


class Read:
    """The live view of a run, which is not run, over a reader."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, run: Run, reader: Reader, **given: Any) -> None:
        self.clock = [1000.0]
        monkeypatch.setattr(live_view, "RunReader", reader)
        monkeypatch.setattr(live_view, "time", SimpleNamespace(monotonic=lambda: self.clock[0], time=lambda: 0.0))
        self.app = Answering()
        monkeypatch.setattr(LiveScreen, "app", self.app)
        self.screen = LiveScreen(run, **given)

    def pictures(self, waits: int) -> tuple[list[Picture], list[float]]:
        leaving = Leaving(waits, self.clock)
        found = []
        for picture in self.screen.readings(leaving):
            found.append(picture)
            self.screen.set_reactive(cast("Any", LiveScreen).latest, picture)
        return found, leaving.waits


def picture(phase: str, reading: bool = False, **more: Any) -> Picture:
    return Picture(Snapshot(phase=phase, **more), reading=reading)


A, B = picture("a", outcome=None), picture("b", outcome="ok")


@pytest.fixture
def run(home: Path) -> Run:
    return recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=20)


@pytest.mark.parametrize(
    ("steps", "pictures", "waits"),
    [
        ([(A, False), (None, False), (B, False)], [A, B], [0.25, 0.25, 2.5, 2.5]),
        ([(A, True), (A, True), (B, False)], [B], [2.5] * 4),
        ([(A, False), (B, True), (B, True), (B, False)], [A, picture("a", reading=True), B], [0.25] + [2.5] * 3),
        ([(None, False), (None, False)], [Picture()], [0.25] + [2.5] * 3),
    ],
)
def test_a_new_picture_is_shown_once_and_none_while_there_is_more_to_read(
    run: Run, monkeypatch: pytest.MonkeyPatch, steps: Sequence[Any], pictures: list[Picture], waits: list[float]
) -> None:
    view = Read(monkeypatch, run, Reader(*steps))
    assert view.pictures(4) == (pictures, waits)


def test_a_screen_that_was_hidden_goes_on_with_its_reader_and_a_resumed_run_gets_a_new_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("read_again", "_name_anew"):
        monkeypatch.setattr(LiveScreen, name, lambda screen: None)
    reader = Reader((A, False))
    view = Read(monkeypatch, run, reader)
    for resumed, made in ((None, 1), (None, 1), (False, 1), (True, 2), (None, 2)):
        if resumed is not None:
            view.screen.acted(run, resumed)
        view.pictures(1)
        assert len(reader.made) == made
    replayed = Read(monkeypatch, run, reader, replay_speed=8.0, clock=len)
    replayed.pictures(1)
    assert reader.made[-1] == (run, 8.0, len)
    assert (replayed.screen.kept_as, view.screen.kept_as) == ("", run.id), "a replay begins anew"


def test_the_place_in_the_queue_is_read_once_a_second_until_the_run_begins(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, asked = [Waiting("r1", 2), Waiting("r1", 1), None, None], list[float]()
    active = [False, False, True]
    monkeypatch.setattr(Run, "is_active", property(lambda run: active.pop(0) if len(active) > 1 else active[0]))
    view = Read(monkeypatch, run, Reader(*[(A, False)] * 20))

    def place(of: Run) -> Waiting | None:
        assert of == run
        asked.append(view.clock[0])
        return places.pop(0)

    monkeypatch.setattr(live_view, "queue_place", place)
    found = []
    for waits in (1, 4, 4):
        view.pictures(waits)
        found.append((view.screen.waiting_now, view.screen.goes_on_at_first))
    assert [now.place if now else None for now, _ in found] == [2, 1, None]
    assert asked == [1000.0, 1000.25, 1001.25, 1002.25][: len(asked)]
    assert [goes_on for _, goes_on in found] == [False, False, True]
    replayed = Read(monkeypatch, run, Reader((A, False)), replay_speed=8.0)
    asked.clear()
    replayed.pictures(1)
    assert asked == [], "a replay is in no queue"


@pytest.mark.parametrize(
    ("active", "steps", "there", "has"),
    [
        (True, [(A, False)], False, True),  # until it is known
        (True, [(B, False)], False, False), (True, [(B, False)], True, True),
        (False, [(A, False)], False, False), (False, [(A, False)], True, True),
    ],
)  # fmt: skip
def test_a_run_that_has_ended_can_be_resumed_if_it_has_a_checkpoint(
    run: Run, monkeypatch: pytest.MonkeyPatch, active: bool, steps: Sequence[Any], there: bool, has: bool
) -> None:
    monkeypatch.setattr(Run, "is_active", property(lambda run: active))
    if there:
        run.file("checkpoints/step-0000000010").mkdir(parents=True)
    view = Read(monkeypatch, run, Reader(*steps))
    assert view.screen.has_checkpoint
    view.pictures(1)
    assert view.screen.has_checkpoint is has


@pytest.mark.parametrize(
    ("progress", "outcome", "read"), [({}, None, 1), ({"step": 1}, None, 0), ({}, "ok", 0)]
)  # fmt: skip
def test_earlier_starts_are_read_once_while_a_run_has_not_trained_yet(
    run: Run, monkeypatch: pytest.MonkeyPatch, progress: dict[str, Any], outcome: Any, read: int
) -> None:
    asked: list[Run] = []

    def of(run: Run) -> EarlierStarts:
        asked.append(run)
        return EarlierStarts(3)

    monkeypatch.setattr(earlier_starts, "of", of)
    first, second = (picture(phase, progress=progress, outcome=outcome) for phase in ("importing", "building"))
    view = Read(monkeypatch, run, Reader((first, False), (second, False)))
    view.pictures(4)
    assert asked == [run] * read


def test_title_tags_note_and_description_stand_in_the_head_and_the_title_over_a_chart(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "number", property(lambda run: 12))
    view = Read(monkeypatch, run, Reader((A, False)))
    assert view.screen.about == run.id, "nothing has been read"
    titles.write_note(run, "too slow\n [disk]")
    titles.retag(run, ["best", "a"])
    view.pictures(1)
    assert view.screen.about == f"r12 {titles.title_of(run)}"
    assert view.screen.description == "#best #a  note: too slow [disk]  ResNet-50 on synthetic images"
    assert not view.screen.stopping
    monkeypatch.setattr(LiveScreen, "is_running", True)
    monkeypatch.setattr(Answering, "is_stopping", lambda app, asked: asked == run)
    view.screen.read_names()
    assert view.screen.stopping, "it was asked to stop on another screen"
    monkeypatch.setattr(Run, "number", property(lambda run: None))
    view.pictures(1)
    assert view.screen.about == str(titles.title_of(run))


def test_why_a_run_waits_its_messages_and_its_workers_share_the_rows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    view = Read(monkeypatch, run, Reader())
    monkeypatch.setattr(LiveScreen, "glyphs", PLAIN)
    warnings = tuple(Message(f"w{number}", f"warning {number}") for number in range(3))
    workers = {"workers": [{"index": 1, "address": "b:1\x1b", "missing": "no news for 9 s"}]}
    now = Snapshot(phase="training", started={"step": 0}, warnings=warnings, workers=workers)
    view.screen.set_reactive(cast("Any", LiveScreen).latest, Picture(now))
    queued = ["place 2: needs a GPU"]
    many = ["! warning 2                             3 warnings: m shows all"]
    each = [f"! warning {number}" for number in range(3)]
    worker = ["worker 1 (b:1?): no news for 9 s"]
    for waiting, height, lines in (
        (None, 1, many), (None, 2, ["! warning 1", *many]), (None, 3, each), (None, 4, [*each, *worker]),
        (Waiting("r1", 2, why="needs a GPU"), 2, [*queued, *many]),
        (Waiting("r1", 2, why="needs a GPU"), 4, [*queued, *each]),
        (Waiting("r1", 2, why="needs a GPU"), 5, [*queued, *each, *worker]),
    ):  # fmt: skip
        view.screen.waiting = waiting
        assert [plain(row).rstrip() for row in view.screen._messages(63, height)] == lines, height
    view.screen.set_reactive(cast("Any", LiveScreen).latest, Picture(Snapshot(phase="starting")))
    rows = [plain(row).strip() for row in view.screen._messages(63, 9)]
    assert rows[1].split() == ["place", "2", "of", "1"], "it has never begun: each item has a row"


# ---- keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("newest", "compared"), [("c", ["b", "c"]), ("b", ["a", "b"]), ("a", None)])
def test_a_run_is_compared_with_the_newest_one_before_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, newest: str, compared: list[str] | None
) -> None:
    runs = {name: recorded.write(home, name=name, gpus=0, seconds=20) for name in "acb"}
    view = Read(monkeypatch, runs[newest], Reader())
    monkeypatch.setattr(view.app, "call_from_thread", lambda do, *given: do(*given))
    LiveScreen.action_compare.__wrapped__(view.screen)  # type: ignore[attr-defined]
    assert [[run.id for run in pair] for _, pair in view.app.opened] == ([compared] if compared else [])
    assert view.app.told == ([] if compared else ["there is no run before this one (information)"])


def test_the_first_chart_its_pages_and_zooms(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    view = Read(monkeypatch, run, Reader())
    shown: list[Any] = []
    monkeypatch.setattr(LiveScreen, "show_now", lambda screen, turn=None: shown.append((screen.zoom, screen.page)))
    monkeypatch.setattr(LiveScreen, "pages", 3)
    for part, zoom in (("gpus", "gpus"), ("charts", "charts"), ("charts", "")):
        view.screen.action_zoom(part)
        assert shown.pop() == (zoom, 0)
    for by, page in ((1, 1), (1, 2), (1, 0), (-1, 2), (-1, 1)):
        view.screen.action_page(by)
        assert shown.pop() == ("", page)
    assert shown == []


def test_the_cursor_of_the_charts_moves_by_the_columns_of_the_first_visible_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chart(display: bool, width: int, inner: str) -> Any:
        return SimpleNamespace(display=display, size=SimpleNamespace(width=width), inner=inner)

    view, did = Read(monkeypatch, run, Reader()), list[Any]()
    shown = [chart(False, 9, "hidden"), chart(True, 0, "empty"), chart(True, 9, "first"), chart(True, 9, "second")]
    monkeypatch.setattr(LiveScreen, "query", lambda screen, kind: shown)
    monkeypatch.setattr(LiveScreen, "show_view", lambda screen, visible: did.append(visible))

    class View:
        window: Any = None

        def move(self, columns: int, inner: str) -> None:
            did.append((columns, inner))
            self.window = (columns, 9) if abs(columns) > 1 else self.window

    view.screen.view = cast("Any", View())
    for columns, moved in ((1, False), (-2, True), (-2, False), (-1, False), (5, True)):
        view.screen.action_move(columns)
        assert did == [(columns, "first"), moved], "the visible part moves with a cursor that leaves it"
        did.clear()
    shown.clear()
    view.screen.action_move(1)
    assert did == []


def test_the_charts_of_gpus_end_where_the_run_has_ended_and_before_that_a_little_later(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, shown = Read(monkeypatch, run, Reader()), list[Any]()
    cards = SimpleNamespace(show=lambda *given: shown.append(given))
    monkeypatch.setattr(LiveScreen, "query_one", lambda screen, kind: cards)
    layout: Any = SimpleNamespace(cards="the cards", edges=True)
    for outcome, elapsed, end in ((None, 71.0, soon(71.0)), ("ok", 71.0, 71.0), ("ok", 0.0, 1.0)):
        view.screen.set_reactive(cast("Any", LiveScreen).latest, picture("a", outcome=outcome, elapsed=elapsed))
        view.screen._show_gpus(layout, 3)
        assert shown.pop() == ((), end, "the cards", True, 3, outcome is not None)
    assert soon(71.0) > 71.0


def test_a_hint_that_proposes_values_is_put_into_the_form_of_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[Any] = []

    async def put_into_form(app: Any, run: Run, changes: Any) -> None:
        put.append((run, dict(changes)))

    monkeypatch.setattr(live_screen, "put_into_form", put_into_form)
    view = Read(monkeypatch, run, Reader())
    for hint, changes in (("try input.batch_size=16", {"input.batch_size": 16}), ("look at workload.data", None)):
        error = SimpleNamespace(hint=hint)
        now = Picture(cast("Any", SimpleNamespace(error=error)))
        view.screen.set_reactive(cast("Any", LiveScreen).latest, now)
        coroutine = LiveScreen.action_apply.__wrapped__(view.screen)  # type: ignore[attr-defined]
        with pytest.raises(StopIteration):
            coroutine.send(None)
        assert (put.pop() if put else None) == ((run, changes) if changes else None)


def test_while_a_run_goes_on_every_second_picture_is_painted_whole_and_its_end_at_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, painted = Read(monkeypatch, run, Reader()), list[Any]()
    monkeypatch.setattr(LiveScreen, "show_now", lambda screen, turn=None: painted.append(turn))
    head = SimpleNamespace(repaint=lambda: painted.append("head"))
    monkeypatch.setattr(LiveScreen, "query_one", lambda screen, name, kind: head if name == "#head" else None)
    view.screen.set_reactive(cast("Any", LiveScreen).latest, A)
    for _ in range(5):
        view.screen.show_latest()
    assert painted == [0, "head", 1, "head", 2]
    painted.clear()
    view.screen.show_again()
    view.screen.show_latest()
    assert painted == [None, 0], "a screen that comes back is whole"
    view.screen.set_reactive(cast("Any", LiveScreen).latest, B)
    for _ in range(3):
        view.screen.show_latest()
    assert painted[2:] == [None] * 3


def test_a_run_that_is_read_says_so_in_its_phase(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    view = Read(monkeypatch, run, Reader())
    assert view.screen.now.phase == phases.READING
    assert view.screen.pages == 1
