"""The commands of `gputui`: functions with their options and help, in modules that are loaded when they are named."""
