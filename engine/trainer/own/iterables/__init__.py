"""Data that is read by iterating over it: Python generators and functions, Grain's data sets, torch's DataLoader."""
