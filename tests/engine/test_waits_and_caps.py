"""How long the engine waits, how often it looks, and how much it keeps or names: the values that users meet.

Most of them cannot be seen without waiting for so long. Whoever changes one changes it here, too, on purpose.
"""

from __future__ import annotations

import importlib

import pytest

KIB, MIB, GIB, HOUR, DAY = 1024, 1024**2, 1024**3, 3600, 86_400

VALUES: dict[str, dict[str, object]] = {
    "runs.folders": {"NAMED": 3},
    "runs.event_reading": {"SILENT_SECONDS": 3},
    "runs.results": {
        "TRAINER_SECONDS": 2, "ENGINE_SECONDS": 120, "RESULT_RETRY_SECONDS": 0.5, "PIPE_BYTES": MIB,
        "LEAST_PIPE_BYTES": 16 * KIB,
    },
    "runs.liveness": {"FRESH_SECONDS": 60, "BEATS_WITHIN_SECONDS": 3, "POLL_SECONDS": 0.1},
    "runs.run_cluster": {"HEAD_BYTES": 256 * KIB},
    "runs.trash": {"WITHOUT_LOCKS_SECONDS": 7 * DAY},
    "runs.run": {"STARTING_SECONDS": 15, "LAST_BYTES": 16 * KIB},
    "runs.code_copy": {
        "MOST_FILES": 2_000, "MOST_BYTES": 20 * MIB, "MOST_FILE_BYTES": MIB, "MOST_NAMES": 20_000,
        "MOST_NAMES_OF_DATA": 2_000, "SHORT_COMMIT": 7,
    },
    "runs.titles": {"LONGEST": 72, "LONGEST_NOTE": 1_000, "LONGEST_TAG": 32},
    "runs.code_files": {"NAMED": 3, "MOST_LINES": 5_000},
    "runs.events": {"T_DIGITS": 4},
    "process.ending": {"ADDRESS_SPACE_NEEDED_BYTES": 4_000_000_000, "LOG_LINES": 2_000, "QUOTED_LETTERS": 200},
    "process.fork_client": {"READY_SECONDS": 120, "POLL_SECONDS": 0.1},
    "process.followers": {"LATE_SECONDS": 10, "RESTARTS": 3},
    "process.spawn": {"MOST_LEASES": 64},
    "process.launch": {"ANSWER_SECONDS": 10},
    "process.recovery": {"MOST_ANSWERS": 12},
    "process.supervisor": {
        "TICK_SECONDS": 0.1, "HEARTBEAT_SECONDS": 1, "HELD_SECONDS": 30, "READING_SECONDS": 5,
        "DRIVER_ERROR_SECONDS": 60, "STACKS_SECONDS": 2.5,
    },
    "process.live_diagnosis": {
        "INTERVAL_SECONDS": 2, "FIRST_REPEAT_SECONDS": 4, "LAST_REPEAT_SECONDS": 60, "MORE_CONFIDENCE": 0.15
    },
    "process.time_limits": {
        "IDLE_CORES": 0.02, "INTERVAL_SECONDS": 0.25, "LONGEST_INTERVAL_SECONDS": 5, "OF_LONGEST_GAP": 20,
        "OF_FIRST_STEP": 3, "WHILE_COMPILING": 24, "WHILE_SAVING": 4, "SUSPENDED_SECONDS": 5, "CHILDREN_SECONDS": 5,
    },
    "process.resuming": {"POLL_SECONDS": 0.2},
    "job.slurm_programs": {"SUBMIT_SECONDS": 60},
    "job.worker_readings": {"LOOK_SECONDS": 1, "TELL_SECONDS": 10, "APART": 0.1},
    "job.gpu_parts": {"USABLE": 0.95, "CONTEXT_BYTES": 768 * MIB, "LEAST_MEMORY_MB": 64},
    "job.environment_variables": {"LONGEST": 200},
    "job.slurm": {"MOST_NODES": 100_000, "ANSWER_SECONDS": 10, "MARGIN_SECONDS": 120, "MARGIN_SHARE": 0.1},
    "job.start_worker": {"ANSWER_SECONDS": 10},
    "job.machine_gpus": {"NOT_LISTED_BYTES": GIB},
    "files.writing": {"PROBE_BYTES": 16 * KIB},
    "files.yaml_nodes": {"MAX_DEPTH": 8, "MAX_BITS": 4_000},
    "files.appending": {"KEPT_BYTES": 8 * MIB, "RETRY_SECONDS": 0.25},
    "files.values": {
        "LARGEST": 1e100, "LARGEST_WHOLE": 2**63 - 1, "LONGEST_LINE": 200, "MAX_DEPTH": 32, "LATEST_T": 253402300799
    },
    "files.located_yaml": {"MAX_BYTES": 100 * KIB},
    "files.reading": {"MAX_OBJECT_BYTES": 20 * MIB},
    "files.places": {"ONLY_MINE": 0o700},
    "system.locks": {"ATTEMPTS": 100, "RETRY_SECONDS": 0.01},
    "system.git_state": {"SECONDS": 2, "MOST_DIFF_BYTES": 1_000_000},
    "system.stop_signals": {"GRACE_SECONDS": 30},
    "system.import_cost": {"ROOM_BYTES": MIB},
    "system.descendants": {"LEAVE_SECONDS": 1, "TERM_SECONDS": 3, "KILL_SECONDS": 2},
    "interpreter.interpreter": {"OLDEST": (3, 11), "NEWEST": (3, 13)},
    "interpreter.installed_query": {"ANSWER_SECONDS": 10, "MOST_BYTES": MIB, "NOTICE_SECONDS": 1},
    "interpreter.compatibility": {
        "TURING_CAPABILITY": (7, 5), "BLACKWELL_CAPABILITY": (10, 0), "HOPPER_DRIVER": 555, "BLACKWELL_DRIVER": 570
    },
    "doctor": {"PATIENCE_SECONDS": 2, "DEEP_PATIENCE_SECONDS": 17},
    "doctor.libraries": {"MOST_PACKAGES": 2},
    "doctor.no_gpu": {"PATIENCE_SECONDS": 2},
    "queue.empty_notice": {"MOST_NAMES": 5},
    "queue.entries": {"SETTLED_SECONDS": 0.1, "LOCK_SECONDS": 20},
    "queue.slurm_job": {"POLL_SECONDS": 0.1, "ENDED_WELL": 0, "ENDED_BADLY": 1},
    "queue.runner": {
        "TICK_SECONDS": 0.5, "WALK_SECONDS": 2, "AGAIN_SECONDS": 2, "LONGEST_AGAIN_SECONDS": 30, "QUICK_SECONDS": 60,
        "MOST_FAILURES": 3, "BEGUN": 0, "NOT_FREE": 75, "REFUSED": 3,
    },
    "queue.durations": {"MOST_RUNS": 200, "MOST_COMPARED": 9},
    "queue.slurm_follower": {
        "INTERVAL_SECONDS": 10, "LEAST_SECONDS": 2, "SUBMITTED_SECONDS": 120, "RESULT_SECONDS": 60
    },
    "queue.entry_changes": {"BEGINNING_SECONDS": 20},
    "queue.fair_share": {"TURN_SECONDS": 60, "ASKED_AFTER_SECONDS": 10, "LEAST_RUNNING_SECONDS": 30},
    "queue.user_service": {"SYSTEMCTL_SECONDS": 20},
    "leases.memory_needs": {"MARGIN": 1.1, "MOST_RUNS": 500},
    "leases.idle_notes": {"NOTED_SECONDS": 60, "CPU_SECONDS": 0.5, "CPU_SHARE": 0.003},
    "leases.start_devices": {"WAIT_SECONDS": 5},
    "leases.free_gpus": {
        "IDLE_HOURS": 2, "IDLE_SECONDS": 20, "LOOK_SECONDS": 2, "SLOW_SECONDS": 10, "BUSY": 0.02,
        "DISPLAY_BUSY": 0.3, "DISPLAY_SHARE": 0.25, "DRIVER_BYTES": GIB, "GIVE_BACK_SECONDS": 10,
        "LEFT_BYTES": 256 * MIB,
    },
    "leases.lease": {"MOST_SHARING": 16, "LONGEST_WHAT": 80},
    "telemetry.nvml.connection": {"PATIENCE_SECONDS": 10},
    "telemetry.nvml.xid_errors": {"WAIT_MS": 1, "MOST_AT_ONCE": 100, "OF_PROGRAMS": (13, 31, 32, 43), "CLEANUP": 45},
    "telemetry.nvml.gpm_nvlink": {"GPM_SECONDS": 0.1},
    "telemetry.nvml.gpu_reader": {"LOOK_AGAIN_SECONDS": 30},
    "telemetry.gpu_totals": {"WORKS": 0.5, "JOULES_PER_WH": 3600},
    "telemetry.sampler": {
        "SLOW_FIGURES_SECONDS": 10, "DUTY": 0.5, "FIRST_RETRY_SECONDS": 5, "LAST_RETRY_SECONDS": 60,
        "STUCK_SECONDS": 30,
    },
    "telemetry.gpu_processes": {"MOST": 300},
    "follow.start": {"PATIENCE_SECONDS": 20},
    "follow.process": {"LOCK_ATTEMPTS": 3_000},
    "follow.to_mlflow": {"MOST_METRICS": 1_000, "LONGEST_PARAMETER": 6_000, "LONGEST_TAG": 5_000},
    "follow.to_wandb": {"INIT_SECONDS": 30},
    "follow.following": {
        "POLL_SECONDS": 1, "CALL_SECONDS": 60, "RETRY_SECONDS": 1, "LONGEST_RETRY_SECONDS": 60,
        "GIVE_UP_SECONDS": 600,
    },
    "follow.batches": {"BLOCK_BYTES": 256 * KIB, "LONGEST_BYTES": 16 * MIB},
    "notify.sending": {"LIMIT_SECONDS": 10},
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_a_wait_or_a_cap_has_the_value_that_users_know(name: str) -> None:
    module = importlib.import_module(f"gputui.engine.{name}")
    assert {constant: getattr(module, constant) for constant in VALUES[name]} == VALUES[name]
