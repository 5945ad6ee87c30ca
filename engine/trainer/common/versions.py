"""The private names of Keras and TensorFlow that the trainer uses: all that may differ from one version to the next.

Tried with TensorFlow 2.18 to 2.21 and Keras 3.10 to 3.15 (`make test-versions`, docs/operations.md). Older versions
are refused before a trainer starts, with the reasons in engine/interpreter/supported_versions.py. A later one may lack
a name: then the training is refused, and the error names it.

Attributes of a model stay where they are used. They are the same in all of these versions: _call_has_training_arg,
_compile_loss and its _flat_losses, _compile_metrics, the build of both, _compute_loss, _aggregate_additional_loss,
_flatten_layers, _loss_tracker, EarlyStopping's _set_monitor_op and monitor_op, _symbolic_build, _maybe_symbolic_build,
_initialize, _shape and _dtype of a variable, _iterations and _distribution_strategy of an optimizer.

Deferred imports: those of `memory_limits` may fail, and then only its figure is missing.
"""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras

from ... import __version__
from ...interpreter import supported_versions
from .training_errors import TrainerError

TENSORFLOW = "tensorflow"

try:
    # Traces a call without computing it: keras.ops has no function for it.
    from keras.src.backend import compute_output_spec as compute_output_spec

    # Where Keras keeps the generator of keras.random without a seed, for each thread.
    from keras.src.backend.common.global_state import get_global_attribute as get_global_attribute
    from keras.src.backend.common.global_state import set_global_attribute as set_global_attribute

    # Which samples of a batch with a mask count. From its own module: keras.src.backend has it up to Keras 3.15,
    # and lacks it in the nightly builds of 3.16.
    from keras.src.backend.common.masking import get_keras_mask as get_keras_mask

    # Since Keras 3.8 a loss under a strategy is scaled by its replicas within compute_loss, and unscaled for the logs.
    from keras.src.losses.loss import unscale_loss_for_distribution as unscale_loss_for_distribution
    from keras.src.random.seed_generator import global_seed_generator as global_seed_generator

    # The batches that Keras' fit makes of arrays, and which of them it keeps back.
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter as ArrayDataAdapter
    from keras.src.trainers.data_adapters.array_data_adapter import can_convert_arrays as can_convert_arrays
    from keras.src.trainers.data_adapters.array_slicing import train_validation_split as train_validation_split

    # TensorFlow, imported at its first use: a fit on another backend is watched where it is not installed.
    from keras.src.utils.module_utils import tensorflow as tensorflow

    if (BACKEND := keras.config.backend()) == TENSORFLOW:
        # AutoGraph's rules for what it converts, and the module that writes what it has converted.
        from tensorflow.python.autograph.core import config
        from tensorflow.python.autograph.pyct import loader

        autograph_config, autograph_loader = config, loader

        # Which operations have a state outside of their inputs.
        from tensorflow.python.framework import op_def_registry

        # Whether the user's code has asked for deterministic operations.
        from tensorflow.python.framework.config import is_op_determinism_enabled as is_op_determinism_enabled
except ImportError as fault:
    newest = "TensorFlow {}.{} and Keras {}.{}".format(
        *supported_versions.NEWEST_TENSORFLOW, *supported_versions.NEWEST_KERAS
    )
    present = getattr(sys.modules.get(TENSORFLOW), "__version__", "of unknown version")
    raise TrainerError(
        "versions",
        f"gputui cannot train with TensorFlow {present} and Keras {keras.__version__}: {fault}",
        f"install {newest}, the newest that gputui has been tested with",
    ) from fault

# A constant of keras.src.random.seed_generator since Keras 3.13; up to 3.12 the same word stands in its functions
# (importing it from Keras 3.12 fails).
GLOBAL_SEED_GENERATOR = "global_seed_generator"
# The name of the global policy in keras/src/dtype_policies/dtype_policy.py. None: that of floatx.
DTYPE_POLICY = "dtype_policy"

# Up to Keras 3.10 on_train_batch_end gets the first step of an execution, since 3.11 the last
# (keras/src/trainers/epoch_iterator.py yields begin_step and end_step).
_TELLS_FIRST_STEP = tuple(int(number) for number in keras.__version__.split(".")[:2]) < (3, 11)


@contextlib.contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """A context in which these attributes of the owner are replaced. Inherited ones are reached again after it."""
    own = {name: vars(owner)[name] for name in attributes if name in vars(owner)}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in attributes:
            if name in own:
                setattr(owner, name, own[name])
            else:
                delattr(owner, name)


def of_packages() -> dict[str, str]:
    return {
        "gputui": __version__,
        "python": platform.python_version(),
        BACKEND: sys.modules[BACKEND].__version__,
        "keras": keras.__version__,
    }


def is_stateful(operation: str) -> bool:
    """Return True if operations of this type have a state outside of their inputs, or if the type is not known."""
    definition = op_def_registry.get(operation)
    return definition is None or bool(definition.is_stateful)


def ended_step(batch: int, steps_per_execution: int) -> int:
    """Return the index (from 0) in the epoch of the last step of an execution, from what on_train_batch_end gets."""
    return batch + steps_per_execution - 1 if _TELLS_FIRST_STEP else batch


_INITIALIZE = keras.Variable._initialize


def set_first_values(find: Callable[[str, str, list[int]], Any] | None) -> None:
    """`find` gets path, type and shape of each new variable of Keras; with None it has its own value."""

    def initialize(variable: keras.Variable, value: Any) -> None:
        shape = variable._shape if callable(value) else value.shape
        chosen = find(variable.path, variable._dtype, [*map(int, shape)]) if find is not None else None
        _INITIALIZE(variable, value if chosen is None else lambda: tensorflow.constant(chosen, variable._dtype))

    keras.Variable._initialize = initialize if find is not None else _INITIALIZE


def current_iterator(batches: Any) -> Any:
    """Return that of the epoch, if there is one; for data of unknown length it is a local of Keras' generator."""
    if (iterator := getattr(batches, "_current_iterator", None)) is not None:
        return iterator
    frame = getattr(getattr(batches, "_epoch_iterator", None), "gi_frame", None)
    return frame.f_locals.get("iterator") if frame is not None else None


def memory_limits() -> dict[str, int]:
    """Bytes that the allocator may take on each logical device, by full name; only the devices' attributes have it."""
    try:
        from tensorflow.python import pywrap_tfe
        from tensorflow.python.client import pywrap_tf_session as listing
        from tensorflow.python.eager import context

        devices = pywrap_tfe.TFE_ContextListDevices(context.context()._context_handle)
    except (ImportError, AttributeError, TypeError):
        return {}
    try:
        numbers = range(listing.TF_DeviceListCount(devices))
        return {listing.TF_DeviceListName(devices, n): int(listing.TF_DeviceListMemoryBytes(devices, n))
                for n in numbers}  # fmt: skip
    except (AttributeError, TypeError):
        return {}
    finally:
        pywrap_tfe.TF_DeleteDeviceList(devices)
