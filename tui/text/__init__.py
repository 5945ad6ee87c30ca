"""Figures as text."""
