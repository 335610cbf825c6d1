"""The one-file HTML report and the figures in it."""
