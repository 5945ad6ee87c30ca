"""The look of the screens as far as pure functions make it: edges, levels of load, and nothing cut in the middle."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

from gputui.tui.base.glyphs import PLAIN, RICH
from gputui.tui.drawing import host
from gputui.tui.drawing.host import host_line, no_gpu
from gputui.tui.drawing.live import head, layout
from gputui.tui.drawing.plot.canvas import edge_title
from gputui.tui.drawing.plot.curves import Curve, Plot
from gputui.tui.drawing.rows import Row, edged, headline, kept_items, length, plain
from gputui.tui.reading.run.reader import RunReader
from gputui.tui.reading.run.series import Line
from gputui.tui.reading.run.snapshot import Snapshot
from gputui.tui.widgets.gpu_cards import card

from tests.support import recorded

FIGURE = re.compile(r"\d[\d,.]*")
HOST = {
    "cpu": 0.93, "memory_used_bytes": 88.1 * 2**30, "memory_total_bytes": 512 * 2**30, "io_wait": 0.07,
    "trainer_bytes": 14.2 * 2**30, "trainer_cpu": 12.4, "engine_bytes": 34.3 * 2**20,
}  # fmt: skip


def test_no_figure_of_the_host_is_cut_however_narrow_the_terminal() -> None:
    now = Snapshot(host=HOST, no_gpu_reason="no NVIDIA driver on this machine (libnvidia-ml.so.1 is missing)")
    all_of_them = set(FIGURE.findall(plain(host_line(now, 300, RICH))))
    assert len(all_of_them) >= 7
    shown_before = 0
    for width, alone in itertools.product(range(20, 250), (False, True)):
        row = host_line(now, width, RICH, alone)
        found = set(FIGURE.findall(plain(row)))
        assert length(row) <= width, (width, plain(row))
        assert found <= all_of_them, (width, found - all_of_them)
        assert "93" in found, (width, plain(row))
        if not alone:
            assert len(found) >= shown_before, width
            shown_before = len(found)
        said = plain(no_gpu(now, width)[0])
        assert said.count("(") == said.count(")"), (width, said)
        assert said.startswith("no GPU"), width


def test_a_small_terminal_keeps_loss_throughput_and_gpus_and_first_gives_up_the_log() -> None:
    for gpus, messages in itertools.product((0, 1, 2, 8, 16), (0, 2, 6)):
        wanted = layout.Demand(charts=6, gpus=gpus, messages=messages, summary=3, head=4)
        small, high = layout.share_out(78, 22, wanted), layout.share_out(198, 58, wanted)
        where = f"{gpus} GPUs, {messages} rows of messages"
        assert small.charts >= 5, where
        assert small.chart_columns * small.chart_rows >= 2, where
        assert bool(small.devices) == bool(gpus), where
        assert high.log >= layout.LOG_HEIGHT, where
        assert high.charts >= 2 * (high.log - 2), where  # the curves are what one looks at
        assert high.charts // high.chart_rows >= 10, where
        assert 198 // high.chart_columns >= layout.WIDE_CHART, where
        assert high.edges and not small.edges, where  # noqa: PT018
        if gpus == 16:
            assert not small.log, where
            assert small.devices >= 8 or messages, where  # a line for each, before any summary
    tiny = layout.share_out(58, 12, layout.Demand(charts=6, gpus=2, messages=1, summary=3, head=4))
    assert tiny.charts >= 3
    assert tiny.devices >= 1
    assert not tiny.log
    for gpus, results in itertools.product((0, 2, 8), (0, 3)):  # an error with its hint is not cut
        wanted = layout.Demand(charts=6, gpus=gpus, messages=12, summary=results, error=9)
        found = layout.share_out(78, 22, wanted)
        assert found.messages == 9, (gpus, head)
        parts = found.head, found.messages, found.summary, found.charts, found.devices, found.host, found.log
        assert sum(parts) <= 22, (gpus, head, parts)
        assert min(parts) >= 0, (gpus, head, parts)


def test_an_edge_has_its_title_in_it_and_is_as_wide_as_it_should_be() -> None:
    rows = [headline([("loss", "title")], [("1.5", "value")], 20, RICH.rule), [("12", "label")]]
    assert [plain(row) for row in edged(rows, 20, RICH)] == [
        "╭ loss ───────── 1.5 ╮", "│12                  │", "╰────────────────────╯",
    ]  # fmt: skip
    crowded = [[("loss", "title"), (" 1.2345 ", "value"), ("  ", ""), ("0.5", "value")]]
    for width, glyphs in itertools.product(range(8, 40), (RICH, PLAIN)):
        assert {length(row) for row in edged([*crowded, []], width, glyphs)} == {width + 2}, width
    assert plain(edged(rows, 20, PLAIN)[2]) == "+--------------------+"


def test_the_title_of_a_chart_does_not_touch_the_corners_of_its_edge() -> None:
    loss = Plot("loss", "", (
        Curve("train", Line(last=0.00261), lesser=True), Curve("epoch mean", Line(last=0.00281), short="mean"),
        Curve("val", Line(last=0.0358)),
    ))  # fmt: skip
    for width, said in ((48, "train 0.00261 ╌mean 0.00281 ·val 0.0358"), (36, "─ ╌mean 0.00281 ·val 0.0358"),
                        (30, "loss ──── ╌mean 0.00281 ·val")):  # fmt: skip
        upper, *_ = (plain(row) for row in edged([edge_title(loss, width, RICH), []], width, RICH))
        assert (upper[:7], upper.endswith(f"{said} ╮")) == ("╭ loss ", True), upper
        assert len(upper) == width + 2


def test_the_head_says_how_a_run_ended_and_an_end_that_was_asked_for_is_no_alarm() -> None:
    for outcome, said in (("ok", ("✓ done", "good")), ("stopped", ("■ stopped", "value")),
                          ("timeout", ("■ ended by its time limit", "value")), ("oom", ("✗ out of memory", "bad")),
                          ("crashed", ("✗ crashed", "bad")), ("error", ("✗ failed", "bad"))):  # fmt: skip
        top = head.rows(head.RunName("cnn", "cnn", ""), "", Snapshot(outcome=outcome), 80, RICH)[0]
        (end,) = [piece for piece in top if piece[0][2:] == said[0][2:]]
        assert end[1] == said[1], outcome
        assert end[0][0] == said[0][0]


def test_the_figures_of_a_summary_end_below_each_other(tmp_path: Path) -> None:
    reader = RunReader(recorded.write(tmp_path, gpus=1, seconds=60))
    for _ in range(2):  # the result is read with the second
        reader.poll()
    for width in (78, 118, 198):
        rows = [plain(row) for row in head.result_rows(reader.picture.snapshot, width)]
        assert any("measured steps" in row for row in rows)
        first, *others = [{value.end() for value in re.finditer(r"\S(?=\s{2,}[a-zG]|\s*$)", row)} for row in rows]
        assert all(ends <= first for ends in others), rows


def test_items_are_left_out_whole_the_last_ones_first() -> None:
    items = [[("cpu 93 %", "")], [(" memory 512 GiB", "")], [(" up", "")]]
    assert [plain(item) for item in kept_items(items, 12)] == ["cpu 93 %"]
    assert kept_items(items, 23) == items[:2]


def test_the_levels_of_load_are_those_of_nvitop() -> None:
    for value, level in ((None, "value"), (0.09, "light"), (0.10, "moderate"), (0.74, "moderate"), (0.75, "heavy")):
        assert host.busy(value) == level, value
        assert host.power(None if value is None else 700 * value, 700) == level, value
    assert host.memory(79, 100) == "moderate"
    assert host.memory(80, 100) == "heavy"
    assert host.memory(80, None) == host.temperature(None) == "value"
    assert [host.temperature(degrees) for degrees in (40, 65, 83)] == list(host.LEVELS)


def test_no_figure_of_a_run_or_a_gpu_is_cut_however_narrow_the_terminal(home: Path) -> None:
    run = recorded.write(home, gpus=3, seconds=60, outcome=None, mfu=0.41)
    reader = RunReader(run, clock=lambda: recorded.BEGAN + 60)
    reader.poll()
    now, done = reader.picture.snapshot, replace(reader.picture.snapshot, outcome="ok")

    trial = replace(now, progress={**now.progress, "step": 375, "steps": 1_000_000_000})  # it ends by its time
    of_trial = "\n".join(plain(row) for row in head.rows(head.RunName("cnn", "01-s", ""), "", trial, 80, RICH))
    assert "step 375" in of_trial
    assert "/" not in of_trial.partition("step 375")[2].splitlines()[0]

    long = replace(now, progress={**now.progress, "epoch": 14, "epochs": 4000, "step": 587, "steps": 180_000})
    for width in range(60, 130):
        times = plain(head.rows(head.RunName("cnn", "01-s", ""), "", long, width, RICH)[1]).rstrip()
        assert times.endswith(("left", "elapsed", "%", "/180,000", "─")), (width, times)

    def drawn(width: int) -> list[tuple[str, Row]]:
        name = head.RunName("fast: batch_size=256", "20261122-102703-fast", "an MLP of 3 layers")
        named = [("head", head.rows(name, "", of, width, RICH)) for of in (now, done)]
        sizes = [(gpu, height) for gpu in now.gpus for height in (1, 2, 3, 6)]
        cards = [(f"card of {height}", card(gpu, 60, width, height, RICH)) for gpu, height in sizes]
        return [(f"{name}: row {at}", row) for name, rows in named + cards for at, row in enumerate(rows)]

    shown = {figure for width in range(38, 260) for _, row in drawn(width) for figure in FIGURE.findall(plain(row))}
    told = set(FIGURE.findall(" ".join(plain(row) for width in (259, 100, 60, 40) for _, row in drawn(width))))
    assert shown <= told, shown - told
    for width in range(37, 260):
        for name, row in drawn(width):
            assert length(row) <= width or width < 44, (width, name, plain(row))
            assert not re.search(r"(SM|tensor|DRAM) +\d+ *$", plain(row)), (width, name, plain(row))
