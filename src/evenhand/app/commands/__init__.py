"""One module per command, each with a click command named `command`; heavy imports go inside it."""
