"""What a Python needs on its path to run a trainer without gputui being installed for it: this folder alone.

It holds the script that is started and a package gputui that leads to gputui's own source, and nothing else that is
installed beside gputui.
"""
