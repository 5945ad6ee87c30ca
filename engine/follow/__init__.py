"""Followers: each is a process that writes the figures of a run to one target, such as MLflow, while the run goes on.

A follower reads the run's event files and nothing else, so that it can be started before, during and after the run, and
killed at any time: its place in the files is in the run folder (`follow/TARGET.json`), and no row is written twice.

    following.py      the work of a follower: read, write, note the place; wait and retry if the target fails
    batches.py        reads the events in batches that can be read again in the same way
    points.py         makes rows of figures from the events, numbered over the whole run
    place.py          the place that a follower has reached
    start.py          starts followers, and reads how far they are
    targets.py        the table of targets, their libraries and the pip lines
    to_*.py           one target each; tfevents.py is the format of TensorBoard's files
"""
