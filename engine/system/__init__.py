"""What the operating system gives: identities of processes, locks, signals, and a clock that nobody sets."""
