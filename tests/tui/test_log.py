"""The log of a run: its folded noise, its epochs, the search, the filter and the wrapped lines."""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input

from tests.doors.engine import Epoch
from tests.doors.tui import (
    PLAIN,
    LiveScreen,
    LogLines,
    LogPanel,
    Picture,
    Snapshot,
)
from tests.support import recorded
from tests.support.tiny import Tiny, text_of, wait_for

# As TensorFlow 2.21 and Keras 3.15 wrote them, shortened.
LINES = {
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR": ("muted", True),
    "I0000 00:00:1795307329.707513   27481 port.cc:153] oneDNN custom operations are on.": ("muted", True),
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow": ("muted", True),
    "E0000 00:00:1795307334.530655   27481 cuda_platform.cc:52] failed call to cuInit: INTERNAL": ("bad", False),
    "E0000 00:00:1795307334.53   27481 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call "
    "to cuInit: UNKNOWN ERROR (303)": ("muted", True),
    "W0000 00:00:1795307334.53   27481 gpu_device.cc:2342] Cannot dlopen some GPU libraries.": ("warn", False),
    "E0000 00:00:1795307334.53   27481 cuda_dnn.cc:8579] Unable to register cuDNN factory": ("muted", True),
    "2026-11-22 10:27:03.123456: I tensorflow/core/util/port.cc:153] oneDNN": ("muted", True),
    "2026-11-22 10:27:03.123456: W tensorflow/core/framework/op.cc:1] slow": ("warn", False),
    "Traceback (most recent call last):": ("bad", False),
    "ValueError: shapes do not fit": ("bad", False),
    "/own/train.py:3: UserWarning: few samples": ("warn", False),
    "WARNING:tensorflow:5 out of the last 5 calls triggered retracing": ("warn", False),
    "Epoch 3/10": ("epoch", False),
    "my own words about an Error and Epoch 3": ("", False),
}
NOISE = "".join(f"I0000 00:00:{recorded.BEGAN + second:.6f}    5303 port.cc:1] {second} says\n" for second in (1, 2, 3))
OWN = "".join(f"sample\rsample {number}\n" for number in range(40))  # each rewritten, as a progress bar does


async def test_the_log_is_folded_wrapped_and_filtered_and_the_settings_keep_it(home: Path) -> None:
    log = f"{NOISE}{'long ' * 40}end\n{OWN}W0000 00:00:5.1 1 a.cc:1] slow\n"
    run = recorded.write(home, gpus=1, seconds=80, log=log)
    app = Tiny(lambda: LiveScreen(run))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("l", "g")
        shown = await wait_for(pilot, "▸ 3 lines of TensorFlow's start-up; space shows them")
        assert "2 says" not in shown
        await pilot.press("space")
        await wait_for(pilot, "2 says")
        assert not app.settings.log.fold
        await pilot.press("space")
        await wait_for(pilot, "▸ 3 lines")
        await pilot.click(LogLines, offset=(4, 0))
        await wait_for(pilot, "2 says")
        assert "end" not in text_of(app).split()
        await pilot.press("W")
        await wait_for(pilot, lambda: "end" in text_of(app).split())
        assert app.settings.log.wrap
        await pilot.press("slash", *"ple 3")
        await wait_for(pilot, lambda: "ple 39" in text_of(app) and "ple 29" not in text_of(app))
        await pilot.press("enter", "f")
        await wait_for(pilot, "1 of 11")
        await pilot.press("enter")  # in context
        shown = await wait_for(pilot, "sample 4")
        assert "sample 2" in shown
        await pilot.press("escape", "end")
        shown = await wait_for(pilot, "epoch 2/3")
        assert "1 of 11" not in shown
        assert "47 lines" in shown, shown  # two of them are epochs
        screen = pilot.app.screen
        assert isinstance(screen, LiveScreen)
        (copied, *_) = screen.copyables()
        assert copied.preview == "the last 47 lines"
        assert len(copied.text().split("\n")) == 47
        view = pilot.app.screen.query_one(LogLines)
        at = next(y for y, row in enumerate(view.rows) if "slow" in row.text)
        slow = next(iter(view.render_line(at - view.scroll_offset.y)))
        assert slow.style is not None
        assert slow.style.color == view.get_component_rich_style("log--warn", partial=True).color
        await pilot.press("space", "end")
        await wait_for(pilot, lambda: app.settings.log.fold and view.scroll_offset.y > 0)
        await pilot.click(LogLines, offset=(4, 0))
        await pilot.pause()
        assert app.settings.log.fold, "the folded row is above the first one that is shown"
    app.settings.flush()
    assert "wrap: true" in app.settings.path.read_text()


NOISE_LOG_VIEW = ("I0000 00:00:1.5  1 a.cc:1] one", "I0000 00:00:1.6  1 a.cc:1] two")
LINES_LOG_VIEW = ("begun", *NOISE_LOG_VIEW, *(f"sample {number}" for number in range(30)), "wide " * 20 + "end")
FOLDED = "[+] 2 lines of TensorFlow; space shows them"


class Alone(Screen[None]):
    """Only a log."""

    CSS = "LogPanel { height: 12; }"

    def compose(self) -> ComposeResult:
        yield LogPanel()


async def painted(view: LogLines) -> None:
    """Wait until the view has done what it does after it was painted, and was then painted again."""
    for _ in range(3):
        done = asyncio.Event()
        view.refresh()
        view.call_after_refresh(done.set)
        await done.wait()


def picture(lines: tuple[str, ...], *epochs: int, count: int = 0) -> Picture:
    ended = tuple(Epoch(50.0, number, 9, 1.5, {}) for number in epochs)
    return Picture(Snapshot(epochs=ended), lines, (0.0,) * len(lines), count or len(lines))


def shown(view: LogLines) -> list[str]:
    return [row.text for row in view.rows]


async def test_a_search_ends_where_it_began_and_the_next_one_is_as_new() -> None:
    async with Tiny(Alone, PLAIN).run_test(size=(80, 20)) as pilot:
        panel, view = pilot.app.screen.query_one(LogPanel), pilot.app.screen.query_one(LogLines)
        field = panel.query_one(Input)

        async def state() -> tuple[str, int, bool]:
            await pilot.pause()
            await painted(view)
            return panel.right, len(view.rows), view.scroll_offset.y == view.max_scroll_y

        panel.show(picture(LINES_LOG_VIEW, 1, count=5000))
        assert await state() == ("/ filters  m only errors  W wraps  5,001 lines", 34, True)
        assert shown(view)[:3] == ["begun", FOLDED, "sample 0"]
        assert shown(view)[-1] == "epoch 1/9   1.5 s"
        assert (view.count, view.text().splitlines()) == (35, [*LINES_LOG_VIEW, "epoch 1/9   1.5 s"]), (
            "none is folded in a copy"
        )
        view.focus()
        view.scroll_home(animate=False, immediate=True)
        panel.show(picture((*LINES_LOG_VIEW, "later"), 1, count=5001))
        assert await state() == ("/ filters  m only errors  W wraps  5,002 lines", 35, False), "it was scrolled"
        assert view.scroll_offset.y == 0
        panel.open_search()
        await pilot.press(*"ple 2")
        assert await state() == ("'ple 2': 11 of 11  f F  5,002 lines", 11, True)
        assert shown(view) == [f"sample {number}" for number in (2, *range(20, 30))]
        panel.step(1)
        assert panel.right == "'ple 2': 1 of 11  f F  5,002 lines"
        panel.step(-1)
        panel.step(-1)
        assert panel.right == "'ple 2': 10 of 11  f F  5,002 lines"
        await pilot.press("enter")
        assert (field.display, view.has_focus, view.sought) == (False, True, "ple 2")
        await pilot.press("enter")  # in context
        assert await state() == ("'ple 2': 11 of 11  f F  5,002 lines", 36, True)
        panel.step(1)
        assert await state() == ("'ple 2': 1 of 11  f F  5,002 lines", 36, False)
        assert shown(view)[1] == NOISE_LOG_VIEW[0], "nothing is folded during a search"
        panel.open_search()
        field.value = "tWo"
        assert await state() == ("'tWo': 1 of 1  f F  5,002 lines", 1, True)
        field.value = "nowhere"
        assert await state() == ("'nowhere': not found  f F  5,002 lines", 0, True)
        assert panel.close_search()
        assert await state() == ("/ filters  m only errors  W wraps  5,002 lines", 35, True), (
            "the newest line is followed again"
        )
        assert (panel.close_search(), field.display, view.has_focus) == (False, False, True)
        field.value = "begun"
        assert await state() == ("/ filters  m only errors  W wraps  5,002 lines", 35, True), "the field is closed"
        panel.open_search()
        field.value = ""
        await pilot.press("enter")
        assert await state() == ("/ filters  m only errors  W wraps  5,002 lines", 35, True)
        panel.open_search()
        await pilot.press(*"begun", "enter")
        assert panel.right == "'begun': 1 of 1  f F  5,002 lines"
        await pilot.press("enter")  # in context, where the newest line is not followed
        assert await state() == ("'begun': 1 of 1  f F  5,002 lines", 36, False)
        assert panel.close_search(), "also after Enter"
        assert await state() == ("/ filters  m only errors  W wraps  5,002 lines", 35, True)
