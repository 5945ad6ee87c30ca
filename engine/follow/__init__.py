"""Followers: each is a process that writes the figures of a run to one target, such as MLflow, while the run goes on.
It reads the run's event files and nothing else, so that it can be started before, during and after the run, and killed
at any time: its place in the files is in the run folder (`follow/TARGET.json`), and no row is written twice.
"""
