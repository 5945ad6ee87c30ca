"""Machines that the checks are given, and the cases of the rules about which GPUs train."""

from __future__ import annotations

from dataclasses import replace

from gputui.engine.job import allocation
from gputui.engine.job.machine_gpus import Fault, Gpu, Instance, Machine
from gputui.engine.runs.run_cluster import Cluster

GB = 1024**3


def gpu(index: int, capability: tuple[int, int] | None = (9, 0), memory: int | None = 80 * GB) -> Gpu:
    return Gpu(index, f"GPU-{index}", "A GPU", capability, memory)


def machine(*gpus: Gpu) -> Machine:
    return Machine(gpus, "" if gpus else "no NVIDIA driver", 16, 128 * GB)


NONE = machine()
ONE = machine(gpu(0))
TWO = machine(gpu(0), gpu(1))
PASCAL = machine(gpu(0, (6, 1), 8 * GB))
VOLTA = machine(gpu(0, (7, 0), 16 * GB))
MIXED = machine(gpu(0), gpu(1, (6, 1)))
P100 = machine(gpu(0, (6, 0), 16 * GB))
BLACKWELL = machine(gpu(0, (12, 0), 32 * GB))
UNKNOWN = machine(gpu(0, None, None))
SILENT = replace(NONE, missing="no NVML here")  # GPUs may be there
OLD_DRIVER = replace(ONE, cuda=(12, 2))
EIGHT = machine(*(gpu(index) for index in range(8)))
WITH_DISPLAY = machine(  # a Quadro P400 before an RTX 4090
    replace(gpu(0, (6, 1), 2 * GB), multiprocessors=2), replace(gpu(1, (8, 9), 24 * GB), multiprocessors=128)
)
PARTED = machine(  # two MIG instances
    replace(gpu(0), mig=True, instances=(Instance("MIG-a", 20 * GB), Instance("MIG-b", 40 * GB)))
)


def given(of: Machine, **variables: str) -> Machine:
    """The machine in a job whose launcher has set these variables."""
    shown = variables.get("CUDA_VISIBLE_DEVICES")
    return replace(of, visible_devices=shown, allocation=allocation.read(variables, len(of.gpus)))


FOUR_FIVE = given(EIGHT, CUDA_VISIBLE_DEVICES="4,5", SLURM_JOB_GPUS="4,5")
NOT_FENCED = given(EIGHT, SLURM_JOB_GPUS="4-5")

STOPPED = replace(
    NONE, fault=Fault("error", "driver", "the driver is not loaded", "modprobe nvidia (as root) loads it")
)
MODELS = machine(replace(gpu(0), name="RTX 3090"), replace(gpu(1), name="RTX 4090"))
HELD = replace(gpu(1), sole_holder="python 77")
TAKEN = machine(replace(gpu(0), memory_used_bytes=70 * GB, holders=("python 77",)), gpu(1))
EMPTY = machine(replace(gpu(0), mig=True))
TOO_OLD = machine(gpu(0, (5, 2), 24 * GB))
TOGETHER = Cluster(("a:1", "a:2", "b:1", "b:2"), 1, "Slurm")
WORKER = replace(NONE, cluster=Cluster(("a:1", "b:1"), 1, "Slurm"))

# rule, machine, settings that trigger it, level, a word of the message
GPU_TRIGGERS = [
    ("none_shown", STOPPED, "epochs=3", "error", "the driver is not loaded"),
    ("none_shown", STOPPED, "visible=0", "error", "the driver is not loaded"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="GPU-9"), "epochs=3", "error", "shows no GPU: GPU-9 fits no single"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="7"), "epochs=3", "error", "shows no GPU: 7 fits no single GPU"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="1,1"), "epochs=3", "error", "or names a GPU twice"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="1,7"), "epochs=3", "warning", "shows GPU 1 (A GPU) alone: 7 fits"),
    ("none_shown", given(PARTED, CUDA_VISIBLE_DEVICES="MIG-c"), "epochs=3", "error", "shows no GPU: MIG-c fits no"),
    ("none_shown", given(EMPTY, CUDA_VISIBLE_DEVICES="0"), "epochs=3", "error", "GPU 0: MIG is on without an instance"),
    ("none_shown", EMPTY, "epochs=3", "error", "MIG is on without an instance"),
    ("none_shown", MODELS, "epochs=3", "warning", "GPUs of different models: GPU 0 (RTX 3090), GPU 1 (RTX 4090), in"),
    ("none_shown", given(MODELS, CUDA_VISIBLE_DEVICES="1"), "epochs=3", "warning", "=1 means GPU 1 (RTX 4090), in the"),
    ("usable", machine(replace(gpu(0), lost="the GPU is lost")), "epochs=3", "error", "GPU 0: the GPU is lost"),
    ("usable", machine(replace(gpu(0), prohibited=True)), "epochs=3", "error", "GPU 0: its compute mode is PROHIBITED"),
    ("usable", machine(HELD), "epochs=3", "error", "python 77 has GPU 1 for itself"),
    ("usable", TAKEN, "epochs=3", "warning", "GPU 0: 70.0 GiB of 80.0 GiB are already in use by python 77"),
    ("alike", MODELS, "strategy.kind=mirrored", "warning", "different GPUs (RTX 3090, RTX 4090): each step waits"),
    ("too_old", TOO_OLD, "epochs=3", "error", "has no code for GPU 0 (A GPU): the chip is too old"),
    ("too_old", TOO_OLD, "visible=0", "error", "has no code for GPU 0 (A GPU): the chip is too old"),
    ("missing_gpus", NONE, "visible=0", "error", "there is no GPU 0 (no NVIDIA driver)"),
    ("missing_gpus", TWO, "visible=0,2", "error", "there is no GPU 2 (this machine has 2)"),
    ("missing_gpus", TWO, "visible=GPU-9", "error", "there is no GPU GPU-9"),
    ("missing_gpus", TWO, "visible=0,0", "error", "twice"),
    ("missing_gpus", TWO, "visible=GPU-1,0", "error", "mixes indices and UUIDs"),
    ("allocation", FOUR_FIVE, "visible=0", "error", "GPU 0 is not allocated to this job: this job is allo"),
    ("allocation", FOUR_FIVE, "visible=4,6", "error", "GPU 6 is not"),
    ("allocation", FOUR_FIVE, "visible=GPU-3", "error", "GPU GPU-3 is not"),
    ("allocation", given(EIGHT, CUDA_VISIBLE_DEVICES="GPU-4"), "visible=5", "error", "allocated GPU GPU-4"),
    ("allocation", given(EIGHT, CUDA_VISIBLE_DEVICES=""), "visible=0", "error", "is allocated no GPU"),
    ("allocation", given(SILENT, CUDA_VISIBLE_DEVICES="4,5"), "visible=0", "error", "is allocated GPU 4,5"),
    ("allocation", given(PARTED, CUDA_VISIBLE_DEVICES="MIG-a"), "visible=MIG-b", "error", "GPU MIG-b is not"),
    ("allocation", NOT_FENCED, "visible=0", "error", "is allocated GPU 4,5 (SLURM_JOB_GPUS)"),
    ("allocation", NOT_FENCED, "epochs=3", "warning", "does not hide the others"),
    ("allocation", given(EIGHT, SLURM_STEP_GPUS="2", SLURM_JOB_GPUS="2,3"), "visible=3", "error", "GPU 2 (SLURM"),
]
# rule, machine, settings that do not trigger it
GPU_FINE = [
    ("on_one_node", replace(TWO, cluster=TOGETHER), "strategy.kind=multi_worker visible=none"),
    ("on_one_node", replace(TWO, cluster=WORKER.cluster), "strategy.kind=multi_worker"),
    ("none_shown", STOPPED, "visible=none"),
    ("none_shown", given(STOPPED, CUDA_VISIBLE_DEVICES=""), "epochs=3"),
    ("none_shown", replace(STOPPED, missing="no NVML here"), "epochs=3"),  # TensorFlow may see them
    ("none_shown", given(NONE, CUDA_VISIBLE_DEVICES="0"), "epochs=3"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES=""), "epochs=3"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="-1"), "epochs=3"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="0,-1,1"), "epochs=3"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="GPU-9"), "visible=none"),
    ("none_shown", given(MODELS, CUDA_VISIBLE_DEVICES="GPU-0"), "epochs=3"),
    ("none_shown", MODELS, "strategy.kind=mirrored"),
    ("none_shown", MODELS, "visible=0"),
    ("usable", machine(gpu(0), HELD), "epochs=3"),
    ("usable", TAKEN, "visible=1"),
    ("usable", TAKEN, "visible=free:1"),
    ("usable", machine(HELD), "visible=fits:1"),
    ("usable", machine(replace(gpu(0), memory_used_bytes=GB // 2)), "epochs=3"),
    ("alike", MODELS, "epochs=3"),
    ("alike", TWO, "strategy.kind=mirrored"),
    ("too_old", machine(gpu(0), gpu(1, (5, 2))), "epochs=3"),
    ("too_old", TOO_OLD, "visible=none"),
    ("too_old", given(TOO_OLD, CUDA_VISIBLE_DEVICES=""), "epochs=3"),
    ("missing_gpus", NONE, "visible=none"),
    ("missing_gpus", TWO, "visible=GPU-1,GPU-0"),
    ("missing_gpus", TWO, "visible=MIG-1234"),
    ("missing_gpus", SILENT, "visible=0"),
    ("allocation", EIGHT, "visible=0"),
    ("allocation", FOUR_FIVE, "epochs=3"),
    ("allocation", FOUR_FIVE, "visible=5,4"),
    ("allocation", FOUR_FIVE, "visible=GPU-5"),
    ("allocation", FOUR_FIVE, "visible=none"),
    ("allocation", given(EIGHT, CUDA_VISIBLE_DEVICES="GPU-4,GPU-5"), "visible=4"),
    ("allocation", given(EIGHT, CUDA_VISIBLE_DEVICES=""), "epochs=3"),
    ("allocation", given(TWO, SLURM_JOB_GPUS="4,5"), "visible=0"),  # fenced: NVML shows the job's own alone
    ("allocation", given(PARTED, CUDA_VISIBLE_DEVICES="0"), "visible=MIG-b"),
    ("allocation", given(SILENT, CUDA_VISIBLE_DEVICES="4,5"), "visible=GPU-5"),
]


# ---- figures of epochs ----------------------------------------------------------------------------

FIGURE_TRIGGERS = [
    ("early_stop", NONE, "early_stop=val_loss validation_split=0", "error", "validation, which is off"),
    ("early_stop", NONE, "early_stop=f1", "error", "no figure f1"),
    ("early_stop", NONE, "early_stop=loss epochs=5", "warning", "5 epochs cannot end early after 5"),
    ("early_stop", NONE, "early_stop_restore=true", "error", "no effect while train.early_stop is off"),
    ("keep_best", NONE, "keep_best=val_f1", "error", "no figure val_f1"),
    ("keep_best", NONE, "keep_best_count=3", "error", "no effect while run.keep_best is off"),
    ("plateau", NONE, "schedule=reduce_on_plateau warmup_steps=9", "error", "cannot follow a warm-up"),
    ("plateau", NONE, "schedule=reduce_on_plateau decay_steps=9", "warning", "does not follow the steps"),
    ("plateau", NONE, "schedule=reduce_on_plateau plateau_figure='off'", "error", "no figure off"),
    ("plateau", NONE, "schedule=cosine plateau_patience=3", "error", "no effect while train.schedule is cosine"),
]
FIGURE_FINE = [
    ("early_stop", NONE, "early_stop=val_loss epochs=9"),
    ("early_stop", NONE, "entry=tests/support/programs/entry/text.py:build early_stop=val_f1:max epochs=9"),
    ("keep_best", NONE, "keep_best=val_accuracy validation_split=0 validation=test data=mnist keep_best_count=3"),
    ("plateau", NONE, "schedule=reduce_on_plateau plateau_figure=loss decay_rate=0.5 plateau_patience=3"),
]

FOLLOW_TRIGGERS = [("follow_targets", NONE, "follow=tensorboard,trackio", "error", "trackio is not installed")]
FOLLOW_FINE = [("follow_targets", NONE, "follow=tensorboard,prometheus")]

SHARING_TRIGGERS = [
    ("per_gpu", ONE, "per_gpu=2", "error", "the queue chooses the GPU"),
    ("per_gpu", ONE, "per_gpu=2 visible=fits:1", "error", "the queue chooses the GPU"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:1 strategy.kind=mirrored", "error", "trainings share one device"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:1 memory_limit_mb=50000", "error", "are more than GPU 0"),
]
SHARING_FINE = [("per_gpu", ONE, "per_gpu=2 visible=free:1"), ("per_gpu", NONE, "per_gpu=2")]
OTHER_TRIGGERS = [*GPU_TRIGGERS, *FIGURE_TRIGGERS, *FOLLOW_TRIGGERS, *SHARING_TRIGGERS]
OTHERS_FINE = [*GPU_FINE, *FIGURE_FINE, *FOLLOW_FINE, *SHARING_FINE]
