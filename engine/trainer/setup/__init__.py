"""Sets up what a training needs: environment, devices, strategy, model, optimizer."""
