"""gputui through the front door: commands, real trainings, real processes."""
