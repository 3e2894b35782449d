"""The local Prefect server: one per user and Prefect version, shared by all runs on this machine."""
