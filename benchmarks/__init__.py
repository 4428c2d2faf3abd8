"""Speed against others, measured in one run: ``make bench``."""
