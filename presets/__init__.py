"""The presets that ship with gputui, as YAML files."""
