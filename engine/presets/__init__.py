"""Presets: reads YAML files into options and writes options back."""

from __future__ import annotations

from ..files.places import SHIPPED_PRESETS as SHIPPED
from ..files.places import named_presets
from ..files.places import user_presets_folder as user_folder
from .paths import find, in_current_folder
from .preset import Preset, PresetError
from .resolving import assemble, defaults, resolve, resolve_text

__all__ = [
    "SHIPPED", "Preset", "PresetError", "assemble", "defaults", "find", "in_current_folder", "named_presets", "resolve",
    "resolve_text", "user_folder",
]  # fmt: skip
