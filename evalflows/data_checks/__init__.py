"""Dataset checks by Great Expectations, in a process of their own: its import takes seconds and 150 MB."""
