"""How a run's end is told apart from what is left of it."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest
from gputui.engine.files import writing
from gputui.engine.process.ending import Ending, Evidence, classify, kernel_oom_kills, out_of_memory, with_hint
from gputui.engine.runs import event_reading
from gputui.engine.telemetry.resource_limits import Ceilings, ceilings
from gputui.engine.trainer.cluster.connection_watch import LOST

from tests.support.cases import all_hold

OOM_LINES = [
    "ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024]",
    "E0000 bfc_allocator.cc:512] Allocator ran out of memory trying to allocate 2.00GiB",
    "INTERNAL: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
    "failed call to cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 TiB",
    "MemoryError",
    "OSError: [Errno 12] Cannot allocate memory",
    "W0000 gpu_device.cc:1] failed to allocate 1.5GiB (1610612736 bytes) from device",
]


def end(returncode: int, *log: str, **more: object) -> Ending:
    return classify(Evidence(returncode=returncode, log_tail=log, batch_size=64, **more))  # type: ignore[arg-type]


def test_memory_in_any_words_is_oom_and_names_the_batch_size() -> None:
    with all_hold() as cases:
        for line, returncode in itertools.product(OOM_LINES, (1, -signal.SIGABRT, -signal.SIGSEGV, 134, 139)):
            with cases.case(f"{returncode} {line}"):
                ending = end(returncode, "Epoch 1", line, "and more")
                assert ending.outcome == "oom"
                assert "batch size 64" in ending.message
                assert "input.batch_size=32" in ending.hint


@pytest.mark.parametrize("returncode", [-11, -6, -7, 139, 134, 135])
def test_a_crash_with_the_memory_nearly_full_is_oom(returncode: int) -> None:
    assert end(returncode, memory_share=0.9).outcome == "oom"
    assert end(returncode, memory_share=0.3).outcome == "crashed"
    assert end(returncode).outcome == "crashed"


def test_a_kill_is_oom_only_when_the_kernel_says_so() -> None:
    assert end(-9, kernel_oom_kills=1).outcome == "oom"
    lost = end(-9, f"gputui: {LOST.format(worker='worker 3 (gpu7:12003)')}")
    assert (lost.outcome, lost.kind) == ("error", "peer_lost")
    assert "worker 3 (gpu7:12003) has ended" in lost.message
    killed = end(-9)
    assert killed.outcome == "crashed"
    assert "killed from outside (SIGKILL)" in killed.message
    assert with_hint(killed, is_saved=True).hint == "gputui resume continues from the last checkpoint"
    assert "resume" not in with_hint(killed, is_saved=False).hint
    assert end(-9, "Out of memory").outcome == "crashed"
    assert end(137, kernel_oom_kills=1).outcome == "oom"


@pytest.mark.parametrize("line", ["ImportError: libtensorflow_cc.so.2: failed to map segment from shared object",
                                  "LLVM ERROR: pthread_create failed: Resource temporarily unavailable",
                                  "RuntimeError: can't start new thread", "MemoryError",
                                  "terminate called after throwing an instance of 'std::bad_alloc'", ""])  # fmt: skip
def test_an_address_space_that_is_too_small_is_named(line: str) -> None:
    ending = end(-signal.SIGABRT, line, "more", phase="importing", ceilings=Ceilings(address_space_bytes=2 * 1024**3))
    assert ending.outcome == "oom"
    assert "the address space is limited to 2.0 GiB (ulimit -v)" in ending.message
    assert "ulimit -v unlimited" in ending.hint
    assert "batch_size" not in ending.hint


def test_an_address_space_that_was_large_enough_for_tensorflow_is_a_hint_beside_the_batch_size() -> None:
    ending = end(1, "MemoryError", phase="training", ceilings=Ceilings(address_space_bytes=9 * 1024**3))
    assert "input.batch_size=32" in ending.hint
    assert "9.0 GiB (ulimit -v)" in ending.hint
    crash = end(-signal.SIGSEGV, "", phase="training", ceilings=Ceilings(address_space_bytes=9 * 1024**3))
    assert crash.outcome == "crashed"


@pytest.mark.parametrize("phase", ["starting", "importing", "configuring"])
def test_memory_that_runs_out_before_there_is_data_is_the_hosts_and_not_the_batchs(phase: str) -> None:
    ending = end(-9, kernel_oom_kills=1, phase=phase, ceilings=Ceilings(memory_bytes=500 * 1024**2))
    assert ending.outcome == "oom"
    assert "batch" not in ending.message + ending.hint
    assert "500 MiB" in ending.hint
    assert "give the container or job more" in ending.hint


@pytest.mark.parametrize("line", ["RuntimeError: can't start new thread",
                                  "F0000 env.cc:84] Check failed: ret == 0 (11 vs. 0) Thread tf_Compute creation via "
                                  "pthread_create() failed."])  # fmt: skip
def test_the_limit_of_processes_is_named(line: str) -> None:
    ending = end(-signal.SIGABRT, line, "*** Check failure stack trace: ***", ceilings=Ceilings(processes=20))
    assert (ending.outcome, ending.kind) == ("error", "process_limit")
    assert "no more processes and threads can be started: the limit is 20" in ending.message
    assert "ulimit -u" in ending.hint


@pytest.mark.parametrize("variable", ["TF_XLA_FLAGS", "XLA_FLAGS"])
def test_a_flag_that_tensorflow_does_not_know_is_named_with_its_variable(variable: str) -> None:
    line = f"F0000 00:00:1.0 27778 parse_flags_from_env.cc:234] Unknown flags in {variable}: --foo=1 --bar Perhaps you"
    ending = end(1, line)
    assert (ending.outcome, ending.kind) == ("error", "environment")
    assert f"{variable} in the environment" in ending.message
    assert ending.message.endswith(": --foo=1 --bar")
    assert f"unset {variable}" in ending.hint


@pytest.mark.parametrize("returncode", [-signal.SIGTERM, -signal.SIGINT, 143, 130])
def test_a_trainer_that_a_stop_signal_ended_is_stopped(returncode: int) -> None:
    assert end(returncode, "MemoryError").outcome == "stopped"


def test_the_ceilings_of_this_process_can_be_read() -> None:
    found = ceilings()
    assert found.memory_bytes
    assert found.processes is None or found.processes > 0


@pytest.mark.parametrize(
    ("returncode", "name"),
    [(-11, "SIGSEGV"), (-6, "SIGABRT"), (139, "SIGSEGV"), (-4, "SIGILL"), (1, "return code 1"), (77, "return code 77"),
     (0, "return code 0"), (-99, "return code -99"), (159, "SIGSYS")],
)  # fmt: skip
def test_any_other_end_is_a_crash_with_its_name(returncode: int, name: str) -> None:
    ending = end(returncode, "Segmentation fault")
    assert ending.outcome == "crashed"
    assert name in ending.message
    assert "engine.log" in ending.hint


@pytest.mark.parametrize("returncode", [-9, -11, 1, 0])
def test_what_the_engine_asked_for_comes_before_how_it_died(returncode: int) -> None:
    lines = OOM_LINES[0]
    assert end(returncode, lines, stopped_because="stop").outcome == "stopped"
    timeout = end(returncode, lines, stopped_because="timeout", limit="run.max_minutes=2")
    assert (timeout.outcome, timeout.kind) == ("timeout", "timeout")
    assert "run.max_minutes=2" in timeout.message
    of_job = end(returncode, lines, stopped_because="timeout", limit="run.max_minutes=auto")
    assert "before the time limit of the job was reached" in of_job.message
    assert "gputui resume" in of_job.hint
    hung = {"stopped_because": "hang", "limit": "no step was completed for 5:00 (run.hang_seconds=300)"}
    hang = end(returncode, lines, **hung)
    assert (hang.outcome, hang.kind) == ("timeout", "hang")
    assert "run.hang_seconds=300" in hang.message
    assert "NCCL" not in hang.hint
    assert ["NCCL" in end(returncode, lines, gpus=gpus, **hung).hint for gpus in (1, 2)] == [False, True]
    assert "NCCL_P2P_DISABLE=1" in end(returncode, lines, gpus=2, **hung).hint


def test_memory_that_ran_out_at_batch_size_one_suggests_no_smaller_than_one() -> None:
    assert out_of_memory(2, "x").hint.startswith("try input.batch_size=1, precision.policy=")
    assert out_of_memory(1, "x").hint.startswith("try precision.policy=")  # a batch cannot get smaller


def test_memory_that_ran_out_proposes_to_go_on_by_itself_where_that_is_not_asked_for() -> None:
    assert "run.on_oom=accumulate goes on with the same batch" in out_of_memory(2, "x").hint
    for batch, on_oom, proposed in (
        (2, "stop", True), (1, "stop", False), (2, "halve", False), (2, "accumulate", False), (1, "accumulate", False),
    ):  # fmt: skip
        endings = [out_of_memory(batch, "x", on_oom=on_oom)]
        endings += [end(1, line, on_oom=on_oom) for line in OOM_LINES[:1] if batch > 1]
        for ending in endings:
            assert ("on_oom" in ending.hint) is proposed, (batch, on_oom)


def test_batches_ahead_on_the_gpu_are_named_where_an_allocation_failed_and_not_where_the_hosts_memory_ran_out() -> None:
    for line in OOM_LINES[:4]:
        assert "input.prefetch_to_device=off" in end(1, line, device_batches=2).hint, line
        assert "prefetch_to_device" not in end(1, line).hint, line
    assert "prefetch_to_device" not in end(-9, kernel_oom_kills=1, device_batches=2).hint


def test_every_ending_is_plain_short_text() -> None:
    for returncode in range(-64, 256):
        for because in ("", "stop", "timeout", "hang"):
            ending = end(returncode, stopped_because=because)
            assert ending.outcome in ("ok", "oom", "error", "stopped", "timeout", "crashed")
            assert ending.message
            assert "\n" not in ending.message + ending.hint


def test_the_kernels_count_of_kills_can_be_read_or_is_zero() -> None:
    assert kernel_oom_kills() >= 0


def test_a_crash_while_tensorflow_is_imported_says_so() -> None:
    ending = end(-signal.SIGSEGV, phase="importing")
    assert (ending.outcome, ending.message.endswith("while TensorFlow was being imported")) == ("crashed", True), ending
    assert "doctor --deep" in ending.hint


def test_each_silence_on_a_disk_that_refuses_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, full = [100.0], ["no room at x"]
    monkeypatch.setattr("gputui.engine.runs.event_reading.time.monotonic", lambda: now[0])
    monkeypatch.setattr(writing, "try_writing", lambda folder: full[0])
    silence = event_reading.Silence(tmp_path)
    looks = [  # after so many seconds: whether something was heard, whether it trains, what the disk says
        (2.9, False, True, "no room at x", ""),
        (0.2, False, True, "no room at x", f"no room at x: {event_reading.TRAINS_ON}"),
        (9.0, False, True, "no room at x", ""),
        (9.0, False, False, "no room at x", f"no room at x: {event_reading.ENDED}"),
        (9.0, False, False, "no room at x", ""),
        (0.1, True, True, "no room at x", ""),
        (3.1, False, True, "", ""),  # it is silent for another reason
        (1.0, False, True, "no room at x", ""),
        (2.1, False, True, "no room at x", f"no room at x: {event_reading.TRAINS_ON}"),
        (0.1, True, True, "no room at x", ""),
        (3.1, False, True, "no room at x", f"no room at x: {event_reading.TRAINS_ON}"),  # full a second time
    ]
    for number, (seconds, heard, trains, full[0], said) in enumerate(looks):
        now[0] += seconds
        assert silence.check(heard, trains) == said, number


def test_a_run_without_a_result_has_the_last_words_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "try_writing", lambda folder: "")
    assert (
        event_reading.lost_error(tmp_path, ["first", "", " last ", " "])["hint"] == "the last line of engine.log: last"
    )
    assert event_reading.lost_error(tmp_path, [" "])["hint"] == "engine.log is empty"
    assert event_reading.lost_error(tmp_path, [])["message"] == "the run ended without a result: its engine is gone"


@pytest.mark.parametrize(
    ("because", "limit", "outcome", "message"),
    [
        ("", "", "timeout", "the trainer (pid 7) was killed but does not end"),
        ("stop", "", "stopped", "the trainer (pid 7) was killed but does not end"),
        ("timeout", "run.max_minutes=5", "timeout", "run.max_minutes=5; the trainer (pid 7) was killed but does not"),
    ],
)
def test_a_trainer_that_does_not_end_is_told_before_why_it_was_ended(
    because: str, limit: str, outcome: str, message: str
) -> None:
    ending = end(0, "MemoryError", stopped_because=because, limit=limit, held_pid=7, lost_gpus=["GPU 0"])
    assert (ending.outcome, ending.kind) == (outcome, "held")
    assert ending.message.startswith(message)


@pytest.mark.parametrize(
    ("returncode", "seen", "kind"),
    [
        (-11, {"memory_share": 0.8}, "crash"),
        (-11, {"memory_share": 0.81}, "out_of_memory"),
        (-7, {"memory_share": 0.81}, "out_of_memory"),
        (1, {"memory_share": 0.81}, "crash"),
        (-11, {"ceilings": Ceilings(address_space_bytes=3_999_999_999)}, "address_space"),
        (-11, {"ceilings": Ceilings(address_space_bytes=4_000_000_000)}, "crash"),
        (-11, {"lost_gpus": ["GPU 1"], "memory_share": 0.9}, "gpu_lost"),
        (127, {}, "crash"),
        (143, {"lost_gpus": ["GPU 1"]}, "killed"),
        (137, {"lost_gpus": ["GPU 1"]}, "killed"),
    ],
)
def test_how_a_trainer_died_is_told_from_what_was_known(returncode: int, seen: dict[str, object], kind: str) -> None:
    assert end(returncode, **seen).kind == kind
