"""How much memory a rank holds, by kind, counted from the storages of its tensors: what proves that sharding shards.

    with meter(model, optimizer) as m:
        step()
    m.live      bytes now, by kind: m.live["gradients"], m.live.total
    m.peak      the same at the moment when the total was highest
    m.highest   the most that each kind had, each at its own moment

- A storage counts once, whatever views there are, from the operation that makes it to the end of its last tensor; its
  `resize_` counts at once. Tensors from before the meter count from the start where they are given to it (modules,
  optimizers, tensors), else from the first operation that takes them.
- Kinds: "parameters" and "buffers" of the modules given; "gradients", what their `.grad` holds; "optimizer states";
  "activations", made while autograd records (recomputation included); "temporaries", made while it does not: in a
  backward pass, an update, under no_grad; "others", which no operation made under the meter. `m.mark(kind, tensors)`
  says better.
- Each thread has its own account, so each simulated rank does. CPU and CUDA alike: bytes asked for, not what an
  allocator rounds them to. What an operator takes and frees inside itself is not seen.
- On, it costs some microseconds per operation; off, nothing.

`saved()` counts what autograd keeps for the backward pass.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.memory.live_bytes import KINDS, Bytes, MemoryMeter, meter
    from hpcdl.memory.saved_tensors import saved

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "KINDS": "live_bytes",
        "Bytes": "live_bytes",
        "MemoryMeter": "live_bytes",
        "meter": "live_bytes",
        "saved": "saved_tensors",
    },
)
