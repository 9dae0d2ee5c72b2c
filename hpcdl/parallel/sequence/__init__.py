"""Sequence parallelism: the tokens of a sequence are split across ranks, for attention over more tokens than one rank
can hold.

`order` says which tokens are where; `ring` passes keys and values around (`blocks`), `fast_ring` does the same with
torch's kernel, and `ulysses` temporarily splits heads instead of tokens. For the sequence split between layers of
tensor parallelism, see `hpcdl.parallel.tensor.conjugate`.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.parallel.sequence.fast_ring import fast_ring_attention
    from hpcdl.parallel.sequence.order import ORDERS, positions
    from hpcdl.parallel.sequence.ring import ring_attention
    from hpcdl.parallel.sequence.ulysses import exchange, ulysses_attention

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "ORDERS": "order",
        "positions": "order",
        "ring_attention": "ring",
        "fast_ring_attention": "fast_ring",
        "ulysses_attention": "ulysses",
        "exchange": "ulysses",
    },
)
