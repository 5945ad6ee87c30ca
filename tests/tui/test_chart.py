"""Pictures of figures: exact sizes, round numbers, honest scales, and readable without braille and colour."""

from __future__ import annotations

import itertools
import re
from array import array
from dataclasses import replace

import pytest
from gputui.engine.units import axis_time
from gputui.tui.base.glyphs import PLAIN, RICH, Glyphs, suited
from gputui.tui.drawing.gpu_details import whole
from gputui.tui.drawing.live import layout
from gputui.tui.drawing.plot.axes import tick_text, x_scale, y_scale
from gputui.tui.drawing.plot.canvas import draw
from gputui.tui.drawing.plot.curves import Curve, Plot
from gputui.tui.drawing.plot.scales import round_scale, share_scale, soon
from gputui.tui.drawing.rows import differences, fit, gauge, headline, length, plain
from gputui.tui.reading.run.gpu_reading import Gpu, GpuProcess, Instance
from gputui.tui.reading.run.series import Line
from gputui.tui.widgets.charts import Chart
from gputui.tui.widgets.gpu_cards import GpuCard, card
from textual.app import ComposeResult
from textual.geometry import Region
from textual.screen import Screen

from tests.support.cases import all_hold
from tests.support.tiny import Tiny, wait_for

GIB = 1024**3
H100 = Gpu(
    3,
    name="NVIDIA H100 80GB HBM3",
    busy=0.97,
    memory_used_bytes=61.4 * GIB,
    memory_total_bytes=79.6 * GIB,
    temperature_c=64,
    power_w=612.4,
    power_limit_w=700.0,
    sm_clock_mhz=1980,
    throttle=("power cap",),
    tf_current_bytes=38.2 * GIB,
    tf_peak_bytes=57.9 * GIB,
)
FULL = replace(
    H100,
    memory_clock_mhz=2619,
    pstate=0,
    sm_active=0.87,
    tensor_active=0.45,
    dram_active=0.61,
    memory_busy=0.33,
    energy_j=7_200_000.0,
    slowed={"power": 0.1, "heat": 0.0},
    pcie_rx_bytes_per_second=1.5 * GIB,
    pcie_tx_bytes_per_second=210 * 1024**2,
    nvlink_links=18,
    nvlink_rx_bytes_per_second=30 * GIB,
    nvlink_tx_bytes_per_second=29 * GIB,
    ecc_corrected=4,
    ecc_uncorrected=1,
    mig_off=True,
    processes=(GpuProcess(5303, "python", 60.8 * GIB, True), GpuProcess(911, "Xorg\x1b[2J", None, False)),
)


def line(*values: float) -> Line:
    return Line(array("d", range(len(values))), array("d", values), last=values[-1] if values else None)


def drawn(plot: Plot, width: int = 40, height: int = 9, glyphs: Glyphs = RICH) -> list[str]:
    return [plain(row) for row in draw(plot, width, height, glyphs)[0]]


def test_every_size_is_kept_exactly() -> None:
    plot = Plot("loss", "", (Curve("train", line(3, 2, 1)), Curve("val", line(2, 1), True)), x_unit="step", x_end=2)
    for width in (9, 20, 38, 61, 120):
        for height in range(1, 16):
            for glyphs in (RICH, PLAIN):
                rows, _ = draw(plot, width, height, glyphs)
                assert len(rows) <= height
                assert all(length(fit(row, width)) == width for row in rows)
                assert all(length(row) <= width for row in rows), (width, height)


def test_shares_always_stand_on_0_to_100() -> None:
    for tall in range(1, 60):
        scale = share_scale(tall)
        places = [tick / scale.high * (tall - 1) for tick in scale.ticks]
        assert (scale.ticks[0], scale.ticks[-1]) == pytest.approx((0.0, 1.0))
        assert all(abs(place - round(place)) < 1e-6 for place in places), tall
        assert len(places) >= 3 or tall < 9
    rows = drawn(Plot("input wait", "", (Curve("", line(0.02, 0.03)),), bounds="share", x_end=2))
    assert any("100 %" in row for row in rows)
    assert any(row.lstrip().startswith("0 %") for row in rows)


@pytest.mark.parametrize(("low", "high"), [(0, 9719), (0.03, 2.31), (-1, 1), (5, 5), (0, 0), (1e-7, 3e-6), (0, 3e9)])
def test_scales_hold_their_values_on_round_numbers(low: float, high: float) -> None:
    for tall in range(2, 16):
        scale = round_scale(low, high, tall)
        assert scale.low <= low + 1e-12
        assert high <= scale.high * (1 + 1e-9) + 1e-12
        assert all(len(tick_text(tick, scale.step)) <= 6 for tick in scale.ticks)
        rows = [(scale.high - tick) / (scale.high - scale.low) * (tall - 1) for tick in scale.ticks]
        assert all(abs(row - round(row)) < 1e-6 for row in rows)


def test_throughput_starts_at_zero_and_the_scale_does_not_jump() -> None:
    plot = Plot("throughput", "samples/s", (Curve("", line(9000, 9500)),), bounds="zero", x_end=2)
    scale = y_scale(plot, 8, None)
    assert scale.low == 0
    slower = Plot("throughput", "samples/s", (Curve("", line(8800, 9100)),), bounds="zero", x_end=2)
    assert y_scale(slower, 8, scale) is scale


def test_labels_say_what_they_mean() -> None:
    assert [axis_time(s) for s in (0, 20, 300, 330, 5400, 7200, 200_000)] == [
        "0",
        "20 s",
        "5 min",
        "5:30 min",
        "1:30 h",
        "2 h",
        "2.31 d",
    ]
    assert tick_text(1500000, 500000) == "1.5M"
    assert tick_text(0.25, 0.25) == "0.25"
    assert [tick_text(tick, 50) for tick in (200_000, 200_050)] == ["200k", "200050"]
    assert [tick_text(tick, 500) for tick in (-12_000, -11_500)] == ["-12000", "-11500"]
    assert len(tick_text(-123_400, 1000)) <= 6
    assert [tick_text(tick, 2.5) for tick in (0, 2.5, 5, 7.5)] == ["0.0", "2.5", "5.0", "7.5"]
    ten = Plot("loss", "", (Curve("train", line(1.0, 2.0)),), x_end=10, x_unit="epoch", final=True)
    assert x_scale(ten, 40).step == 2.5
    assert x_scale(replace(ten, x_unit="step"), 40).step == 5
    assert soon(63) <= 75
    assert soon(63) >= 63


def test_a_line_without_points_draws_nothing() -> None:
    rows = drawn(Plot("loss", "", (Curve("train", line()),), x_end=5))
    assert "-" in rows[0]
    assert all(set(row) <= {" ", "│"} for row in rows[1:])


def test_nothing_is_drawn_across_a_gap() -> None:
    broken = Line(array("d", [0, 1, 9, 10]), array("d", [1, 1, 1, 1]), frozenset({2}), 1.0)
    plot = Plot("cpu", "", (Curve("", broken),), bounds="share", x_end=10, final=True)
    top = drawn(plot, 47, 8, PLAIN)[1]
    assert "     " in top.strip("%+1 0")


def test_plain_consoles_get_ascii_and_a_sign_for_each_curve() -> None:
    plot = Plot("loss", "", (Curve("train", line(3, 2, 1)), Curve("val", line(2, 1, 0.5))), x_end=2)
    text = "".join(drawn(plot, glyphs=PLAIN))
    assert text.isascii()
    assert {"*", "o"} <= set(text)
    assert "".join(plain(row) for row in card(H100, 10, 60, 5, PLAIN)).replace("°", "").isascii()


def test_the_curves_are_told_apart_without_colour() -> None:
    two = Plot("step", "ms", (Curve("p50", line(*[1] * 40)), Curve("p95", line(*[3] * 40))), x_end=39, final=True)
    rows = drawn(two, 60, 9)
    assert "── p50" in rows[0]
    assert "╌╌ p95" in rows[0]
    solid = next(row for row in rows[1:] if row.count(" ") < 20 and "step" not in row)
    assert solid


@pytest.mark.parametrize(
    ("environment", "braille"),
    [
        ({"TERM": "xterm-256color", "LANG": "C.UTF-8"}, True),
        ({"TERM": "linux", "LANG": "C.UTF-8"}, False),
        ({"TERM": "xterm", "LC_ALL": "de_DE.ISO-8859-1", "LANG": "de_DE.UTF-8"}, False),
        ({"TERM": "xterm", "GPUTUI_ASCII": "1"}, False),
        ({"TERM": "xterm", "LC_ALL": "C"}, False),
        ({"TERM": "xterm", "LANG": "C"}, True),
        ({"TERM": "tmux-256color"}, True),
    ],
)
def test_glyphs_suit_the_terminal(environment: dict[str, str], braille: bool) -> None:
    assert suited(environment).braille is braille


def test_gauge_marks_own_used_free_and_peak() -> None:
    text = plain(gauge(20, 12, 20, PLAIN, own=8, peak=15))
    assert text == "########====..|....."
    assert plain(gauge(10, None, 20, PLAIN)).strip() == "?"
    assert plain(gauge(10, 5, None, PLAIN)).strip() == "?"
    assert len(plain(gauge(7, 99, 20, PLAIN))) == 7


def test_a_card_fits_and_names_busy_memory_and_throttling() -> None:
    with all_hold() as cases:
        for width, height in itertools.product((38, 45, 58, 80, 120, 198), (1, 2, 3, 4, 6)):
            with cases.case((width, height)):
                rows = card(H100, 10, width, height, RICH)
                assert len(rows) == height
                assert {length(row) for row in rows} == {width}
                text = "\n".join(plain(row) for row in rows)
                wanted = ("97 %", "61.4", "!", *(("power cap", "612/700 W") if height > 1 else ()))
                assert [word for word in wanted if word not in text] == []


@pytest.mark.parametrize("height", [1, 2, 4])
def test_what_is_not_known_is_a_dash_and_what_is_lost_is_said(height: int) -> None:
    unknown = "\n".join(plain(row) for row in card(Gpu(0), 10, 80, height, RICH))
    assert "- %" in unknown
    assert " 0 " not in unknown.replace("GPU 0 ", "")
    lost = plain(card(Gpu(5, missing="fallen \x1b off"), 10, 80, height, RICH)[0])
    assert "no readings: fallen ? off" in lost


@pytest.mark.parametrize("width", [56, 60, 78, 118])
@pytest.mark.parametrize("glyphs", [RICH, PLAIN])
def test_a_whole_card_tells_everything(width: int, glyphs: Glyphs) -> None:
    height = layout.whole_card(width)
    rows = card(FULL, 10, width, height, glyphs, all_of_it=True)
    assert len(rows) == height
    assert {length(row) for row in rows} == {width}
    text = "\n".join(plain(row) for row in rows)
    for word in (
        "SM  87 %",
        "tensor  45 %",
        "DRAM  61 %",
        "clock 2,619 MHz",
        "state P0",
        "1.5 GiB/s",
        "210 MiB/s",
        "30.0 GiB/s",
        "4 corrected, 1 uncorrected",
        "off",
        "5303 - python",
        "60.8 GiB",
        "this run",
        "911 - Xorg?[2J",
    ):
        assert word in text, word
    assert "not asked" not in text


def test_a_figure_that_is_missing_says_why_in_a_word() -> None:
    reasons = {"busy": "unsupported", "temperature_c": "no_permission", "processes": "no_permission", "mig": "error"}
    text = "\n".join(plain(row) for row in card(Gpu(0, reasons=reasons), 10, 78, 12, RICH, all_of_it=True))
    assert "busy: not offered, temperature: no permission" in text
    assert "procs  no permission" in text
    assert "MIG    error" in text
    assert "PCIe   not asked" in text
    assert text.count("not offered") == 2  # in the place of the history, too
    low = plain(card(Gpu(0, reasons=reasons), 10, 90, 1, RICH)[0])
    assert "not offered" in low


def test_what_is_shown_first_where_there_is_little_room() -> None:
    rows = "\n".join(plain(row) for row in card(FULL, 10, 60, 6, RICH))
    assert "1 uncorrected" in rows
    assert "SM  87 %" in rows
    assert "PCIe" not in rows
    parted = replace(FULL, ecc_uncorrected=0, mig=(Instance(3 * GIB, 10 * GIB), Instance(None, 20 * GIB)))
    rows = "\n".join(plain(row) for row in card(parted, 10, 60, 5, RICH))
    assert "2 instances  3.0/10.0 GiB  -/20.0 GiB" in rows
    empty = replace(FULL, ecc_uncorrected=0, mig=(), mig_off=False)
    assert "MIG    on, no instances" in "\n".join(plain(row) for row in card(empty, 10, 60, 5, RICH))
    assert "also   Xorg" in "\n".join(plain(row) for row in card(replace(FULL, ecc_uncorrected=0), 10, 60, 6, RICH))


def test_clocks_that_somebody_has_set_are_told_without_alarm() -> None:
    gpu = replace(FULL, throttle=(), clocks_set_by=("application clocks",))
    text = "\n".join(plain(row) for row in card(gpu, 10, 78, 12, RICH, all_of_it=True))
    assert "clocks set by application clocks" in text
    assert "!" not in text


def test_nothing_is_taken_from_the_history_where_nothing_else_is_known() -> None:
    assert not any("active" in plain(row) or "PCIe" in plain(row) for row in card(H100, 10, 60, 6, RICH))


@pytest.mark.parametrize("width", [76, 78, 80, 116])
def test_figures_beside_each_other_are_whole_words(width: int) -> None:
    gpu = replace(FULL, dram_active=None, reasons={"dram_active": "unsupported"})
    first = plain(whole(gpu, width, 8, RICH)[0])
    expected = r"% DRAM not offered  memory" if width > 100 else r"tensor +[0-9]+ %  +memory"
    assert re.search(expected, first), first


def test_processes_beyond_the_room_are_counted() -> None:
    many = replace(FULL, processes=tuple(GpuProcess(pid, "python") for pid in range(100, 120)))
    rows = [plain(row) for row in whole(many, 78, 8, RICH)]
    assert len(rows) == 8
    assert "and 17 more" in rows[-1]


def test_only_changed_cells_are_sent() -> None:
    old, new = [("busy ", "label"), (" 97 %", "value")], [("busy ", "label"), (" 98 %", "value")]
    assert differences(old, old) == []
    assert differences(old, new) == [(7, 1)]
    assert differences([("ab", "x")], [("ab", "y")]) == [(0, 2)]
    assert differences([("a" * 20, "")], [("b" + "a" * 18 + "b", "")]) == [(0, 1), (19, 1)]
    assert differences([("日本", "")], [("日木", "")]) == [(0, 4)]


class Pictures(Screen[None]):
    """A chart, and a card that is tall enough for a history."""

    def compose(self) -> ComposeResult:
        yield Chart()
        yield GpuCard(H100, 10)


async def test_figures_follow_at_once_and_curves_with_their_turn() -> None:
    few, more = line(1, 2), line(1, 2, 9, 4, 7)
    async with Tiny(Pictures).run_test(size=(80, 12)) as pilot:
        await wait_for(pilot, "GPU 3")
        chart, gpu = pilot.app.screen.query_one(Chart), pilot.app.screen.query_one(GpuCard)

        def show(known: Line, busy: float, turn: bool) -> tuple[str, str, str]:
            """All that is written, and the curves of the chart and of the card."""
            chart.show(Plot("speed", "", (Curve("", known),), "zero", x_end=4, final=True), curves=turn)
            gpu.show(replace(H100, busy=busy, history=known), 10, curve=turn)
            texts = ["".join(strip.text for strip in part.render_lines(Region(0, 0, 80, 10))) for part in (chart, gpu)]
            curves = [re.sub("[^\u2800-\u28ff]", "", text) for text in texts]
            return re.sub("[\u2800-\u28ff]", "", "".join(texts)), curves[0], curves[1]

        first = show(few, 0.9, turn=True)
        assert all(first)
        second = show(more, 0.5, turn=False)
        assert "90 %" in first[0]
        assert "50 %" in second[0]
        assert second[1:] == first[1:]
        third = show(more, 0.5, turn=True)  # nothing is new but the turn
        assert third[1] != first[1]
        assert third[2] != first[2]


def test_headline_fills_the_width() -> None:
    assert plain(headline([("loss", "")], [("1.5", "")], 20, "-")) == "loss ----------- 1.5"


def test_the_screen_is_shared_out_exactly() -> None:
    sizes = ((80, 23), (120, 39), (200, 59), (60, 15), (30, 8), (300, 100))
    zooms = ("", "charts", "gpus", "log", "messages")
    for zoom, gpus, (width, height) in itertools.product(zooms, (0, 1, 2, 8, 16), sizes):
        wanted = layout.Demand(charts=6, gpus=gpus, messages=3, summary=3)
        found = layout.share_out(width, height, wanted, zoom)
        used = found.messages + found.summary + found.charts + found.devices + found.host + found.log
        assert used <= max(height - layout.HEAD, 12), (zoom, gpus, width, height)
        assert found.chart_rows >= 1, (zoom, gpus, width, height)
        assert found.chart_columns >= 1, (zoom, gpus, width, height)


def test_zoomed_cards_show_all_of_every_gpu_or_of_the_picked_one() -> None:
    sizes = ((78, 19), (118, 35), (198, 55), (60, 25), (40, 6))
    for (width, height), gpus in itertools.product(sizes, (1, 2, 4, 8, 16)):
        where = f"{gpus} GPUs on {width} x {height}"
        cards = layout.arrange_whole(width, height, gpus)
        lines = -(-gpus // cards.columns)
        assert cards.columns * layout.CARD_WIDTH <= max(width, layout.CARD_WIDTH), where
        if cards.all_of_it:
            assert cards.tall >= layout.whole_card(width // cards.columns), where
        if height >= 19:
            assert lines * cards.tall + cards.detail <= height, where
            assert cards.all_of_it or cards.detail, where


def test_sixteen_gpus_fit_80x24_zoomed_and_120x40_at_once() -> None:
    wanted = layout.Demand(charts=6, gpus=16, messages=0, summary=0)
    zoomed = layout.share_out(78, 23, wanted, "gpus")
    assert -(-16 // zoomed.cards[0]) * zoomed.cards[1] <= zoomed.devices
    whole = layout.share_out(118, 39, wanted)
    assert -(-16 // whole.cards[0]) * whole.cards[1] <= whole.devices
    assert whole.charts >= 12
