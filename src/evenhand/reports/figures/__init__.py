"""Figures: pure functions of rows, each drawn on a canvas of a given width."""
