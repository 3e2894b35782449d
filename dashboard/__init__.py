"""The dashboard: serves the pages over HTTP, on this machine unless it has a token, and stores people's labels."""
