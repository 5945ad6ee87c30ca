"""Measures whether a change of options really helps: short alternating trials of before and after, in new processes.
A proof has its own folder and process (`python -P -m gputui.engine.proof`); searches and sweeps are proofs, too.
"""
