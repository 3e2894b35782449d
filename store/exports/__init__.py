"""Exports for BI tools: every view of the store as a DuckDB file, Parquet or CSV files, or PostgreSQL tables."""
