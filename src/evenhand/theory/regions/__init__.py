"""One file per kind of region: entering it, leaving it, beating the best policy from inside it."""
