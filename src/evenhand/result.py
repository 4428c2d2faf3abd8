"""Result: the base class of the results that evenhand returns.

The content comes from `evenhand.reports.display`, which is imported when a result is shown: this is the one
import that points upwards, and pyproject.toml names it as an exception to the layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Result:
    """A value with a one-screen repr, an HTML form for notebooks, a data frame and a figure."""

    def __repr__(self) -> str:
        from evenhand.reports import display

        return display.text(self)

    def _repr_html_(self) -> str:
        """Return the answer in words, the figure and the table as HTML, for a notebook."""
        from evenhand.reports import display

        return display.html(self)

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame, or a polars one where pandas is not installed.

        Raises
        ------
        BadInput
            If neither pandas nor polars is installed.
        """
        from evenhand.reports import display

        return display.frame(self)

    def plot(self, ax: Axes | None = None) -> Figure:
        """Draw the main figure, on the given matplotlib axes or on a new figure, and return the figure.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. The axes are cleared of ticks and frame; the drawing is scaled to fit.

        Returns
        -------
        matplotlib.figure.Figure
            The figure that was drawn on.
        """
        from evenhand.reports import display

        return display.figure(self, ax)
