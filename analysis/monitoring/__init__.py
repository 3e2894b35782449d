"""Watching production: rules look at closed windows, and incidents begin and end."""
