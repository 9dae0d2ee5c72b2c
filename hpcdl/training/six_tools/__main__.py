"""Run every task with every installed tool, or with the named tools, in the processes that torchrun started."""

import json
import multiprocessing
import resource
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from hpcdl.lazy import import_compiler
from hpcdl.training.six_tools.runs import steps
from hpcdl.training.six_tools.tasks import TASKS
from hpcdl.training.six_tools.ways import DEEPSPEED, WAYS, installed

PATIENCE = timedelta(seconds=240)  # then a process whose partner is gone gives up


def one_way(task: str, way: str, started: float, count: int = 20) -> None:
    """Run a training with one tool; rank 0 prints the result.

    `ready` is the time in seconds from here to the end of the first step, `peak` the peak bytes of this process.
    """
    from hpcdl.comm.distributed import TorchComm

    begin = time.perf_counter()
    store, rank, world = next(dist.rendezvous("env://", timeout=PATIENCE))
    apart = dist.PrefixStore(f"{task} {way}", store)
    dist.init_process_group("gloo", store=apart, rank=rank, world_size=world, timeout=PATIENCE)
    comm = TorchComm()
    prepared = (WAYS | DEEPSPEED)[way](TASKS[task].network(), comm)
    prepare = time.perf_counter() - begin
    losses, seconds = steps(prepared, comm, count, TASKS[task])
    comm.all_reduce(losses)
    found = {"losses": losses.tolist(), "seconds": seconds, "ready": prepare + seconds[0], "started": started}
    if rank == 0:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"task": task, "way": way, "peak": peak, **found}), flush=True)
    # Free DDP before the group: if DDP's reducer were the group's last owner, it would hold Python's lock while waiting
    # for the group's thread, which may need that lock to free a tensor.
    del prepared
    dist.destroy_process_group()


def main(ways: list[str]) -> None:
    """Run each way in a fork of this process: Python and torch start once, and each has separate memory."""
    import_compiler()
    torch.set_num_threads(1)
    started = time.time()
    for task in TASKS:
        for way in ways or installed():
            fork = multiprocessing.get_context("fork").Process(target=one_way, args=(task, way, started))
            fork.start()
            fork.join()
            if fork.exitcode:
                sys.exit(f"{way} ended with {fork.exitcode}")


if __name__ == "__main__":
    main(sys.argv[1:])
