"""The simulated machine: p ranks in this process, in virtual time, with every deadlock explained.

The model (Hockney 1994, extended by gamma): a message of n bytes is ready when both sides have posted it, and takes
`alpha + n beta` seconds from then. During that time it occupies the send port of its source and the receive port of its
destination. A port takes one message after another, in the order in which they become ready; the two ports of one
message need not be busy at the same time, since the network holds bytes in flight, and the message is complete when
both have finished with it. So k messages through one port take k times as long, in whatever order ranks post them. A
rank that sends to both neighbours and receives from both pays 2 alpha on any number of ranks, and a port that waits for
its other side never delays a third rank. `accumulate` takes gamma seconds per byte. On a rank in `slow`, `accumulate`
and `compute` take longer by that rank's factor. Tensors that the ranks share are read and written one element at a time
(`shared_tensor`). The machine's own collectives take ceil(log2 p) messages, one after another.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.comm.simulated.run import Simulation, simulate

__all__, __getattr__, __dir__ = exports(__name__, {"simulate": "run", "Simulation": "run"})
