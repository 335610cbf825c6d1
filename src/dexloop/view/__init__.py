"""Looking at what a run holds, in the browser."""
