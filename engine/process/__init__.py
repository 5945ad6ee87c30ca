"""The processes of a run: starting, watching and ending them, and finding out how they ended.

Starting: launch.py (an engine), resuming.py (an engine for an ended run), spawn.py (a trainer), fork_client.py (a
trainer that is forked). Watching: supervisor.py (the engine itself), time_limits.py (run.max_minutes, hangs),
live_diagnosis.py. Ending: ending.py (outcome and summary), known_failures.py, recovery.py (another trainer after lack
of memory or a failure of XLA), engine_failure.py.
"""
