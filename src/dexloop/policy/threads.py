"""How many threads a small network gets: one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Lets torch compute on one thread meanwhile: a second one gains little for so small a network, and where cores are
    busy it waits for the first."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
