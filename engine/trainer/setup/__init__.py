"""What a training is built of: environment, devices, strategy, model, optimizer."""
