"""Services of the operating system: processes, locks, signals, and a clock that ignores changes of the date."""
