"""Calls in a user's code that set something globally in TensorFlow or Keras which an option of gputui sets.

Examples are tf.config.experimental.set_memory_growth and keras.mixed_precision.set_global_policy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from ..measure.run_report import RunReport
from .user_code import UserCode


@dataclass(frozen=True)
class Setting:
    """A function of a module that sets something globally, and the option with the same effect.

    `obeyed`: a call of the function is carried out. Otherwise it has no effect in a run.
    """

    place: str
    name: str
    option: str
    obeyed: bool = False


SETTINGS = (
    Setting("tensorflow.config.threading", "set_intra_op_parallelism_threads", "device.intra_op_threads"),
    Setting("tensorflow.config.threading", "set_inter_op_parallelism_threads", "device.inter_op_threads"),
    Setting("tensorflow.config.experimental", "set_memory_growth", "device.memory_growth"),
    Setting("tensorflow.config.experimental", "set_virtual_device_configuration", "device.memory_limit_mb"),
    Setting("tensorflow.config", "set_logical_device_configuration", "device.memory_limit_mb"),
    Setting("tensorflow.config", "set_visible_devices", "device.visible"),
    Setting("tensorflow.config.experimental", "set_visible_devices", "device.visible"),
    Setting("tensorflow.config.optimizer", "set_jit", "compile.xla"),
    Setting("tensorflow.config.experimental", "enable_tensor_float_32_execution", "precision.tf32", obeyed=True),
    Setting("tensorflow.config.experimental", "enable_op_determinism", "train.deterministic", obeyed=True),
    Setting("keras.mixed_precision", "set_global_policy", "precision.policy", obeyed=True),
    Setting("keras.mixed_precision", "set_dtype_policy", "precision.policy", obeyed=True),
    Setting("keras.config", "set_dtype_policy", "precision.policy", obeyed=True),
)


@dataclass
class GlobalSettings:
    """A context around the user's code that records calls of the functions in SETTINGS.

    A recorded call is carried out only if its setting is `obeyed`. The method `warn` then writes a warning for each
    call from the user's files. The warning names the option to set instead.
    """

    _calls: dict[tuple[str, str, int], Setting] = field(default_factory=dict)
    _replaced: list[tuple[Any, str, Any]] = field(default_factory=list)

    def __enter__(self) -> GlobalSettings:
        for setting in SETTINGS:
            for module in _modules(setting.place):
                if hasattr(module, setting.name):
                    original = getattr(module, setting.name)
                    self._replaced.append((module, setting.name, original))
                    setattr(module, setting.name, self._noting(setting, original))
        return self

    def __exit__(self, kind: Any, fault: Any, trace: Any) -> None:
        for module, name, original in self._replaced:
            setattr(module, name, original)
        self._replaced.clear()

    def _noting(self, setting: Setting, original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> None:
            caller = sys._getframe(1)
            self._calls[setting.name, caller.f_code.co_filename, caller.f_lineno] = setting
            if setting.obeyed:
                original(*arguments, **named)

        return noted

    def warn(self, code: UserCode, report: RunReport) -> None:
        for (name, file, line), setting in self._calls.items():
            if not code.owns_file(file):
                continue
            effect = f"takes effect, and the run's {setting.option} does not" if setting.obeyed else "does nothing here"
            place = f"{code.name_of(file)}:{line}"
            report.warn(
                "set_by_option",
                f"{name} in {place} {effect}: gputui sets this up before your code runs",
                f"set {setting.option} in the preset and remove the call",
                setting.option,
            )


def _modules(place: str) -> list[Any]:
    """Return the module with the name `place`, and its copies under other public names: tf.keras has its own copies of
    Keras' modules.
    """
    names = place.split(".")
    module: Any = tf if names[0] == "tensorflow" else keras
    for name in names[1:]:
        module = getattr(module, name)
    copies = [module]
    if names[0] == "keras":
        copies += [sys.modules[name] for name in (f"keras._tf_keras.{place}",) if name in sys.modules]
    return copies
