"""Reports: tables, pages and sentences. No statistics."""
