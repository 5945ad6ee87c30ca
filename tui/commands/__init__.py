"""The commands of `gputui`, each in a file of its name."""
