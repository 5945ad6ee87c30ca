"""Sets up the parts of a training: environment, devices, strategy, model, optimizer."""
