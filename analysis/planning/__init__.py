"""What a run costs, and how many examples it needs."""
