"""The HTTP service and its dashboard: one process, one journal, many experiments."""
