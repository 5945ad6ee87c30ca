"""The files that `gputui init` writes, as a start for a user's own code."""
