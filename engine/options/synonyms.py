"""Other names of options: from other frameworks, TensorFlow's own calls, and everyday language.

Error texts, `gputui options WORD` and the form's search use them to find options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .catalogue import OptionInfo, nearest

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    word: keys
    for words, keys in (
        ("arch architecture network net backbone", ("workload.model",)),
        ("dataset data_dir train_data data_path", ("workload.data",)),
        ("norm bn batchnorm batch_norm layernorm layer_norm", ("workload.normalization",)),
        ("depth layers num_layers n_layers", ("workload.blocks",)),
        ("input_shape image_size img_size resolution", ("workload.shape",)),
        ("num_classes n_classes", ("workload.classes",)),
        ("num_samples n_samples", ("workload.samples",)),
        ("script program train_file build own", ("workload.entry",)),
        ("cwd chdir workdir working_dir", ("workload.folder",)),
        ("hparams hyperparameters params", ("workload.args",)),
        (
            "gpu gpus gpu_ids cuda cuda_visible_devices visible_devices device_ids cpu no_gpu accelerator",
            ("device.visible",),
        ),
        ("allow_growth set_memory_growth growth", ("device.memory_growth",)),
        (
            "memory_fraction gpu_memory_limit memory_limit gpu_memory gpu_mem per_process_gpu_memory_fraction",
            ("device.memory_limit_mb",),
        ),
        ("virtual_devices virtual_gpus logical_gpus", ("device.logical_devices",)),
        ("malloc malloc_async cuda_malloc gpu_allocator", ("device.allocator",)),
        ("numactl affinity cpu_affinity pinning taskset", ("device.numa",)),
        (
            "oom out_of_memory",
            ("run.on_oom", "input.batch_size", "precision.policy", "device.memory_growth", "device.memory_limit_mb"),
        ),
        (
            "memory vram mem",
            ("input.batch_size", "precision.policy", "device.memory_growth", "device.memory_limit_mb", "run.on_oom"),
        ),
        ("threads num_threads", ("device.inter_op_threads", "device.intra_op_threads", "input.private_threads")),
        ("inter_op inter_op_parallelism", ("device.inter_op_threads",)),
        ("intra_op intra_op_parallelism omp_num_threads", ("device.intra_op_threads",)),
        ("placement", ("device.log_placement",)),
        (
            "amp mixed mixed_precision fp16 bf16 float16 bfloat16 fp32 half half_precision dtype precision autocast",
            ("precision.policy",),
        ),
        ("allow_tf32 tensor_float_32 tensorfloat", ("precision.tf32",)),
        ("jit jit_compile torch_compile", ("compile.xla",)),
        ("compile_cache compilation_cache autotune_cache persistent_cache", ("compile.xla_cache",)),
        ("spe steps_per_loop steps_per_call", ("compile.steps_per_execution",)),
        ("interleave num_parallel_reads", ("input.parallel_reads",)),
        ("bs batch train_batch_size per_device_train_batch_size", ("input.batch_size",)),
        ("shuffle_buffer buffer_size shuffle_size", ("input.shuffle",)),
        (
            "workers num_workers n_workers autotune num_parallel_calls dataloader_num_workers loader",
            ("input.parallel_calls",),
        ),
        ("prefetch_factor prefetch_size buffer prefetch_buffer", ("input.prefetch",)),
        ("device_prefetch copy_to_device pin_memory non_blocking", ("input.prefetch_to_device",)),
        ("uint8 rescale rescaling normalize_on_device cast_on_device", ("input.cast",)),
        ("aug augmentation data_augmentation augmentations", ("input.augment",)),
        ("drop_last", ("input.drop_remainder",)),
        ("threadpool private_threadpool_size", ("input.private_threads",)),
        ("overfit_batch overfit_one_batch", ("input.one_batch",)),
        ("ddp dp distributed distribute data_parallel multi_gpu multigpu distribution", ("strategy.kind",)),
        ("all_reduce allreduce nccl cross_device_ops", ("strategy.communication",)),
        ("num_epochs n_epochs max_epochs ep", ("train.epochs",)),
        ("max_steps num_steps iterations iters steps", ("train.steps_per_epoch",)),
        ("opt optim", ("train.optimizer",)),
        ("lr rate base_lr", ("train.learning_rate",)),
        ("lr_scaling scale_lr linear_scaling scaling_rule auto_scale_lr", ("train.learning_rate_scaling",)),
        ("wd decoupled_weight_decay l2", ("train.weight_decay",)),
        ("scheduler lr_schedule lr_scheduler decay annealing", ("train.schedule",)),
        ("warmup lr_warmup num_warmup_steps", ("train.warmup_steps",)),
        (
            "grad_clip clip gradient_clipping clipnorm max_grad_norm grad_norm global_clipnorm",
            ("train.global_clip_norm", "train.clip_norm", "train.clip_value"),
        ),
        ("clipvalue", ("train.clip_value",)),
        (
            "gradient_accumulation_steps grad_accum accumulate_grad_batches accumulation_steps accumulate",
            ("train.gradient_accumulation", "train.micro_batches"),
        ),
        ("microbatch microbatches micro_batch micro_batch_size num_microbatches split_batch", ("train.micro_batches",)),
        ("random_seed random_state rng manual_seed", ("train.seed",)),
        ("determinism reproducible reproducibility enable_op_determinism", ("train.deterministic", "train.seed")),
        ("val_split val validation_data test_split holdout", ("train.validation_split",)),
        ("nan terminate_on_nan isnan inf", ("train.stop_on_nan", "train.nan_check_steps")),
        ("ckpt checkpoints checkpointing save_freq save_steps modelcheckpoint", ("run.checkpoint",)),
        ("keep_checkpoints save_total_limit max_to_keep", ("run.keep",)),
        ("save export_model saved_model", ("run.save_model",)),
        ("profiler trace tracing xprof nsight", ("run.profile",)),
        ("max_time time_limit limit walltime slurm", ("run.max_minutes",)),
        ("sigusr1 sigusr2 usr1 signal preemption preempt", ("run.stop_signal",)),
        ("timeout hang watchdog stall", ("run.hang_seconds",)),
        ("sampling_interval poll interval", ("run.sample_seconds",)),
    )
    for word in words.split()
}

_BY_KEY: Mapping[str, tuple[str, ...]] = {
    key: tuple(word for word, keys in SYNONYMS.items() if key in keys)
    for key in {key for keys in SYNONYMS.values() for key in keys}
}


def keys_of(word: str) -> tuple[str, ...]:
    """Return the keys of the options that have this other name; empty if there is none.

    Case, leading hyphens and a group in front of the name are ignored.
    """
    plain = word.strip().lstrip("-").lower().replace("-", "_").replace(" ", "_")
    return SYNONYMS.get(plain) or SYNONYMS.get(plain.rpartition(".")[2], ())


def synonyms_of(key: str) -> tuple[str, ...]:
    """Return the other names of an option by its key; empty if it has none."""
    return _BY_KEY.get(key, ())


def resolve_key(text: str, options: Iterable[OptionInfo]) -> str:
    """Return the key of an option such as `input.batch_size`, given as such or as a short name that only one group has.

    Other names (SYNONYMS) are not accepted. Raises KeyError with a sentence that names the nearest option.
    """
    options = tuple(options)
    keys = [info.key for info in options]
    if text in keys:
        return text
    short = [info.key for info in options if info.name == text]
    if len(short) == 1:
        return short[0]
    raise KeyError(f"unknown option{option_meant(text, options)}")


def option_meant(word: str, options: Iterable[OptionInfo]) -> str:
    """Return `, did you mean X?` with all options that an unknown word may mean.

    If there is none, return `; gputui options lists them all`.
    """
    options = tuple(options)
    name = word.strip().rpartition(".")[2]
    meant = keys_of(word) or tuple(info.key for info in options if info.name == name)
    if not meant:
        near = nearest(word, [info.key for info in options] + [info.name for info in options])
        meant = (near,) if near else ()
    if not meant:
        return "; gputui options lists them all"
    several = f"{', '.join(meant[:-1])} or " if len(meant) > 1 else ""
    return f", did you mean {several}{meant[-1]}?"
