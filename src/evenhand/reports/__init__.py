"""Reports: rows, figures made from rows, and pages made from figures and sentences."""
