"""Finds options by their other names: from other frameworks, TensorFlow's own calls, and everyday language. An option
declares its `other_names`; words that stand for several options are listed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .catalogue import OptionInfo, nearest
from .groups import OPTIONS

# Words that stand for several options, the most usual option first.
_OF_SEVERAL: Mapping[str, tuple[str, ...]] = {
    "oom out_of_memory": (
        "run.on_oom", "input.batch_size", "precision.policy", "device.memory_growth", "device.memory_limit_mb",
    ),
    "memory vram mem": (
        "input.batch_size", "precision.policy", "device.memory_growth", "device.memory_limit_mb", "run.on_oom",
    ),
    "threads num_threads": ("device.inter_op_threads", "device.intra_op_threads", "input.private_threads"),
    "grad_clip clip gradient_clipping clipnorm max_grad_norm grad_norm global_clipnorm": (
        "train.global_clip_norm", "train.clip_norm", "train.clip_value",
    ),
    "gradient_accumulation_steps grad_accum accumulate_grad_batches accumulation_steps accumulate": (
        "train.gradient_accumulation", "train.micro_batches",
    ),
    "determinism reproducible reproducibility enable_op_determinism": ("train.deterministic", "train.seed"),
    "nan terminate_on_nan isnan inf": ("train.stop_on_nan", "train.nan_check_steps"),
}  # fmt: skip

ARGUMENTS = "workload.args"

# Other name -> keys of its options.
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    **{word: (info.key,) for info in OPTIONS for word in info.about.other_names},
    **{word: keys for words, keys in _OF_SEVERAL.items() for word in words.split()},
}

_BY_KEY: dict[str, tuple[str, ...]] = {}
for _word, _keys in SYNONYMS.items():
    for _key in _keys:
        _BY_KEY[_key] = (*_BY_KEY.get(_key, ()), _word)


def keys_of(word: str) -> tuple[str, ...]:
    """Return the options of which `word` is another name, whatever its case, leading hyphens and group are."""
    plain = word.strip().lstrip("-").lower().replace("-", "_").replace(" ", "_")
    return SYNONYMS.get(plain) or SYNONYMS.get(plain.rpartition(".")[2], ())


def synonyms_of(key: str) -> tuple[str, ...]:
    """Return the other names of an option by its key; empty if it has none."""
    return _BY_KEY.get(key, ())


def resolve_key(text: str, options: Iterable[OptionInfo]) -> str:
    """The full key for a key, for a name that only one group has, or for a text that `argument_of` accepts. KeyError
    names the nearest option.
    """
    if argument_of(text):
        return ARGUMENTS
    options = tuple(options)
    keys = [info.key for info in options]
    if text in keys:
        return text
    short = [info.key for info in options if info.name == text]
    if len(short) == 1:
        return short[0]
    raise KeyError(f"unknown option{option_meant(text, options)}")


def argument_of(text: str) -> tuple[str, ...]:
    """The names below `workload.args`, as in `workload.args.lr` or `args.head.units`, the outer one first."""
    names = text.removeprefix("workload.").split(".")
    return tuple(names[1:]) if names[0] == "args" and all(names) else ()


def option_meant(word: str, options: Iterable[OptionInfo]) -> str:
    """`, did you mean X?` with all options that an unknown word may mean, or where all are listed."""
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
