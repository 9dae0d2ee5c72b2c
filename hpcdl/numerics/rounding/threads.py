"""How many threads torch may use, for a while."""

import contextlib

import torch


@contextlib.contextmanager
def one_thread():
    """Torch on one thread, and then on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
