"""Serving HTTP on this machine: a socket, its signals, and a clean end."""
