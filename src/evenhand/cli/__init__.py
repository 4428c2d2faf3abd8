"""The command line: a module per group of commands; heavy imports go inside the commands."""
