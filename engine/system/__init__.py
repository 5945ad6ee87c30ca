"""Services of the operating system: identities of processes, locks, signals, and a clock that ignores changes of the
date.
"""
