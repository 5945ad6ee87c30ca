"""Sweeps: trainings of a preset with many values of some options, and the proof which of them learns best.
A sweep is a proof folder with a process of its own; its trials are ordinary runs that the queue starts.
"""
