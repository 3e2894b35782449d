"""Checks before a run: find mistakes before anything is written or paid."""
