"""Trains a user's own model and data (workload.entry): runs their code, checks what it returns, and builds the
training.
"""
