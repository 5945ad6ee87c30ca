"""Exact cases of the parts of screens: help of options, earlier runs, the start bar, words, headings, charts, mouse."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.job.machine_gpus import Machine
from gputui.engine.options import Options
from gputui.tui.base.glyphs import PLAIN, RICH
from gputui.tui.drawing.plot.curves import Curve, Plot
from gputui.tui.drawing.plot.viewport import Viewport
from gputui.tui.form.form_state import INFO, FormState, value_of
from gputui.tui.reading.option_runs import EndedRun, Experience, Gain
from gputui.tui.reading.run.gpu_reading import Gpu
from gputui.tui.reading.run.series import Line
from gputui.tui.widgets import key_footer, option_experience, option_help, start_bar
from gputui.tui.widgets.charts import BigChart, Chart, PlotArea, page_corner
from gputui.tui.widgets.findings import Findings, Remark
from gputui.tui.widgets.gpu_cards import GpuCards, kinds
from gputui.tui.widgets.headings import PartHeading
from gputui.tui.widgets.key_footer import ScreenTab
from gputui.tui.widgets.key_hints import KeyHint, hints_text
from gputui.tui.widgets.limit_rows import Words
from textual import on
from textual.app import ComposeResult
from textual.events import MouseDown, MouseMove, MouseScrollDown, MouseUp
from textual.screen import Screen

from tests.support.form_pilot import NO_GPU, TWO_GPUS
from tests.support.tiny import Tiny

BATCH = "input.batch_size"


@pytest.fixture
def state() -> FormState:
    return FormState.open(presets.SHIPPED / "quickstart.yaml")


# ---- help and earlier runs -------------------------------------------------------------------------------


def test_the_help_of_an_option(state: FormState) -> None:
    remark = Remark("warning", (BATCH, "train.epochs"), "too large", "take 16")
    lines = option_help.help_text(BATCH, state, "there is none", [remark], 60).plain.splitlines()
    assert lines == [
        "input.batch_size  calls Dataset.batch", "does     samples in one step, on each replica; the global",
        "         batch is this times the replicas", "warning  too large; take 16",
        "no GPU   does nothing here: there is none", "helps    a larger batch fills the GPU and spreads per-step",
        "         overhead over more samples", "hurts    takes more memory, and changes what is learnt at",
        "         the same learning rate", "takes    a whole number from 1 to 10,000,000",
        "default  64 samples; in quickstart: 32",
    ]  # fmt: skip
    narrow = [option_help.help_text(BATCH, state, "", [], width).plain.splitlines() for width in (37, 36)]
    assert [(lines[0], "calls    Dataset.batch" in lines) for lines in narrow] == [
        ("input.batch_size  calls Dataset.batch", False), ("input.batch_size", True),
    ]  # fmt: skip
    other = option_help.help_text("train.epochs", state, "", [replace(remark, keys=("train.seed",))], 60).plain
    assert "too large" not in other
    single = option_help.help_text("compile.steps_per_execution", state, "", [], 60).plain.splitlines()
    assert "default  1 step" in single
    state.set(BATCH, "x")
    assert "too large" not in option_help.help_text(BATCH, state, "", [remark], 60).plain, "the row shows the error"
    assert option_help.part_text("Rare", [BATCH, "train.seed"], 40).plain.splitlines() == [
        "Rare  enter folds or unfolds", "batch_size  samples in one step, on each",
        "seed        seed of the weights, the",
    ]  # fmt: skip
    long = option_help.labelled("calls", "keras.mixed_precision.set_global_policy(x) then", "", 34)
    assert [line.plain for line in long] == [
        "calls    keras.mixed_precision.", "         set_global_policy(x) then",
    ]  # fmt: skip


def ended(name: str, batch: int, outcome: str, speed: float | None, metric: Any, values: Any = None) -> EndedRun:
    return EndedRun(name, 1e9, {**(values or {}), BATCH: batch}, outcome, speed, metric)


def test_the_last_runs_by_the_values_of_an_option_and_its_gains(state: FormState) -> None:
    values = {key: value_of(state.preset.options, info) for key, info in INFO.items()}
    runs = (
        ended("r7", 64, "done", 1234.5, ("val_accuracy", 0.91234), values),
        ended("r6", 32, "out of memory", None, ("", None), values | {"train.seed": 9}),
        ended("", 64, "done", 900.0, ("val_loss", 0.5), values),
        ended("r4", 128, "stopped", 99.4, ("val_loss", 0.5), values),
    )
    gains = (Gain({BATCH: 64}, 0.123, "kept", 1e9, "quickstart", ""),
             Gain({BATCH: 128}, -0.05, "slower", 1e9, "other", "box"))  # fmt: skip
    known = Experience("quickstart", runs, gains)
    lines = option_experience.experience_text(known, BATCH, state, 60).plain.splitlines()
    assert lines == [
        "batch_size  in the last runs of quickstart", " value      samples/s  val_accuracy  when  run  differs",
        " 64             1,234         0.912  2001   r7", ">32     out of memory                2001   r6  seed",
        " 128       99 stopped                2001   r4", "proved   batch_size=64 +12.3 % here on 2001, quickstart",
        "measured batch_size=128 -5.0 % on box on 2001, other: slower",
    ]  # fmt: skip
    faster = replace(known, runs=runs[1:], gains=(replace(gains[0], decision="faster"),))
    lines = option_experience.experience_text(faster, BATCH, state, 60).plain.splitlines()
    assert lines[1].split() == ["value", "samples/s", "val_loss", "when", "run", "differs"], "of the first that has one"
    assert lines[-1] == "proved   batch_size=64 +12.3 % here on 2001, quickstart"
    same = replace(known, runs=runs[1:2], gains=())
    assert option_experience.experience_text(same, BATCH, state, 60).plain.splitlines()[1:] == [
        "         no run here has changed it: 1 run with 32"
    ]
    assert option_experience.experience_text(Experience("q"), BATCH, state, 60).plain.splitlines() == [
        "batch_size  in the last runs of q", "         none has ended here yet",
    ]  # fmt: skip


def test_of_an_option_five_values_and_three_gains_are_shown(state: FormState) -> None:
    runs = tuple(ended(f"r{n}", n, "done", 1.0, ("", None)) for n in (32, 1, 2, 2, 3, 4, 5, 6))
    gains = tuple(Gain({key: 1}, 0.1, "kept", 9.0 - n, preset, "") for n, (key, preset) in enumerate((
        (BATCH, "other"), (BATCH, "mine"), ("train.seed", "mine"), (BATCH, "other"), (BATCH, "mine"))))  # fmt: skip
    known = Experience("mine", runs, gains)
    assert [run.name for run in known.by_value(BATCH, state)] == ["r32", "r1", "r2", "r3", "r4"]
    assert Experience("mine", runs[:1]).by_value(BATCH, state) == []
    assert [(gain.preset, gain.when) for gain in known.gains_with(BATCH)] == [
        ("mine", 8.0), ("mine", 5.0), ("other", 9.0),
    ]  # fmt: skip


# ---- the start bar -----------------------------------------------------------------------------------------


def option(**groups: Any) -> Options:
    settings = tuple(f"{group}.{name}={value}" for group, values in groups.items() for name, value in values.items())
    return presets.defaults(settings).options


@pytest.mark.parametrize(
    ("machine", "brief", "own", "text"),
    [(None, 0, None, "batch 64  examining this machine ..."),
     (NO_GPU, 0, None, "global batch 64  on 4 CPU cores (no GPU: no NVIDIA driver on this machine)"),
     (NO_GPU, 1, None, "global batch 64  on 4 CPU cores (no GPU: no NVIDIA driver)"),
     (NO_GPU, 2, None, "global batch 64  on 4 CPU cores (no GPU)"),
     (replace(NO_GPU, no_gpu_reason="hidden (by CUDA_VISIBLE_DEVICES)"), 0, None,
      "global batch 64  on 4 CPU cores (no GPU: hidden)"),
     (TWO_GPUS, 0, None, "global batch 64  on 2 x NVIDIA H100 (only one is used)"),
     (replace(TWO_GPUS, gpus=TWO_GPUS.gpus[:1]), 0, None, "global batch 64  on 1 x NVIDIA H100"),
     (TWO_GPUS, 1, 48, "global batch 48 (of your code)  on 2 x H100 (only one is used)"),
     (replace(NO_GPU, missing="no permission"), 0, None,
      "global batch 64  on the GPUs that CUDA finds; no details: no permission"),
     (replace(NO_GPU, missing="no permission"), 1, None, "global batch 64  on the GPUs that CUDA finds")],
)  # fmt: skip
def test_what_a_start_would_use(machine: Machine | None, brief: int, own: int | None, text: str) -> None:
    assert start_bar.outlook(option(), machine, brief, own) == text


def test_replicas_and_devices_that_are_hidden_are_named_before_a_start() -> None:
    mirrored, hidden = option(strategy={"kind": "mirrored"}), option(device={"visible": "none"})
    assert start_bar.outlook(mirrored, TWO_GPUS) == "global batch 128 = 64 x 2 replicas  on 2 x NVIDIA H100"
    assert start_bar.outlook(hidden, TWO_GPUS) == "global batch 64  on 16 CPU cores (device.visible is none)"
    silent = replace(NO_GPU, missing="no permission")
    assert start_bar.outlook(hidden, silent, 2) == "global batch 64  on 4 CPU cores (no GPU)"


# ---- small texts ----------------------------------------------------------------------------------------------


def test_texts_of_headers_hints_and_pages() -> None:
    assert [page_corner(*page, PLAIN) for page in ((1, 1), (1, 2), (3, 3))] == ["", "< 1/2 >", "< 3/3 >"]
    runs = ScreenTab("runs", "Runs", "F4")
    assert key_footer.item(runs, False, 0, RICH, True) == [
        (" ", "value"), ("F4 ", "label"), ("Runs", "value"), (" ", "value"),
    ]  # fmt: skip
    assert key_footer.item(runs, True, 2, RICH, False) == [
        ("▌", "here"), ("Runs", "here"), (" ▶2", "badge"), ("▐", "here"),
    ]  # fmt: skip
    assert key_footer.item(runs, True, 0, PLAIN, True)[1] == ("F4 ", "here")
    assert hints_text([KeyHint("enter", "accepts"), KeyHint("up", ""), KeyHint("escape", "leaves")]).plain == (
        "enter accepts, up esc leaves"
    )
    remarks = Remark("error", ("train.epochs", BATCH), "must fit", "use 2"), Remark("note", (BATCH,), "small")
    assert list(map(str, remarks)) == [f"train.epochs, {BATCH}: must fit; use 2", f"{BATCH}: small"]
    names = ("NVIDIA H100", "Tesla T4", "NVIDIA H100", None)
    gpus = [Gpu(n, name=name) for n, name in enumerate(names)]
    assert kinds(gpus, False).plain == "GPUs  2 x H100, 1 x Tesla T4, 1 x GPU"


# ---- with the mouse and keys -----------------------------------------------------------------------------------

STEPS = Line(array("d", range(101)), array("d", range(101)), last=100.0)
PLOT = Plot("loss", "", (Curve("", STEPS),), x_unit="step", x_end=100.0, final=True, corner="‹ 2/3 ›", key="loss")


class Parts(Screen[None]):
    """Widgets of several screens, which keep what they report."""

    CSS = "BigChart, Chart { height: 8; width: 58; } Words { height: 2; width: 30; } GpuCards { height: 8; }"

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[Any] = []

    def compose(self) -> ComposeResult:
        yield BigChart(Viewport())
        yield Chart(Viewport())
        yield Words("many", [("a", "one"), ("b", "two"), ("c", "a longer third")], {"b"})
        yield Words("one", [("a", "one"), ("b", "two"), ("c", "three")], {"b"}, single=True)
        yield PartHeading("Rare", ["compile.xla", "train.seed"], FormState.open(presets.SHIPPED / "quickstart.yaml"))
        yield Findings()
        yield GpuCards()

    @on(Words.Switched)
    @on(PartHeading.Folded)
    @on(Chart.Opened)
    @on(Chart.Turned)
    @on(PlotArea.Moved)
    @on(Findings.Jump)
    def keep(self, message: Any) -> None:
        fields = ("key", "by", "visible")
        shown = [getattr(message, name) for name in fields if hasattr(message, name)]
        self.reported.append((type(message).__name__, *shown))

    def on_mouse_scroll_down(self) -> None:
        self.reported.append(("scrolled",))


async def test_words_headings_findings_and_cards_are_switched_by_mouse_and_keys() -> None:
    async with Tiny(Parts).run_test(size=(80, 60)) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, Parts)
        many, one = screen.query_one("#many", Words), screen.query_one("#one", Words)
        many.focus()
        await pilot.press("space")
        assert many.chosen == {"a", "b"}, "the cursor is on the first word"
        await pilot.press("space")
        await pilot.click(many, offset=(1, 0))
        assert many.chosen == {"a", "b"}
        assert str(many.content).splitlines() == [">[x] one  [x] two ", " [ ] a longer third "]
        for offset in ((8, 0), (9, 0), (16, 0), (17, 0), (18, 1), (19, 1)):
            await pilot.click(many, offset=offset)
        assert many.chosen == {"a", "b", "c"}, "the gap after a word belongs to no word"
        await pilot.press("right", "space")
        assert many.chosen == {"b", "c"}, "from the last word to the first"
        await pilot.click(one, offset=(20, 0))
        assert (one.chosen, str(one.content)) == ({"c"}, " ( ) one  ( ) two >(*) three ")
        await pilot.press("right", "right", "left", "left", "left")
        assert one.chosen == {"b"}
        assert screen.reported == [("Switched",)] * 13
        screen.reported.clear()
        heading = screen.query_one(PartHeading)
        assert heading.group == "compile"
        before = heading.folded
        texts = {}
        for heading.folded in (not before, before):
            texts[heading.folded] = heading.render().plain.split()[-2:]
        assert texts == {True: ["xla,", "seed"], False: ["1", "changed"]}
        await pilot.click(heading)
        await pilot.press("right", "right", "left", "left", "enter")
        assert (heading.folded, len(screen.reported)) == (before, 4)
        screen.reported.clear()
        findings = screen.query_one(Findings)
        error, note = Remark("error", ("train.epochs",), "must be larger"), Remark("note", (BATCH, "x.y"), "small")
        remarks = [error, note]
        findings.show(remarks)
        findings.focus()
        await pilot.pause()
        assert (findings.display, findings.has_class("-errors"), findings.highlighted) == (True, True, 0)
        await pilot.press("down", "enter")
        assert screen.reported == [("Jump", BATCH)]
        findings.show(remarks[::-1])
        assert findings.highlighted == 1, "the cursor stays in its line"
        findings.show(remarks[:1])
        assert (findings.highlighted, findings.option_count) == (0, 1)
        findings.show(remarks[1:])
        assert not findings.has_class("-errors")
        width = findings.size.width - 2
        path, remedy = "/srv/jane/envs/train/model.py", "move it"
        for longer, written in ((0, path), (1, ".../model.py")):
            spare = width - len(f"warning train.epochs {path} is slow; {remedy}") + longer
            message = f"{path} is slow{'!' * spare}"
            findings.show([Remark("warning", ("train.epochs",), message, remedy)])
            line = findings.get_option_at_index(0).prompt
            assert str(line) == f"warning train.epochs {written} is slow{'!' * spare}; {remedy}", longer
        findings.show([])
        assert not findings.display


async def test_charts_are_zoomed_selected_opened_and_turned_by_the_mouse() -> None:
    async with Tiny(Parts).run_test(size=(80, 60)) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, Parts)
        big, small = screen.query_one(BigChart), screen.query_one(Chart)
        for chart in (big, small):
            assert chart.view is not None
            chart.show(PLOT)
            chart.view.suit([PLOT])
        view = big.view
        assert (big.inner, round(big.cell, 6)) == (51, 2.0)

        async def drag(chart: PlotArea, begin: int, end: int) -> None:
            await pilot.mouse_down(chart, offset=(begin, 3))
            await pilot.hover(chart, offset=(end, 3))
            await pilot.mouse_up(chart, offset=(end, 3))
            await pilot.pause()

        await pilot.click(big, offset=(17, 3))
        assert (view.cursor, view.window) == (20.0, None)
        await drag(big, 17, 18)
        assert (view.cursor, view.window) == (20.0, None), "less than two columns select nothing"
        await drag(big, 37, 17)
        assert view.window == (20.0, 60.0)
        big.show(replace(PLOT, window=view.window))
        await pilot.pause()
        screen.reported.clear()
        await pilot._post_mouse_events([MouseScrollDown], big, offset=(32, 3), button=0)
        await pilot.pause()
        assert (view.window, screen.reported) == ((0.0, 80.0), [("Moved", True)]), "the screen is not scrolled"
        await pilot.click(big, offset=(32, 3), times=2)
        assert view.window is None
        for event, x in ((MouseDown, 17), (MouseMove, 37), (MouseUp, 37)):
            await pilot._post_mouse_events([event], big, offset=(x, 3), button=3)
        await pilot.pause()
        assert view.window is None, "another button selects nothing"
        view.hover(30.0)
        await pilot.mouse_down(big, offset=(17, 3))
        big.on_leave()
        assert view.cursor is not None, "the mouse may leave the chart while it selects"
        await pilot.mouse_up(big, offset=(17, 3))
        view.hover(30.0)
        big.on_leave()
        assert view.cursor is None
        assert small.view is not None
        assert small.render_line(0).text.endswith(" 100")
        small.view.place(0.0)
        small.show(replace(PLOT, x_end=101.0))
        await pilot.pause()
        assert small.render_line(0).text.endswith("   0"), "the figure at the cursor"
        screen.reported.clear()
        await pilot.click(small, offset=(20, 3))
        for x in (57, 56, 54, 53, 50, 49):
            await pilot.click(small, offset=(x, 7))
        assert [report[1:] for report in screen.reported if report[0] in ("Opened", "Turned")] == [
            ("loss",), ("loss",), (1,), (1,), (-1,), (-1,), ("loss",),
        ]  # fmt: skip
        screen.reported.clear()
        assert small.view is not None
        small.view.select(10.0, 60.0)
        for y in (1, 0):
            await pilot.click(small, offset=(20, y))
            await pilot.pause()
        assert [report for report in screen.reported if report != ("Moved", True)] == [
            ("Moved", False),
            ("Opened", "loss"),
        ]


async def test_the_first_and_the_last_gpu_are_selected() -> None:
    async with Tiny(Parts).run_test(size=(80, 60)) as pilot:
        from gputui.tui.drawing.live.layout import Cards

        cards = pilot.app.screen.query_one(GpuCards)
        gpus = [Gpu(index, history=STEPS) for index in (2, 5, 7)]
        cards.show(gpus, 9.0, Cards(1, 1))
        assert cards.picked is None, "no room for its figures"
        cards.show(gpus, 9.0, Cards(1, 1, detail=5))
        picked: list[Any] = []
        for by, edge in ((1, None), (1, None), (1, None), (-1, None), (0, 0), (0, -1), (1, None)):
            if edge is None:
                cards.pick(by)
            else:
                cards.pick_edge(edge)
            picked.append(cards.picked and cards.picked.index)
        assert picked == [5, 7, 2, 7, 2, 7, 2]
        await pilot.pause()
        (detail,) = cards.query("#detail")
        cards.show(gpus, 9.0, Cards(1, 1))
        assert (cards.picked, detail.display) == (None, False)
        cards.show(gpus, 9.0, Cards(1, 1, detail=5))
        assert detail.display
