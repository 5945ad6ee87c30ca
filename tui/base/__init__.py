"""Used by every screen: the application's interface, keys, themes, settings, error messages and exit codes."""
