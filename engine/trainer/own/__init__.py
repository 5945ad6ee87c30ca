"""Trains a user's own model and data (workload.entry): runs their code, checks the returned objects, and builds the
training from them.
"""
