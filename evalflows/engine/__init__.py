"""Runs items and judgements; knows no Prefect."""
