"""The parts that every screen uses: the application's interface, keys, themes, settings, error messages and exit
codes."""
