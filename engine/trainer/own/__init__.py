"""A user's own training (workload.entry): their code is run, what it hands over is checked, and made a training."""
