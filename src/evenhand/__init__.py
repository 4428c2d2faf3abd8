"""evenhand picks one policy for everyone, fairly and with proof."""

__version__ = "0.1.0"
