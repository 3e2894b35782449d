"""What an application did in production: read from any instrumentation, as objects for mappers and evaluators."""
