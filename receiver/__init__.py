"""Receives traces and logs over HTTP, in OpenTelemetry's protocol, and stores them durably."""
