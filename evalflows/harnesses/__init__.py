"""Results that other harnesses wrote: each format is read into the same records."""
