"""Paired differences: tests, intervals, power, sequences."""
