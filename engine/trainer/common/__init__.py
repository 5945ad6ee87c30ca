"""What all parts of the trainer share: faults, being asked to stop, the end of the process."""
