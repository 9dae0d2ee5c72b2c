"""How much memory a rank holds, by kind, counted from the storages of its tensors: the proof that sharding works.

    with meter(model, optimizer) as m:
        step()
    m.live      bytes now, by kind: m.live["gradients"], m.live.total
    m.peak      the same at the moment when the total was highest
    m.highest   the most that each kind had, each at its own moment

- A storage counts once, however many views it has, from the operation that creates it to the end of its last tensor;
  its `resize_` counts at once. Tensors from before the meter count from the start where they are given to it (modules,
  optimizers, tensors), else from the first operation that takes them.
- Kinds: "parameters" and "buffers" of the modules given; "gradients", what their `.grad` holds; "optimizer states";
  "activations", made while autograd records (recomputation included); "temporaries", made while it does not: in a
  backward pass, an update, under no_grad; "others", which no operation under the meter created. `m.mark(kind, tensors)`
  sets the kind explicitly.
- Each thread has its own count, and so has each simulated rank. CPU and CUDA both count requested bytes, before an
  allocator rounds them up. Memory that an operator allocates and frees internally is not seen.
- The meter costs a few microseconds per operation while it is on.

`saved()` counts what autograd keeps for the backward pass.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
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
