"""Judge collected data: verdicts and intervals for cells and policies, and forecasts of further samples."""
