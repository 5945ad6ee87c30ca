"""Values on both sides of each limit of the diagnosis, and the whole of what it says there."""

from __future__ import annotations

from typing import Any

import pytest
from gputui.engine.diagnosis import clocks, diagnose, stragglers
from gputui.engine.diagnosis.collector import Collector
from gputui.engine.diagnosis.measurements import Measurements, stage_ms
from gputui.engine.diagnosis.remedies import Remedy
from gputui.engine.runs.parsing import recalled

from tests.support.judged import OPTIONS, gpu, measured, waits

GIB = 1024**3


@pytest.mark.parametrize(
    ("name", "true", "false"),
    [
        ("gpu_full", {"busy_mean": 0.9}, {"busy_mean": 0.899}),
        ("gpu_full", {"busy_mean": 0.95, "sm_active": 0.4}, {"busy_mean": 0.95, "sm_active": 0.399}),
        ("gpu_full", {"busy_mean": None, "sm_active": 0.8}, {"busy_mean": None, "sm_active": 0.799}),
        ("kernels_run", {"busy_mean": 0.7}, {"busy_mean": 0.699}),
        ("kernels_run", {"busy_mean": None}, {"busy_mean": None, "on_gpu": False}),
        ("gpu_works", {"sm_active": 0.4}, {"sm_active": 0.399}),
        ("gpu_works", {"sm_active": None}, {"sm_active": 0.9, "busy_mean": 0.699}),
        ("unseen", {"busy_mean": None}, {"busy_mean": None, "sm_active": 0.5}),
        ("unseen", {"busy_mean": None}, {"busy_mean": None, "on_gpu": False}),
        ("cores_busy", {"cpu": 0.96, "others_cpu": 0.05}, {"cpu": 0.95, "others_cpu": 0.06}),
        ("cores_busy", {"cpu": 0.9}, {"others_cpu": 0.0}),
        ("crowded", {"cpu": 0.75, "others_cpu": 0.1}, {"cpu": 0.749, "others_cpu": 0.1}),
        ("crowded", {"cpu": 0.75, "others_cpu": 0.1}, {"cpu": 0.75, "others_cpu": 0.099}),
        ("doubtful", {"seconds": 1.99}, {"seconds": 2.0}),
        ("doubtful", {"seconds": 9.0, "cpu": 0.9, "others_cpu": 0.5}, {"seconds": 9.0}),
        ("reads_from_disk", {"read_bytes_per_second": 1e6}, {"read_bytes_per_second": 999_999.0}),
        ("reads_from_disk", {"read_bytes_per_second": None}, {"read_bytes_per_second": 0.0}),
        ("disk_waited_for", {"io_wait": 0.3}, {"io_wait": 0.299}),
        ("disk_waited_for", {"io_wait": 0.3}, {"io_wait": 0.3, "read_bytes_per_second": 0.0}),
        ("uses_xla", {"jit_compile": True}, {"jit_compile": False}),
    ],
)  # fmt: skip
def test_what_figures_mean_begins_at_its_limit(name: str, true: dict[str, Any], false: dict[str, Any]) -> None:
    assert (getattr(gpu(**true), name), getattr(gpu(**false), name)) == (True, False)


def test_an_option_says_whether_xla_compiles_if_the_run_does_not() -> None:
    compiled = [measured({"compile.xla": xla}, jit_compile=None).uses_xla for xla in (True, False, "auto")]
    assert compiled == [True, False, False]


@pytest.mark.parametrize(
    ("stage", "ms"),
    [
        ({"ms_per_batch": 12.0}, 12.0),
        ({"ms_per_batch": 12.0, "parallelism": 4}, 3.0),
        ({"ms_per_batch": 12.0, "parallelism": 0.5}, 12.0),
        ({"ms_per_batch": 0.0, "parallelism": 2}, 0.0),
        ({"ms_per_batch": None, "parallelism": 2}, None),
    ],
)
def test_a_stage_takes_its_work_divided_by_its_calls_at_a_time(stage: dict[str, Any], ms: float | None) -> None:
    assert stage_ms(stage) == ms


# ---- clocks -----------------------------------------------------------------------------------

LIMITS: dict[str, Any] = {"power_limit_w": 664.9, "power_limit_default_w": 700.0}


@pytest.mark.parametrize(
    ("figures", "low", "held", "capped"),
    [
        ({}, False, True, False),
        (LIMITS, True, True, True),
        (LIMITS | {"power_limit_w": 665.0}, False, True, False),
        (LIMITS | {"power_limit_default_w": None}, False, True, False),
        (LIMITS | {"power_capped": 0.9}, True, True, True),
        ({"power_capped": 0.499}, False, True, False),
        ({"power_capped": 0.5}, False, False, False),
        ({"throttled": 0.099}, False, True, False),
        ({"throttled": 0.1}, False, False, False),
        (LIMITS | {"busy_mean": 0.6}, True, False, False),
        (LIMITS | {"on_gpu": False}, True, False, False),
    ],
)
def test_a_low_clock_is_a_fault_unless_heat_or_the_default_limit_explains_it(
    figures: dict[str, Any], low: bool, held: bool, capped: bool
) -> None:
    known = gpu(**figures)
    assert (clocks.limit_is_low(known), clocks.is_held(known), clocks.is_capped(known)) == (low, held, capped)


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({"max_sm_clock_mhz": None}, ""),
        ({}, "its clock is {} of at most 1,980 MHz"),
        ({"power_capped": 0.499}, "its clock is {} of at most 1,980 MHz"),
        ({"power_capped": 0.5}, "its clock is {} of at most 1,980 MHz; its power limit holds it there, which is usual "
         "at full load"),
        ({"power_capped": 0.5, "power_limit_w": 72.0, "power_limit_default_w": 72.0}, "its clock is {} of at most "
         "1,980 MHz; its power limit of 72 W, the default, holds it there, which is usual at full load"),
        ({"power_capped": 0.5} | LIMITS, "its clock is {} of at most 1,980 MHz"),
    ],
)  # fmt: skip
def test_the_evidence_of_a_clock_says_what_holds_it(figures: dict[str, Any], text: str) -> None:
    assert clocks.evidence(gpu(**{"max_sm_clock_mhz": 1980.0} | figures)) == text


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        (LIMITS | {"gpu_indexes": (0, 2), "clocks_set_by": ("x",)},
         "the power limit is 665 W, and the default 700 W: as root nvidia-smi -i 0,2 -pl 700, unless somebody has "
         "lowered it on purpose"),
        ({"clocks_set_by": ("application clocks", "a lock")},
         "somebody has set the clocks (application clocks, a lock): as root nvidia-smi -rac resets application clocks, "
         "and nvidia-smi -rgc releases locked ones"),
        ({"gpu_indexes": (1,)},
         "the driver gives no reason for the low clock: as root nvidia-smi -i 1 -rgc releases locked clocks; "
         "nvidia-smi -i 1 -q -d CLOCK,POWER,PERFORMANCE shows its limits"),
    ],
)  # fmt: skip
def test_the_remedy_of_a_low_clock_is_a_command_for_its_gpus(figures: dict[str, Any], reason: str) -> None:
    assert list(clocks.remedies(gpu(**figures))) == [Remedy(step="device", reason=reason)]


# ---- the GPU and the worker that the others wait for -------------------------------------------------


def readings(busy: float, clock: float | None = None, count: int = 5, **more: Any) -> list[dict[str, Any]]:
    return [{"busy": busy, "sm_clock_mhz": clock, **more}] * count


@pytest.mark.parametrize(
    ("first", "second", "slow"),
    [
        (readings(0.75), readings(0.5), 0),  # the others wait, so that the busier one is slow
        (readings(0.5), readings(0.75), 1),
        (readings(0.625), readings(0.5), None),
        (readings(0.9, 899.0), readings(0.9, 1000.0), 0),
        (readings(0.9, 901.0), readings(0.9, 1000.0), None),
        (readings(0.5, 500.0), readings(0.9, 1000.0), 0),  # the lower clock, not the busier one
        (readings(0.49, 500.0), readings(0.9, 1000.0), 1),  # an idle GPU lowers its clock
        (readings(0.9, 500.0, count=4), readings(0.9, 1000.0), None),
        (readings(0.9, 500.0), readings(0.9, None), None),
    ],
)
def test_the_slow_gpu_is_that_of_the_low_clock_or_else_the_busiest(first: Any, second: Any, slow: int | None) -> None:
    gpus = [[reading | {"index": index} for reading in of] for index, of in enumerate((first, second))]
    assert stragglers.gpu_figures(gpus).get("slow_gpu") == slow
    elsewhere = [[reading | {"index": 7 - reading["index"]} for reading in of] for of in gpus]
    assert stragglers.gpu_figures(elsewhere).get("slow_gpu") == (None if slow is None else 7 - slow), "not its place"


def test_the_clock_gap_is_to_the_median_of_the_other_gpus() -> None:
    gpus = [readings(0.9, clock) for clock in (1000.0, 800.0, 1200.0, 600.0)]
    assert stragglers.gpu_figures(gpus)["clock_gap"] == pytest.approx(0.4)
    assert stragglers.gpu_figures(gpus)["busy_gap"] == 0.0
    assert stragglers.gpu_figures(gpus[:1]) == {"busy_gap": None, "clock_gap": None}
    assert stragglers.gpu_figures([*gpus, readings(0.9, None)])["clock_gap"] is None, "the clock of one is not known"


def test_a_program_that_is_on_all_gpus_is_no_cause() -> None:
    def of(clock: float, *names: str) -> list[dict[str, Any]]:
        programs = [{"name": name, "own": False, "memory_used_bytes": 2 * GIB} for name in names]
        return readings(0.9, clock, processes=programs)

    causes = stragglers.gpu_figures([of(1000.0, "a"), of(500.0, "a", "b", "c")])["slow_gpu_causes"]
    assert causes == ("another program uses it (b, c)",)


@pytest.mark.parametrize(
    ("process", "name"),
    [
        ({"name": "a", "own": False, "memory_used_bytes": GIB}, ["a"]),
        ({"name": "a", "own": False, "memory_used_bytes": GIB - 1}, []),
        ({"name": "a", "own": True, "memory_used_bytes": GIB}, []),
        ({"name": "a", "own": None, "memory_used_bytes": GIB}, []),
        ({"name": None, "pid": 7, "own": False, "memory_used_bytes": 2 * GIB}, ["process 7"]),
        ({"name": "a", "own": False, "memory_used_bytes": None}, []),
    ],
)
def test_a_neighbour_takes_more_memory_than_a_screen(process: dict[str, Any], name: list[str]) -> None:
    assert stragglers.neighbours({"processes": [process]}) == name


@pytest.mark.parametrize(("hot", "named"), [(2, True), (1, False)])
def test_a_cause_is_what_the_slow_gpu_has_in_a_tenth_more_of_its_readings(hot: int, named: bool) -> None:
    """The other GPU is hot in a tenth of its readings."""

    def of(often: int, clock: float) -> list[dict[str, Any]]:
        throttle = [["hardware thermal"]] * often + [[]] * (10 - often)
        return [{"busy": 0.9, "sm_clock_mhz": clock, "throttle": each} for each in throttle]

    causes = stragglers.gpu_figures([of(1, 1000.0), of(hot, 500.0)])["slow_gpu_causes"]
    assert causes == (("it is slowed down in 20 % of its readings (hardware thermal)",) if named else ())


@pytest.mark.parametrize("reason", ["hardware slowdown", "software thermal", "power brake", "power cap"])
def test_a_reason_that_one_of_the_others_has_as_often_is_no_cause(reason: str) -> None:
    def of(often: int, clock: float, **more: Any) -> list[dict[str, Any]]:
        throttle = [[reason]] * often + [[]] * (10 - often)
        return [{"busy": 0.9, "sm_clock_mhz": clock, "throttle": each, **more} for each in throttle]

    def causes(*gpus: list[dict[str, Any]]) -> tuple[str, ...]:
        return tuple(stragglers.gpu_figures(gpus)["slow_gpu_causes"])

    assert causes(of(0, 1000.0), of(0, 1000.0), of(4, 500.0)) == (
        f"it is slowed down in 40 % of its readings ({reason})",
    )
    assert causes(of(0, 1000.0), of(4, 1000.0), of(4, 500.0)) == ()
    assert causes(of(3, 1000.0), of(0, 1000.0), of(4, 500.0)) != (), "a tenth more often"
    fast, slow = of(0, 1000.0, name="A"), of(0, 500.0, name="B", clocks_set_by=["applications", 7])
    assert causes(fast, fast, slow) == (
        "its clocks were set by somebody (applications)", "it is another model (B)")  # fmt: skip
    assert causes(fast, of(0, 1000.0), slow)[1:] == (), "the model of one is not known"
    assert causes(fast, of(0, 1000.0, name="B"), slow)[1:] == ()


# ---- verdicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ({"steps": 0, "outcome": "ok"}, "No verdict: the run ended before its first step was measured"),
        ({"steps": 19, "outcome": None}, "No verdict: 19 steps in 20.0 s measured so far; a verdict needs 20 steps and "
         "2 s"),
        ({"seconds": 1.9, "outcome": None}, "No verdict: 400 steps in 1.9 s measured so far; a verdict needs 20 steps "
         "and 2 s"),
        ({"seconds": 0.499, "outcome": "ok"}, "No verdict: 400 steps in 0.4 s measured; a verdict needs 20 steps and "
         "0.5 s"),
        ({"seconds": 0.5, "outcome": "ok", "compute_share": 0.4}, "No verdict: no single cause stands out in so short "
         "a run"),
        ({"compute_share": 0.4}, "No verdict: no single cause stands out"),
        ({"compute_share": 0.4, "cpu": 0.8, "others_cpu": 0.2}, "No verdict: no single cause stands out while other "
         "programs use the CPU"),
        ({"compute_share": 0.8}, "Healthy: TensorFlow's graph takes 80 % of the step; gputui has no further option to "
         "try"),
        ({"compute_share": 0.799}, "No verdict: no single cause stands out"),
    ],
)  # fmt: skip
def test_what_is_said_if_nothing_stands_out(figures: dict[str, Any], sentence: str) -> None:
    assert diagnose(measured({"compile.xla": True}, **figures)).sentence == sentence


@pytest.mark.parametrize(
    ("figures", "confidence"),
    [
        ({"input_wait": 0.4}, 0.9),  # twice the threshold that decides, measured for long
        ({"input_wait": 0.225}, 0.72),  # half of the way there
        ({"input_wait": 0.4, "seconds": 5.0}, 0.68),
        ({"input_wait": 0.4, "seconds": 5.0, "outcome": "ok", "steps": 200}, 0.9),
        ({"input_wait": 0.4, "outcome": "ok", "steps": 100}, 0.68),
        ({"input_wait": 0.4, "cpu": 0.9}, 0.99),  # a finding of another kind supports it
        ({"input_wait": 0.4, "ablation": 0.5}, 0.99),
        ({"input_wait": 0.4, "ablation": 0.51}, 0.45),
        ({"input_wait": 0.0, "compute_share": 0.5, "python_share": 0.02}, 0.3),
    ],
)
def test_the_confidence_of_a_verdict(figures: dict[str, Any], confidence: float) -> None:
    assert diagnose(measured({"compile.xla": True}, **{"compute_share": 0.5} | figures)).confidence == confidence


@pytest.mark.parametrize(
    ("figures", "texts"),
    [
        ({"io_wait": 0.05}, ["the training uses 1.5 cores of 4 CPUs", "CPUs wait 5 % of the time for the disk"]),
        ({"io_wait": 0.049}, ["the training uses 1.5 cores of 4 CPUs"]),
        ({"io_wait": 0.3, "read_bytes_per_second": 2e6, "cpus": None},
         ["the training uses 1.5 cores of 1 CPUs", "the training reads 1.9 MiB/s from the disk"]),
        ({"buffer_fill": 0.25, "stages": ({"name": "load", "ms_per_batch": 6.0, "parallelism": 2},)},
         ["its slowest stage is load: 3 ms per batch with 2 calls at a time", "the prefetch buffer is 25 % full",
          "the training uses 1.5 cores of 4 CPUs"]),
        ({"stages": ({"name": "load", "ms_per_batch": 6.0, "parallelism": 1},)},
         ["its slowest stage is load: 6 ms per batch", "the training uses 1.5 cores of 4 CPUs"]),
    ],
)  # fmt: skip
def test_the_evidence_of_a_slow_input(figures: dict[str, Any], texts: list[str]) -> None:
    found = diagnose(measured(**waits(0.4), trainer_cores=1.5, **figures))
    assert [row["text"] for row in found.evidence if row["threshold"] is None] == texts


@pytest.mark.parametrize(
    ("known", "texts"),
    [
        (measured(**waits(0.4), cpu=0.9, others_cpu=0.25), ["other programs use 25 % of the CPU's cores"]),
        (gpu(throttled=0.6, throttle=("heat",), slow_gpu=1, slow_gpu_busy=0.9, slow_gpu_causes=("it is {hot}",)),
         ["the others wait for GPU 1, which is busy 90 % of the time; it is {hot}"]),
        (gpu(python_share=0.4, compute_share=0.59, busy_mean=0.8, slow_gpu=1, slow_gpu_busy=0.9), []),
        (gpu(python_share=0.4, compute_share=0.59, busy_mean=0.8, slow_worker="worker 1", slow_worker_wait=0.1), []),
        (gpu(python_share=0.4, compute_share=0.59, busy_mean=0.8, sm_active=0.5, tensor_active=0.3, mfu=0.1),
         ["the GPU's multiprocessors work 50 % of the time", "its tensor cores work 30 % of the time",
          "10 % of the chip's peak is reached"]),
        (gpu(worker_gap=0.4, slow_worker="worker 1 (h1:1)", slow_worker_wait=0.42),
         ["the others wait for worker 1 (h1:1), which waits 42 % of its steps for its input"]),
        (gpu(worker_exchange=0.4, exchange_ms=12.0, exchanged="44 MB of gradients", hosts=("h0", "h1")),
         ["44 MB of gradients pass between the workers on h0, h1 in 12 ms"]),
        (gpu({"precision.policy": "mixed_bfloat16", "compile.xla": True}, sm_active=0.9, tensor_active=0.6, mfu=0.4),
         ["TensorFlow's graph takes 97 % of the step", "the GPU's multiprocessors work 90 % of the time",
          "its tensor cores work 60 % of the time", "40 % of the chip's peak is reached"]),
        (gpu(memory_peak=0.99, compute_share=0.5, sm_active=0.9), []),
    ],
)  # fmt: skip
def test_what_explains_a_verdict(known: Measurements, texts: list[str]) -> None:
    rows = [row for row in diagnose(known).evidence if row["threshold"] is None]
    assert [row["text"] for row in rows] == texts
    assert all(row["source"] == "measured" for row in rows)


def test_the_rows_of_evidence_are_rounded_to_four_digits() -> None:
    found = diagnose(measured(**waits(0.4), trainer_cores=1.23456, buffer_fill=0.123456))
    assert [row["value"] for row in found.evidence] == [0.4, 0.1235, 1.2346]


def test_in_a_short_run_only_findings_that_decide_count_and_no_limit_beside_a_faint_loss() -> None:
    """Within a second, 10 % of waiting may be chance."""
    short: dict[str, Any] = {"seconds": 1.0, "outcome": "ok"}
    assert diagnose(measured(cpu_bfloat16=True, **waits(0.1), **short)).verdict == "undecided"
    assert diagnose(measured(cpu_bfloat16=True, **short)).verdict == "compute_bound"
    both = diagnose(measured(cpu_bfloat16=True, input_wait=0.1, python_share=0.2, compute_share=0.9, **short))
    assert (both.verdict, both.others) == ("python_overhead", [])
    idle = {"compile.xla": True, "precision.policy": "mixed_bfloat16"}
    assert diagnose(gpu(idle, busy_mean=0.69, compute_share=0.9)).verdict == "underfilled"
    assert diagnose(measured(idle, input_wait=0.1, compute_share=0.85, **short)).verdict == "undecided"


def test_an_option_without_effect_is_advice_on_the_own_code() -> None:
    why = {"input.prefetch": "your code makes the dataset"}
    used = {"input.cache": "memory", "input.parallel_calls": "auto", "input.prefetch": "off"}
    found = diagnose(measured(used, **waits(0.6), inapplicable=why))
    reason = "in your code (your code makes the dataset): nothing is prepared while the model computes"
    remedy: dict[str, Any] = {
        "step": "input",
        "changes": {},
        "reason": reason,
        "expected_gain": None,
        "changes_learning": False,
    }
    assert remedy | {"code": ()} in found.remedies


# ---- from events --------------------------------------------------------------------------------


def fed(*events: dict[str, Any], visible: str | None = None) -> Collector:
    collector = Collector(OPTIONS, visible)
    collector.feed(recalled({"t": float(i)} | event) for i, event in enumerate(events))
    return collector


@pytest.mark.parametrize(("step_ms", "windows"), [(10.0, 200), (50.0, 200), (80.0, 125)])
def test_a_reading_of_the_step_time_covers_at_least_50_ms(step_ms: float, windows: int) -> None:
    summary = {"measured_seconds": 10.0, "step_ms": {"p50": step_ms, "p95": step_ms}}
    assert fed({"type": "finished", "outcome": "ok", "summary": summary}).measurements().windows == windows


def test_a_failed_answer_of_xla_counts_in_all_later_sittings_and_before_what_the_trainer_says() -> None:
    begun = {"type": "started", "actual": {"xla_reason": "a reason"}}
    assert fed(begun).measurements().xla_reason == "a reason"
    failed = fed({"type": "xla_answer"}, {"type": "phase", "phase": "importing"}, begun).measurements()
    assert failed.xla_reason == "XLA cannot compile this training: it has failed before"


def test_the_newest_moment_of_a_run_is_its_last_progress_or_else_its_end() -> None:
    step = {"type": "progress", "step": 5, "step_ms_p50": 10.0}
    end = {"type": "finished", "outcome": "ok", "summary": {"steps": 5}}
    assert fed().newest_t is None
    assert fed({"type": "phase", "phase": "training"}, end).newest_t == 1.0
    assert fed({"type": "finished", "outcome": "error", "summary": {"steps": 0}}).newest_t is None
    assert fed(step, end).newest_t == 0.0


@pytest.mark.parametrize(("count", "p5", "p95"), [(19, None, None), (20, 0.0975, 0.9525)])
def test_percentiles_of_a_gpu_need_20_readings(count: int, p5: float | None, p95: float | None) -> None:
    begun = {"type": "started", "gpus": ["GPU-a"], "devices": ["/device:GPU:0"]}
    told = [{"type": "gpu", "gpus": [{"uuid": "GPU-a", "index": 0, "busy": (i + 1) / 20}]} for i in range(count)]
    found = fed(begun, {"type": "phase", "phase": "training"}, *told).measurements()
    assert [found.busy_p5, found.busy_p95] == pytest.approx([p5, p95])


@pytest.mark.parametrize(
    ("gpu_of_others", "idle"),
    [
        ({"busy": 0.049}, 1),
        ({"busy": 0.05}, 0),
        ({"memory_used_bytes": 4 * GIB - 1}, 1),  # a twentieth of 80 GiB
        ({"memory_used_bytes": 4 * GIB}, 0),
        ({"memory_used_bytes": GIB - 1, "memory_total_bytes": 8 * GIB}, 1),  # what a screen takes
        ({"memory_used_bytes": GIB, "memory_total_bytes": 8 * GIB}, 0),
        ({"name": "another"}, 0),
        ({"name": None}, 1),
        ({"memory_total_bytes": None, "memory_used_bytes": GIB - 1}, 1),
    ],
)
def test_a_gpu_is_idle_below_a_twentieth_of_use_and_memory(gpu_of_others: dict[str, Any], idle: int) -> None:
    mine = {"uuid": "GPU-a", "index": 0, "busy": 0.9, "name": "A"}
    free = {"uuid": "GPU-b", "index": 1, "busy": 0.0, "name": "A", "memory_used_bytes": 5,
            "memory_total_bytes": 80 * GIB}  # fmt: skip
    begun = {"type": "started", "gpus": ["GPU-a"], "devices": ["/device:GPU:0"]}
    told = [{"type": "gpu", "gpus": [mine, free | gpu_of_others]}] * 3
    assert fed(begun, {"type": "phase", "phase": "training"}, *told).measurements().idle_gpus == idle


def test_any_model_may_be_idle_next_to_a_gpu_without_a_name() -> None:
    nameless = {"uuid": "GPU-a", "index": 0, "busy": 0.9}
    free = {"uuid": "GPU-b", "index": 1, "busy": 0.0, "name": "B", "memory_used_bytes": 5, "memory_total_bytes": GIB}
    begun = {"type": "started", "gpus": ["GPU-a"]}
    known = fed(begun, {"type": "phase", "phase": "training"}, {"type": "gpu", "gpus": [nameless, free]})
    assert known.measurements().idle_gpus == 1


def test_what_a_gpu_counts_while_no_steps_run_is_left_out() -> None:
    def reading(slowed: float) -> dict[str, Any]:
        return {"type": "gpu", "gpus": [{"uuid": "GPU-a", "index": 0, "busy": 0.9, "slowed_by_power_seconds": slowed}]}

    events: list[dict[str, Any]] = [
        {"type": "started", "gpus": ["GPU-a"]}, {"type": "phase", "phase": "training"}, reading(0.0), reading(1.0),
        {"type": "phase", "phase": "evaluating"}, reading(1.0), reading(1.0), {"type": "phase", "phase": "training"},
        reading(1.0), reading(1.0),
    ]  # fmt: skip
    assert fed(*events).measurements().power_capped == 0.5


def test_each_gpu_has_its_own_memory_and_its_own_neighbours() -> None:
    devices = [{"uuid": f"GPU-{n}", "device": f"/device:GPU:{n}"} for n in (0, 1)]
    begun = {"type": "started", "gpus": ["GPU-0", "GPU-1"], "gpu_devices": devices, "actual": {"memory_growth": True}}
    other = {"pid": 1, "name": "a", "own": False, "memory_used_bytes": 4 * GIB}
    own = {"pid": 2, "name": "b", "own": True, "memory_used_bytes": 2 * GIB}
    gpus = [{"uuid": "GPU-0", "index": 0, "memory_total_bytes": 8 * GIB, "processes": [other, own]},
            {"uuid": "GPU-1", "index": 1, "memory_total_bytes": 40 * GIB, "processes": [own]}]  # fmt: skip

    def peak(first: float, second: float) -> float | None:
        taken = {f"GPU:{n}": {"peak_bytes": int(size * GIB)} for n, size in enumerate((first, second))}
        training = {"type": "phase", "phase": "training"}
        return (
            fed(begun, training, {"type": "gpu", "gpus": gpus}, {"type": "allocator", "devices": taken})
            .measurements()
            .memory_peak
        )

    assert peak(1.0, 20.0) == 0.5
    assert peak(3.0, 1.0) == 0.75
