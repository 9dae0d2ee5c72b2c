"""Data-parallel training: every rank has the whole model and part of each batch.

Begin with `plain`: the whole idea in one sitting. `naive` is a step without overlap: after backward, one all-reduce
averages all gradients. `bucketed` combines gradients into
messages of a size you choose; `overlapped` sends them during backward: `DistributedDataParallel`. `tuning` finds the
buckets that suit model and network; `agreement` compares models before the first step, `buffers` keeps running means
equal, `sampler` distributes the data. Training programs that use these are in `hpcdl.training`.

The way of one gradient, from `loss.backward()` to a message between two processes:

1. `ddp/overlapped.py`: `DistributedDataParallel` wraps the model, counts samples in `forward`, and owns a `Reducer`.
2. `ddp/reducer.py`: autograd calls the hook of a parameter when its gradient is final (`_gradient_is_in`);
   `_launch` hands every bucket that is now full to the background.
3. `ddp/bucketed.py`: `Bucket.put_in` copies the gradient into the bucket's flat buffer; `Bucket.reduce` calls the
   all-reduce on that buffer.
4. `comm/background.py`: a thread calls `Reducer._reduce` for one bucket after another, while backward continues.
5. `collectives/fast_ring.py`: `ring.py` by the machine's fastest operations: p - 1 times `sendrecv_add` with the
   neighbours, p - 1 times `sendrecv`.
6. `comm/base.py`: `sendrecv_add`, the contract that every communicator keeps.
7. `comm/mpi/point_to_point.py`: the same operation over MPI. 8. `comm/mpi/cells.py`: the bytes go through memory that
   both ranks share.

And back: `synchronize()` waits for the background, sums the numbers of samples, and `Bucket.release` gives each
parameter its mean.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.ddp.overlapped import DistributedDataParallel
    from hpcdl.ddp.sampler import ShardedSampler

# Imported on first use: a program that only simulates loads nothing else.
__all__, __getattr__, __dir__ = exports(
    __name__, {"DistributedDataParallel": "overlapped", "ShardedSampler": "sampler"}
)
