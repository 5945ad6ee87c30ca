"""Machines that the checks are given, and the cases of the rules about which GPUs train."""

from __future__ import annotations

from dataclasses import replace

from tests.doors.engine import Cluster, Gpu, Instance, Machine, allocation
from tests.doors.engine import machine_gpus_Fault as Fault

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

# ---- on both sides of a limit ---------------------------------------------------------------------

FOUR_HOLD = machine(replace(gpu(0), memory_used_bytes=9 * GB, holders=("a 1", "b 2", "c 3", "d 4")))
UNNAMED = machine(replace(gpu(0), memory_used_bytes=9 * GB))
TEXT_ENTRY = "entry=tests/support/programs/entry/text.py:make_texts"
WHOLE = "data=synthetic validation_split=0 batch_size=32"  # 4 batches of 100 samples, the last of 4
LIMIT_TRIGGERS = [
    ("partitions", VOLTA, "memory_growth=off memory_limit_mb=16385", "error", "is more than GPU 0 has (16.0 GiB)"),
    ("partitions", VOLTA, "memory_growth=off memory_limit_mb=8193 logical_devices=2", "error", "2 x 8.0 GiB is more"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:2", "error", "the queue chooses the GPU"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:1 allocator=cuda_malloc_async", "error", "cuda_malloc_async cannot do"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:1 logical_devices=2", "error", "share one whole device"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:1 memory_growth=true", "error", "cannot combine with growth"),
    ("xla", ONE, f"{WHOLE} samples=100 epochs=2 steps_per_epoch=2", "note", "last, smaller batch"),
    ("xla", ONE, f"{WHOLE} samples=100 epochs=1 steps_per_epoch=4", "note", "last, smaller batch"),
    ("xla", TWO, f"{WHOLE} samples=66 xla=true strategy.kind=mirrored", "warning", "last, smaller batch"),
    ("usable", FOUR_HOLD, "epochs=3", "warning", "are already in use by a 1, b 2, c 3"),
    ("usable", UNNAMED, "epochs=3", "warning", "9.0 GiB of 80.0 GiB are already in use"),
    ("missing_gpus", TWO, "visible=free:3", "error", "free:3 needs 3 GPUs; this process may use 2 such of 2"),
    ("missing_gpus", NONE, "visible=free:1", "error", "free:1 needs a GPU (no NVIDIA driver)"),
    ("missing_gpus", PARTED, "visible=free:2", "error", "CUDA shows one MIG instance to a process"),
    ("missing_gpus", TWO, "visible=fits:1 memory_growth=false", "error", "fits:1 shares a GPU with others, but"),
    ("missing_gpus", MODELS, "visible=free:3@RTX", "error", "free:3@RTX needs 3 GPUs of the kind RTX; this"),
    ("missing_gpus", TWO, "visible=free:1@90GB", "error", "free:1@90GB needs a GPU with 90 GB; this process may use 0"),
    ("allocation", replace(ONE, allocation=allocation.Allocation("SLURM_JOB_GPUS", ())), "epochs=3", "warning",
     "is allocated no GPU"),
    ("steps", NONE, "steps_per_epoch=4 steps_per_execution=5", "warning", "cut to the epoch's 4"),
    ("steps", NONE, "steps_per_epoch=5 steps_per_execution=4", "note", "has 1 step instead of 4"),
    ("shuffle", NONE, "shuffle=63 batch_size=64", "warning", "smaller than one batch"),
    ("accumulation", NONE, "gradient_accumulation=2 epochs=3 steps_per_epoch=3", "note", "the last 1 of 9 steps"),
    ("accumulation", NONE, "gradient_accumulation=10 epochs=3 steps_per_epoch=3", "warning", "the last 9 of 9 steps"),
    ("accumulation", TWO, "gradient_accumulation=2 strategy.kind=multi_worker", "error", "over several replicas"),
    ("early_stop", NONE, "early_stop=loss epochs=6 early_stop_patience=7", "warning", "cannot end early after 7"),
    ("early_stop", NONE, "early_stop=accuracy:min validation_split=0 epochs=5", "warning", "cannot end early"),
    ("keep_best", NONE, "keep_best=val_loss validation_split=0", "error", "validation, which is off"),
    ("scaling", NONE, "learning_rate_scaling=linear strategy.kind=one_device", "note", "no effect with one replica"),
    ("scaling", TWO, "learning_rate_scaling=sqrt strategy.kind=mirrored", "note", "begin with 1.41 times the learning"),
    ("scaling", EIGHT, "learning_rate_scaling=sqrt strategy.kind=mirrored", "note", "2.83 times the learning rate"),
    ("clipping", TWO, "clip_value=1 strategy.kind=multi_worker", "note", "of each replica"),
    ("copied_code", NONE, f"run.code=copy {TEXT_ENTRY.replace('tests/support/programs/entry/text.py', 'a.b')}",
     "warning", "the code of a module is not copied"),
    ("entry_alone", NONE, "args.a=1", "warning", "does nothing without workload.entry"),
    ("others", replace(WORKER, cluster=Cluster(("a:1", "b:1", "c:1"), 2, "--cluster")), "strategy.kind=multi_worker",
     "note", "this is worker 2 of 3, at c:1 (--cluster)"),
    ("communication", TWO, "strategy.kind=multi_worker communication=reduction_to_one_device", "error", "one machine"),
    ("strategy", TWO, "strategy.kind=one_device strategy.devices=2", "error", "there is no device 2; there are 2"),
    ("strategy", TWO, "strategy.kind=mirrored strategy.devices=3 logical_devices=1", "error", "no device 3"),
    ("strategy", NONE, "strategy.kind=mirrored", "warning", "no faster than single"),
    ("precision", machine(gpu(0, (6, 2))), "policy=mixed_float16", "warning", "6.2) has no tensor cores"),
    ("precision", machine(gpu(0, (7, 5))), "policy=mixed_bfloat16", "error", "8.0, but GPU 0 has 7.5"),
    # several findings of one rule, and what one of two causes leaves
    ("allocator", ONE, "allocator=cuda_malloc_async memory_limit_mb=512 logical_devices=2", "error", "neither a"),
    ("memory_modes", ONE, "memory_growth=on memory_limit_mb=512 logical_devices=2", "error", "ignores memory growth"),
    ("plateau", NONE, "schedule=reduce_on_plateau warmup_steps=9 decay_steps=9", "error", "cannot follow a warm-up"),
    ("plateau", NONE, "plateau_patience=3 plateau_min_rate=0.1", "error", "no effect while train.schedule is constant"),
    ("clipping", TWO, "clip_norm=1 clip_value=1 strategy.kind=mirrored", "error", "one kind of clipping"),
    ("determinism", NONE, "xla=on deterministic=on deterministic_order=off checkpoint=9", "error", "Keras turns XLA"),
    ("without_effect", NONE, "separable=false model=mlp", "error", "mlp has no convolutions"),
    ("without_effect", NONE, "kernel_size=3 model=mlp blocks=2", "error", "mlp has a fixed depth"),
    ("shuffle", NONE, "shuffle=1 batch_size=2", "warning", "smaller than one batch"),
    ("strategy", TWO, "strategy.kind=one_device communication=nccl", "warning", "exchanges no gradients"),
    ("strategy", NONE, "communication=nccl strategy.devices=0", "error", "between GPUs only"),
    ("devices", NONE, "strategy.kind=multi_worker logical_devices=2 strategy.devices=0", "error", "takes all visible"),
    ("missing_gpus", TWO, "visible=5,5,GPU-9", "error", "there is no GPU 5"),
    ("micro_batches", TWO, "micro_batches=9 batch_size=8 on_oom=accumulate strategy.kind=mirrored xla=true", "error",
     "over several replicas"),
    ("optimizer", NONE, "optimizer=adam momentum=0.9 nesterov=true hold_steps=2", "error", "adam takes no momentum"),
    ("data_and_cache", NONE, "data=npz:/no/a.npz cache=of", "error", "no file /no/a.npz"),
    ("early_stop", NONE, "early_stop_patience=2 early_stop_min_delta=0.1", "error", "while train.early_stop is off"),
    ("keep_best", NONE, "keep_best=val_loss keep_best_count=3 validation_split=0", "error", "of the validation"),
    ("gpu_only", SILENT, "visible=none memory_limit_mb=1024", "note", "nothing without a GPU"),
    ("usable", machine(replace(FOUR_HOLD.gpus[0], prohibited=True)), "epochs=3", "error", "mode is PROHIBITED"),
    ("usable", machine(replace(FOUR_HOLD.gpus[0], sole_holder="b 2")), "epochs=3", "error", "b 2 has GPU 0 for itself"),
    ("usable", machine(replace(FOUR_HOLD.gpus[0], lost="it fell off the bus", prohibited=True)), "epochs=3", "error",
     "GPU 0: it fell off the bus"),
    ("allocation", given(EIGHT, SLURM_JOB_GPUS="0-6"), "epochs=3", "warning", "does not hide the others"),
    ("too_old", machine(gpu(0), gpu(1, (5, 2))), "visible=1", "error", "the chip is too old"),
]  # fmt: skip
LIMIT_FINE = [
    ("partitions", VOLTA, "memory_growth=off memory_limit_mb=16384"),
    ("partitions", VOLTA, "memory_growth=off memory_limit_mb=8192 logical_devices=2"),
    ("partitions", NONE, "logical_devices=1"),
    ("per_gpu", ONE, "per_gpu=1 visible=free:2"),
    ("xla", ONE, f"{WHOLE} samples=100 epochs=3 steps_per_epoch=1"),
    ("xla", ONE, f"{WHOLE} samples=96"),
    ("xla", ONE, f"{WHOLE} samples=100 one_batch=true"),
    ("xla", TWO, f"{WHOLE} samples=65 xla=true strategy.kind=mirrored"),
    ("usable", machine(replace(gpu(0), mig=True, memory_used_bytes=70 * GB)), "epochs=3"),
    ("missing_gpus", TWO, "visible=free:2"),
    ("missing_gpus", PARTED, "visible=free:1"),
    ("missing_gpus", SILENT, "visible=free:9"),
    ("missing_gpus", TWO, "visible=fits:1"),
    ("missing_gpus", TWO, "visible=fits:1 memory_growth=false memory_limit_mb=1000"),
    ("missing_gpus", TWO, "visible=free:1@88GB"),  # a tenth of the memory may be missing
    ("steps", NONE, "steps_per_epoch=4 steps_per_execution=4"),
    ("early_stop", NONE, "early_stop=loss epochs=6"),
    ("scaling", NONE, "learning_rate_scaling=linear strategy.kind=multi_worker"),  # the others are not known
    ("accumulation", NONE, "gradient_accumulation=1 epochs=1 steps_per_epoch=3"),
    ("strategy", TWO, "strategy.kind=one_device strategy.devices=1"),
    ("precision", machine(gpu(0, (7, 0))), "policy=mixed_float16"),
    ("precision", machine(gpu(0, (8, 0))), "policy=mixed_bfloat16"),
    ("gpu_only", TWO, "visible=free:1 memory_limit_mb=1024"),
    ("communication", TWO, "strategy.kind=mirrored communication=reduction_to_one_device"),
    ("devices", TWO, "strategy.kind=mirrored strategy.devices=0,1 logical_devices=2"),
    ("strategy", TWO, "strategy.kind=multi_worker communication=nccl logical_devices=2"),
    ("validation", NONE, f"validation=test {TEXT_ENTRY}"),
    ("micro_batches", TWO, "on_oom=halve strategy.kind=mirrored xla=true"),
]
OTHER_TRIGGERS = [*LIMIT_TRIGGERS, *GPU_TRIGGERS, *FIGURE_TRIGGERS, *FOLLOW_TRIGGERS, *SHARING_TRIGGERS]
OTHERS_FINE = [*LIMIT_FINE, *GPU_FINE, *FIGURE_FINE, *FOLLOW_FINE, *SHARING_FINE]
