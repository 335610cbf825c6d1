import os
import subprocess
import sys

import numba
import numpy as np
import pytest

from dexloop.vision.cores import on_all_cores


def count(seen: np.ndarray, thread: int, threads: int) -> None:
    for i in range(thread, len(seen), threads):
        seen[i] += 1


@pytest.mark.parametrize("threads", [1, numba.get_num_threads()])
def test_each_row_is_done_once(threads):
    before = numba.get_num_threads()
    numba.set_num_threads(threads)
    try:
        seen = np.zeros(1001)
        on_all_cores(count, seen)
    finally:
        numba.set_num_threads(before)
    assert (seen == 1).all()


def test_what_goes_wrong_in_a_thread_is_not_lost():
    def fail(thread: int, _threads: int) -> None:
        if thread == 0:
            raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        on_all_cores(fail)


FORKED = """
import os, signal, time
import numpy as np
from dexloop.vision.cores import on_all_cores

def count(seen, thread, threads):
    for i in range(thread, len(seen), threads):
        seen[i] += 1

on_all_cores(lambda thread, threads: time.sleep(0.05))  # so that there are all threads, which the child will not have
child = os.fork()
if child == 0:
    signal.alarm(10)  # rather than wait forever
    seen = np.zeros(10)
    on_all_cores(count, seen)
    os._exit(0 if (seen == 1).all() else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_threads_of_its_own():
    # In a process of its own: others that were imported here mind forks.
    subprocess.run([sys.executable, "-c", FORKED], check=True, env={**os.environ, "NUMBA_NUM_THREADS": "2"})
