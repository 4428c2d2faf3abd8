"""Plain rows first, then figures, then the document."""
