"""The command line: one module per group of commands. Slow imports go inside the commands."""
