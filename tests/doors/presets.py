from gputui.engine.presets import (
    Preset, PresetError as presets_PresetError, defaults, paths, resolve, resolving, saving,
)
from gputui.engine.presets.preset import PresetError as preset_PresetError, Problem
from gputui.engine.presets.saving import SaveError
