"""The only folder that a Python needs on its path to run a trainer, if gputui is not installed for this Python.

It holds the script that is started, and a package gputui that leads to gputui's own source. Other packages that are
installed next to gputui are not reached through it.
"""
