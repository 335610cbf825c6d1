"""Benchmarks: what dexloop measures of itself, with a committed baseline. `python -m benchmarks --list` names them."""
