"""Random numbers and buffers of a forward pass, saved so that it can be repeated exactly."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import nn

Buffer = tuple[nn.Module, str]  # the module that has it, and its name there


def buffers_of(module: nn.Module) -> list[Buffer]:
    """All buffers inside."""
    return [(inner, name) for inner in module.modules() for name, x in inner._buffers.items() if x is not None]


class Before:
    """The generator's state and `buffers` as they were before a forward pass."""

    def __init__(self, buffers: Sequence[Buffer]):
        self._state = torch.get_rng_state()
        self._buffers = [(owner, name, x := owner.get_buffer(name), x._version, x.clone()) for owner, name in buffers]

    def changed(self) -> list[Buffer]:
        """Return the buffers that the forward pass has changed or replaced; the others need not be kept."""
        self._buffers = [
            (owner, name, x, version, copy)
            for owner, name, x, version, copy in self._buffers
            if owner._buffers[name] is not x or x._version != version
        ]
        return [(owner, name) for owner, name, *_ in self._buffers]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Restore the earlier random state and buffers inside the block, and the current ones afterwards."""
        now = [(owner, name, owner._buffers[name]) for owner, name, *_ in self._buffers]
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._state)
            try:
                for owner, name, *_, copy in self._buffers:
                    owner._buffers[name] = copy
                yield
            finally:
                for owner, name, x in now:
                    owner._buffers[name] = x
