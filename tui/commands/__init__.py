"""The commands of `gputui`, each in the file of its name."""
