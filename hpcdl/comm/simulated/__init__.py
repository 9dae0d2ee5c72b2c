"""The simulated machine: p ranks in this process, in virtual time, with every deadlock explained.

The model (Hockney 1994, extended by gamma): a message of n bytes is ready when both sides have posted it, and takes
`alpha + n beta` seconds from then. For so long it occupies the send port of its source and the receive port of its
destination. A port takes one message after the other, in the order in which they become ready; the two ports of one
message need not be busy in the same seconds, since the network holds bytes on their way, and the message is complete
when both are through with it. So k messages through one port take k times as long, in whatever order ranks post them:
who sends to both neighbours and receives from both pays 2 alpha on any number of ranks, and a port that waits for its
other side never holds up a third rank. `accumulate` takes gamma seconds per byte, and on a rank of `slow`
so many times as long, as does `compute`. Tensors that the ranks share are read and written one element at a time
(`shared_tensor`). The machine's own collectives take ceil(log2 p) messages, one after the other.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.comm.simulated.run import Simulation, simulate

__all__, __getattr__, __dir__ = exports(__name__, {"simulate": "run", "Simulation": "run"})
