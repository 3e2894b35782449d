"""Checks of snapshots and results in SQL, expectations of specs by Great Expectations, and its Data Docs."""
