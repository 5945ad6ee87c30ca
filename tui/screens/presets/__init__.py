"""The presets: the list of their files, saving them, and editing them in a text editor."""
