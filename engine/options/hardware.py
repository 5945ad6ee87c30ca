"""Which devices compute (`device`), in what precision, compiled how, and several of them together."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from . import gpu_choice
from .catalogue import Group, Limits, option

Threads = Literal["auto"] | Annotated[int, Limits(ge=1, le=4096)]
XLA_FLAG = re.compile(r"--xla_[a-z0-9_]+(=\S*)?")
GpuName = Annotated[int, Limits(ge=0, le=1023)] | Annotated[str, Limits(pattern=r"^(GPU|MIG)-[0-9A-Za-z/-]+$")]
GpuChoice = Annotated[str, Limits("free:N, fits:N", pattern=gpu_choice.PATTERN)]


def _comma_list(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if isinstance(value, str) and value not in ("all", "none") and not value.startswith(("free:", "fits:")):
        parts = [part.strip() for part in value.split(",")]
        return [int(part) if part.isdigit() else part for part in parts]
    return value


@dataclass(frozen=True)
class Device(Group):
    """Which devices TensorFlow may use, and how it takes their memory."""

    visible: Literal["all", "none"] | GpuChoice | list[GpuName] = option(
        "all",
        "GPUs that TensorFlow may use: all (of the job), none (the CPU trains), a list of UUIDs or of indices as in "
        "nvidia-smi (PCI bus order), free:N (N that nobody uses) or fits:N (N with enough free memory), with @24GB or "
        "@A100 for memory or model",
        call="CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER=PCI_BUS_ID",
        helps="several people can share a machine; none compares GPU with CPU",
        examples=("free:1", "free:2", "fits:1"),
        essential=15,
        label="GPUs",
        other_names="gpu gpus gpu_ids cuda cuda_visible_devices visible_devices device_ids cpu no_gpu accelerator",
        reads=_comma_list,
    )
    memory_growth: Literal["auto"] | bool = option(
        "auto",
        "take GPU memory as it is needed, instead of nearly all of it at the start; auto: unless memory_limit_mb or "
        "logical_devices is set",
        call="tf.config.experimental.set_memory_growth",
        helps="other programs can use the rest of the memory, and nvidia-smi shows what is needed",
        hurts="memory can fragment; cannot be combined with memory_limit_mb or logical_devices",
        gpu_only=True,
        essential=16,
        not_exported="TensorFlow cannot combine growth with device.memory_limit_mb or device.logical_devices",
        other_names="allow_growth set_memory_growth growth",
    )
    memory_limit_mb: Annotated[int, Limits(ge=64, le=10_000_000)] | None = option(
        None,
        "the most memory that TensorFlow may take on each GPU, or on each partition of one",
        call="tf.config.LogicalDeviceConfiguration(memory_limit=)",
        helps="several trainings share one GPU safely",
        hurts="CUDA and cuDNN take some hundred MB in addition",
        unit="MB",
        gpu_only=True,
        other_names="memory_fraction gpu_memory_limit memory_limit gpu_memory gpu_mem per_process_gpu_memory_fraction",
    )
    logical_devices: int = option(
        1,
        "partitions of each GPU; on a machine without a GPU, of the CPU",
        call="tf.config.set_logical_device_configuration",
        helps="tries a strategy for several GPUs on one device",
        hurts="the partitions share one device: nothing gets faster",
        ge=1,
        le=16,
        essential=17,
        other_names="virtual_devices virtual_gpus logical_gpus",
    )
    allocator: Literal["default", "cuda_malloc_async"] = option(
        "default",
        "allocator of GPU memory: default (TensorFlow), or cuda_malloc_async (the CUDA driver)",
        call="TF_GPU_ALLOCATOR",
        helps="cuda_malloc_async if batches of changing shapes fragment the memory",
        hurts="cuda_malloc_async cannot be combined with memory_limit_mb or logical_devices",
        gpu_only=True,
        other_names="malloc malloc_async cuda_malloc gpu_allocator",
    )
    inter_op_threads: Threads = option(
        "auto",
        "threads that run independent operations at the same time",
        call="tf.config.threading.set_inter_op_parallelism_threads",
        helps="a smaller number if other trainings use the CPU: auto takes all cores, or the CPU limit of the "
        "container",
        hurts="more threads than cores wait for each other",
        unit="threads",
        other_names="inter_op inter_op_parallelism",
    )
    intra_op_threads: Threads = option(
        "auto",
        "threads that share one operation on the CPU",
        call="tf.config.threading.set_intra_op_parallelism_threads",
        helps="a smaller number leaves CPU for the input pipeline; auto takes all cores, or the CPU limit of the "
        "container",
        hurts="with too few, operations on the CPU are slower",
        unit="threads",
        other_names="intra_op intra_op_parallelism omp_num_threads",
    )
    gpu_thread_mode: Literal["global", "gpu_shared", "gpu_private"] = option(
        "global",
        "host threads that launch the kernels of a GPU: global (those of all operations), gpu_shared (threads for all "
        "GPUs together) or gpu_private (threads for each GPU)",
        call="TF_GPU_THREAD_MODE",
        helps="with gpu_private a busy input pipeline does not delay kernel launches",
        hurts="gpu_private takes gpu_thread_count threads for each GPU from the other work of the host",
        gpu_only=True,
    )
    gpu_thread_count: Literal["auto"] | Annotated[int, Limits(ge=1, le=64)] = option(
        "auto",
        "number of launching threads: for each GPU with gpu_thread_mode gpu_private, for all GPUs with gpu_shared; "
        "auto: 2",
        call="TF_GPU_THREAD_COUNT",
        helps="1 leaves the most CPU to the input pipeline; more helps if independent operations run on one GPU",
        hurts="more threads than free CPU cores delay each other",
        unit="threads",
        gpu_only=True,
    )
    numa: Literal["auto", "off"] = option(
        "auto",
        "auto: on a machine with several NUMA nodes, pin the trainer to the CPUs of the node that the training GPUs "
        "are connected to, if it is the same for all and has at least half of the usable CPUs; off: use all CPUs",
        call="nvmlDeviceGetCpuAffinity, os.sched_setaffinity",
        helps="batches are copied to the GPU from memory of its own node",
        hurts="the input pipeline has only the CPUs of one node; set off if it needs more",
        gpu_only=True,
        not_exported="gputui asks the driver for the GPU's NUMA node; in a script use numactl --cpunodebind=N",
        other_names="numactl affinity cpu_affinity pinning taskset",
    )
    log_placement: bool = option(
        False,
        "write the device of every operation into the run's log",
        call="tf.debugging.set_log_device_placement",
        helps="shows which operations run on the CPU although there is a GPU",
        hurts="a long log, and slower first steps",
        other_names="placement",
    )

    @property
    def divided(self) -> list[str]:
        """The set options that limit or split each GPU's memory, which TensorFlow cannot combine with growth."""
        used = {"memory_limit_mb": self.memory_limit_mb is not None, "logical_devices": self.logical_devices > 1}
        return [f"device.{name}" for name, is_used in used.items() if is_used]

    @property
    def choice(self) -> gpu_choice.GpuChoice | None:
        return gpu_choice.parse(self.visible)

    @property
    def grows(self) -> bool:
        """True if GPU memory is taken as it is needed. `auto` means True unless an option in `divided` is set."""
        return not self.divided if self.memory_growth == "auto" else self.memory_growth


@dataclass(frozen=True)
class Precision(Group):
    """In what number formats the model computes."""

    learning = "other number formats round differently"

    policy: Literal["float32", "mixed_float16", "mixed_bfloat16"] = option(
        "float32",
        "number format of the layers' computation; variables stay float32, and the last layer of gputui's own models; "
        'in code of your own, give the last layer dtype="float32"',
        call="keras.mixed_precision.set_global_policy",
        helps="mixed_float16 from compute capability 7.0, mixed_bfloat16 from 8.0: tensor cores, half the memory",
        hurts="float16 needs loss scaling, which skips steps that overflow; small models can get slower",
        essential=10,
        label="precision",
        other_names="amp mixed mixed_precision fp16 bf16 float16 bfloat16 fp32 half half_precision dtype precision "
        "autocast",
    )
    tf32: bool = option(
        True,
        "float32 matrix products use TensorFloat-32 on Ampere GPUs and later",
        call="tf.config.experimental.enable_tensor_float_32_execution",
        helps="matrix products of float32 models use the tensor cores",
        hurts="products keep 10 bits of mantissa instead of 23",
        gpu_only=True,
        other_names="allow_tf32 tensor_float_32 tensorfloat",
    )


@dataclass(frozen=True)
class Compile(Group):
    """How the training step is compiled and called."""

    xla: Literal["auto"] | bool = option(
        "auto",
        "compile the training step with XLA; auto: on one GPU without a strategy, as Keras does, if XLA supports the "
        "chip and all layers, and if it fails the run continues without XLA; a model that your own code has compiled "
        "keeps its jit_compile",
        call="model.compile(jit_compile=)",
        helps="fuses many small operations into few kernels",
        hurts="the first step takes seconds to minutes, again for each new shape; some models get slower",
        essential=11,
        other_names="jit jit_compile torch_compile",
    )
    steps_per_execution: int = option(
        1,
        "steps in one call of the graph, without Python between them",
        call="model.compile(steps_per_execution=)",
        helps="small models, if Python between the steps takes about as long as a step",
        hurts="a stop waits until the call has ended",
        unit="steps",
        ge=1,
        le=10_000,
        essential=12,
        other_names="spe steps_per_loop steps_per_call",
    )
    recompute: bool = option(
        False,
        "keep only a few activations of each step, and compute the others again for the gradients (gradient "
        "checkpointing), in Functional and Sequential models",
        call="tf.recompute_grad",
        helps="a batch, or a model, for which memory is too small: deep models need a fraction of it for activations",
        hurts="each step computes most of the model once more, which takes up to a third longer",
        other_names="gradient_checkpointing checkpointing remat rematerialization activation_checkpointing",
    )
    xla_flags: Annotated[str, Limits(max_length=2000)] | None = option(
        None,
        "XLA flags such as --xla_gpu_autotune_level=2, separated by spaces, added to those in XLA_FLAGS",
        call="XLA_FLAGS",
        helps="the only way to set command buffers, autotuning levels and dumps of compiled programs",
        hurts="a flag that this TensorFlow does not know ends the run at its first step",
        checks=lambda value: all(map(XLA_FLAG.fullmatch, value.split())),
    )
    xla_cache: Literal["auto"] | bool = option(
        "auto",
        "cache XLA's compiled programs and autotuning results in gputui's home, for later runs on the same chip; auto: "
        "on a GPU only autotuning results, until a run with true has shown that compiled programs can be loaded",
        call="--tf_xla_persistent_cache_directory, --xla_gpu_per_fusion_autotune_cache_dir",
        helps="a second run of the same model starts sooner, and so does each trial of a proof",
        hurts="takes some MB of disk for each model and batch shape; with true a run fails if a compiled program "
        "cannot be written or loaded, and the next one starts without the cache",
        not_exported="the cache of XLA's programs is in gputui's home; the script has none",
        other_names="compile_cache compilation_cache autotune_cache persistent_cache",
    )


@dataclass(frozen=True)
class Strategy(Group):
    """Several devices together."""

    kind: Literal["single", "one_device", "mirrored", "multi_worker"] = option(
        "single",
        "single (no strategy), one_device, mirrored (the same model on several GPUs, on partitions of a GPU, or on "
        "partitions of the CPU as a test), multi_worker (the same on several machines: docs/clusters.md)",
        call="tf.distribute",
        helps="mirrored: the GPUs share each step, and gputui scaling measures the gain; multi_worker: more GPUs than "
        "one machine has",
        hurts="each step waits for the slowest replica and for the exchange of gradients; the global batch grows with "
        "the replicas (train.learning_rate_scaling)",
        not_offered={
            "central_storage": "under Keras 3 it reports wrong metrics and refuses batch normalisation; use mirrored",
            "parameter_server": "Keras 3 cannot fit with it, and it needs a coordinator program; use mirrored",
        },
        essential=18,
        label="strategy",
        learning="the global batch grows with the number of replicas",
        other_names="ddp dp distributed distribute data_parallel multi_gpu multigpu distribution",
    )
    devices: Literal["all"] | list[Annotated[int, Limits(ge=0, le=1023)]] = option(
        "all",
        "the visible devices (or partitions) that train, by their position",
        call="tf.distribute.MirroredStrategy(devices=)",
        helps="measures how the speed grows with the number of GPUs",
        hurts="the other GPUs do not speed up this training",
        not_exported="strategy.kind=single takes the first device",
        reads=_comma_list,
    )
    communication: Literal["auto", "nccl", "ring", "hierarchical_copy", "reduction_to_one_device"] = option(
        "auto",
        "how replicas exchange gradients: with mirrored auto, nccl, hierarchical_copy or reduction_to_one_device, with "
        "multi_worker auto, nccl or ring (gRPC over the network)",
        call="tf.distribute.MirroredStrategy(cross_device_ops=), tf.distribute.experimental.CommunicationOptions",
        helps="reduction_to_one_device if the GPUs have no NVLink between them; hierarchical_copy on a DGX-1, for "
        "which TensorFlow made it",
        hurts="nccl works between GPUs only",
        not_exported="only strategy.kind=mirrored exchanges gradients",
        other_names="all_reduce allreduce nccl cross_device_ops",
    )
