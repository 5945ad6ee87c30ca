"""Notices: what is sent by a command or to an address when a run, a measurement or the queue has ended."""
