"""The HTML pages, for the dashboard and for single-file reports: they draw what reports and the store's views say."""
