"""The dashboard: pages and single-file reports that draw what reports and the store's views say.

It serves the pages over HTTP, on this machine unless it has a token, and stores people's labels.
"""
