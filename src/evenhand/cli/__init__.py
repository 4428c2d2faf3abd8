"""The command line, the HTTP service and the dashboard.

One module per command, each with a click command named `command`; heavy imports go inside it.
"""
