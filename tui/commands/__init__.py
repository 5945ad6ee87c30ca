"""What the commands of `gputui` do."""
