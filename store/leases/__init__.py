"""One process at a time works on an experiment or a comparison."""
