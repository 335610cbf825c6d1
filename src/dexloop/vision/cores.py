"""Work shared out to all cores."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba


def on_all_cores(part: Callable[..., None], *args: object) -> None:
    """Calls `part(*args, thread, threads)` in each thread.

    For functions that numba compiles with `nogil`; each call does its share of the rows. With numba's own `prange` they
    would take twice as long to compile.
    """
    threads = numba.get_num_threads()
    if threads == 1:
        part(*args, 0, 1)
        return
    for work in [_pool(os.getpid()).submit(part, *args, thread, threads) for thread in range(threads)]:
        work.result()


@functools.cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """Returns threads of this process: those of a parent are not there after a fork."""
    return ThreadPoolExecutor(os.cpu_count(), "cores")
