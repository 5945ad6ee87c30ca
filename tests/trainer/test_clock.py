"""The clock of steps, fed with made-up times."""

from __future__ import annotations

import math

import pytest
from gputui.engine import plan
from gputui.engine.trainer.measure.step_clock import RECENT_WINDOWS, Spent, StepClock


def fed(clock: StepClock, *steps: tuple[float, int], begin: float = 100.0) -> StepClock:
    """Executions one after another, each (seconds, steps)."""
    now = begin
    for seconds, count in steps:
        clock.mark(now, count)
        now += seconds
    clock.pause(now)
    return clock


def test_a_clock_that_was_never_started_knows_nothing() -> None:
    clock = StepClock(warmup=1)
    clock.pause(5.0)
    assert clock.recent_ms() == clock.overall_ms() == (None, None)
    assert clock.measured_steps == 0
    assert not clock.warm


def test_the_first_execution_is_left_out_however_long_it_took() -> None:
    clock = fed(StepClock(warmup=0), (60.0, 1), (0.1, 1), (0.1, 1))
    assert clock.overall_ms() == pytest.approx((100, 100))
    assert clock.measured_steps == 2
    assert clock.step_seconds_total == pytest.approx(0.2)


def test_the_warm_up_is_left_out_of_the_figures_but_not_of_the_total() -> None:
    clock = fed(StepClock(warmup=3), (9.0, 1), (5.0, 1), (5.0, 1), (0.1, 1), (0.1, 1))
    assert clock.overall_ms() == pytest.approx((100, 100))
    assert clock.measured_seconds == pytest.approx(0.2)
    assert clock.step_seconds_total == pytest.approx(10.2)


def test_an_execution_of_several_steps_counts_as_several() -> None:
    clock = fed(StepClock(warmup=1), (9.0, 10), (1.0, 10), (1.0, 10))
    assert clock.overall_ms() == pytest.approx((100, 100))
    assert clock.measured_steps == 20


def test_short_steps_are_measured_in_groups_of_at_least_a_window() -> None:
    # 1 ms and 3 ms in turn: alone they would give a median of one or the other.
    clock = fed(StepClock(warmup=0, window_seconds=0.05), (1.0, 1), *[(0.001, 1), (0.003, 1)] * 200)
    assert clock.overall_ms()[0] == pytest.approx(2, rel=0.05)
    assert clock.measured_steps == 400


def test_a_run_shorter_than_one_window_gives_its_mean() -> None:
    clock = fed(StepClock(warmup=0), (1.0, 1), (0.002, 1), (0.004, 1))
    assert clock.overall_ms() == pytest.approx((3, 3))


def test_pauses_between_executions_are_nobodys_step_time() -> None:
    clock = fed(StepClock(warmup=0), (1.0, 1), (0.1, 1))
    fed(clock, (0.1, 1), (0.1, 1), begin=5000.0)
    assert clock.overall_ms() == pytest.approx((100, 100))
    assert clock.measured_seconds == pytest.approx(0.3)
    clock.pause(9000.0)
    assert clock.measured_seconds == pytest.approx(0.3)


def test_percentiles_are_those_of_the_steps() -> None:
    times = [0.1] * 95 + [1.0] * 5
    assert fed(StepClock(warmup=0), (1.0, 1), *[(t, 1) for t in times]).overall_ms() == pytest.approx((100, 145))
    twenty = fed(StepClock(warmup=0), (1.0, 1), *[(t / 10, 1) for t in range(1, 21)])
    assert twenty.overall_ms() == pytest.approx((1050, 1905))
    assert fed(StepClock(warmup=0), (1.0, 1), (0.3, 1)).recent_ms() == pytest.approx((300, 300))


@pytest.mark.parametrize(("second", "windows"), [(0.024, (None, None)), (0.026, (25.5, 25.5))])
def test_a_window_has_fifty_milliseconds_at_least(second: float, windows: tuple[float | None, float | None]) -> None:
    clock = StepClock(warmup=0)
    for now in (0.0, 1.0, 1.0 + 0.025, 1.0 + 0.025 + second):
        clock.mark(now, 1)
    found = clock.recent_ms()
    assert found == (windows if windows[0] is None else pytest.approx(windows))
    assert clock.overall_ms() == pytest.approx((500 * (0.025 + second),) * 2), "without a window it is the mean"


def test_steps_have_begun_before_they_have_ended() -> None:
    clock = StepClock(warmup=0)
    assert (clock.begun_steps, clock.ended_steps) == (0, 0)
    clock.mark(1.0, 3)
    assert (clock.begun_steps, clock.ended_steps) == (3, 0)
    clock.mark(2.0, 2)
    assert (clock.begun_steps, clock.ended_steps) == (5, 3)
    clock.pause(3.0)
    assert (clock.begun_steps, clock.ended_steps) == (5, 5)


def test_recent_figures_forget_what_is_long_ago() -> None:
    clock = fed(StepClock(warmup=0), (1.0, 1), *[(0.1, 1)] * 500, *[(0.2, 1)] * RECENT_WINDOWS)
    assert clock.recent_ms() == pytest.approx((200, 200))
    assert clock.overall_ms()[0] == pytest.approx(100)


def test_warm_says_when_steps_begin_to_count() -> None:
    clock = StepClock(warmup=2)
    seen = []
    for number in range(5):
        clock.mark(float(number), 1)
        seen.append(clock.warm)
    assert seen == [False, False, True, True, True]


def test_where_windows_end_at_synchronisations_only_a_cut_ends_one() -> None:
    # The host runs ahead: three calls return at once, the fourth waits for the device.
    clock = StepClock(warmup=0, window_seconds=math.inf)
    now = 0.0
    clock.mark(now, 1)
    for _ in range(3):
        for seconds in (0.001, 0.001, 0.001, 0.397):
            now += 0.5 if now == 0 else seconds
            clock.mark(now, 1)
        clock.device_was_waited_for()
    clock.pause(now + 0.001)
    p50, _ = clock.recent_ms()
    assert p50 == pytest.approx(100, abs=1)


def test_on_a_cpu_a_wait_for_the_device_ends_no_window() -> None:
    clock = StepClock(warmup=0, window_seconds=0.05)
    for number in range(4):
        clock.mark(0.02 * number, 1)
        clock.device_was_waited_for()
    assert clock.recent_ms() == (None, None), "40 ms are no window"


@pytest.mark.parametrize(("total", "left_out"), [(1, 1), (4, 1), (10, 2), (50, 10), (100, 20), (10**6, 20)])
def test_a_short_run_leaves_out_a_fifth_and_a_long_one_twenty(total: int, left_out: int) -> None:
    assert plan.warmup_steps(total) == left_out


def test_measured_until_counts_the_execution_that_runs_but_neither_warm_up_nor_pauses() -> None:
    clock = StepClock(warmup=1)
    clock.mark(10.0, 1)
    assert clock.measured_until(15.0) == 0
    clock.mark(20.0, 1)
    assert clock.measured_until(20.5) == pytest.approx(0.5)
    clock.mark(21.0, 1)
    assert clock.measured_until(21.25) == pytest.approx(1.25)
    clock.pause(21.5)
    assert clock.measured_until(99.0) == clock.measured_seconds == pytest.approx(1.5)


def test_shares_are_of_the_time_between_two_readings() -> None:
    earlier, later = Spent(10.0, 1.0, 4.0), Spent(12.0, 1.5, 5.6)
    assert later.shares_since(earlier) == pytest.approx((0.25, 0.2))
    assert Spent(11.0, 9.0, 99.0).shares_since(Spent(10.0, 0.0, 0.0)) == (1.0, 0.0)  # clocks that disagree a little
    assert later.shares_since(later) == (None, None)
    assert Spent(12.0).shares_since(earlier) == (None, None)
    assert later.shares_since(Spent(10.0)) == (None, None)
