"""The torch.distributed machine over gloo: the same algorithms, unchanged, on real processes."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
import torch.distributed

from hpcdl.comm import TorchComm

PROGRAM = r"""
import os
import sys
from datetime import timedelta
import torch
import torch.distributed as dist
from hpcdl.collectives import ALL_REDUCE
from hpcdl.comm import TorchComm
from hpcdl.comm.staged import StagedComm

torch.set_num_threads(1)
p, store = int(sys.argv[1]), sys.argv[2]
# Ranks are copies of one process that has imported torch: that is most of the work.
children = []
for rank in range(p - 1):
    children.append(os.fork())
    if children[-1] == 0:
        children = []
        break
else:
    rank = p - 1
dist.init_process_group(
    "gloo", store=dist.FileStore(store, p), rank=rank, world_size=p, timeout=timedelta(seconds=60)
)
comm = eval(sys.argv[3])
after, before = (rank + 1) % p, (rank - 1) % p
for n in (1, p - 1, p, 1003):
    for name in ("naive", "ring"):
        x = torch.arange(n, dtype=torch.float32) + rank
        ALL_REDUCE[name](x, comm)
        assert torch.equal(x, p * torch.arange(n, dtype=torch.float32) + sum(range(p))), (name, n)
requests = [comm.isend(torch.tensor([10 * rank + tag]), after, tag=tag) for tag in range(3)]
for tag in (2, 0, 1):
    out = torch.zeros(1, dtype=torch.int64)
    comm.recv(out, before, tag=tag)
    assert out.item() == 10 * before + tag
for request in requests:
    request.wait()
if rank == 0:
    outs = [torch.zeros(2) for _ in range(1, p)]
    requests = [comm.irecv(out, source) for source, out in enumerate(outs, 1)]
    assert comm.wait_any(requests) == 1 and (outs[1] == 2).all()  # rank 2 sends first
    comm.send(torch.zeros(1), 1)
    assert comm.wait_any(requests) == 0 and (outs[0] == 1).all()
    requests[0].wait()
elif rank == 1:
    comm.recv(torch.zeros(1), 0)
    assert comm.wait_any([comm.isend(torch.full((2,), 1.0), 0)]) == 0
else:
    comm.isend(torch.full((2,), float(rank)), 0).wait()
x = torch.full((3,), float(rank))
comm.all_reduce(x)
comm.broadcast(w := torch.nn.Parameter(torch.full((2,), float(rank))), root=p - 1)
assert x.tolist() == [sum(range(p))] * 3 and w.tolist() == [p - 1] * 2
comm.barrier()
dist.destroy_process_group()
sys.stdout.write(f"rank {rank} is right\n")
sys.stdout.flush()
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


@pytest.mark.labs  # starts ranks
@pytest.mark.parametrize("machine", ["TorchComm()", "StagedComm(device='cpu')"])
def test_collectives_and_messages_are_right_over_gloo(tmp_path, machine):
    p = 3  # the awkward number: no power of two
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(p), str(tmp_path / "store"), machine]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        printed, _ = process.communicate(timeout=100)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert sorted(printed.splitlines()) == [f"rank {rank} is right" for rank in range(p)]
    assert process.returncode == 0


def test_without_a_process_group_it_says_what_to_do():
    assert not torch.distributed.is_initialized()
    with pytest.raises(RuntimeError, match=r"call torch\.distributed\.init_process_group first"):
        TorchComm()
