"""How late may a gradient be? Training in which workers wait for each other a little, or not at all.

| room | whose weights | who waits for whom |
|---|---|---|
| `clock` | | BSP, SSP and ASP as one recurrence: when each worker begins and ends each iteration |
| `server`, `worker` | the servers', each a share | a worker at most `staleness` iterations ahead of the slowest |
| `downpour` | the same | nobody: weights are fetched and gradients pushed now and then |
| `hogwild`, `fast_hogwild` | one vector in memory | nobody: nothing is locked; beside it locks, and writing in turns |
| `lbfgs`, `sandblaster`, `balancing` | shards | the coordinator, for the first result of each portion of the batch |
| `adam` | a server's | Project Adam: factors instead of the gradient of a fully connected layer |
| `gossip` | each rank's own | a rank for its neighbours: a ring, a wheel, or new pairs in each round |

The contract:

- The notation is the lecture's: N workers, staleness threshold s, tau how old a gradient is. A pull for iteration k is
  answered once every worker has finished k - s of them. (The lecture's SSP formula adds update t - s of worker n twice:
  its sums go to t - s and from t - s.)
- Each gradient is applied exactly once, as it comes, w -= lr g: no mean over workers. At staleness 0 a round is one
  step for the sum. What a worker has pushed is in what it pulls. Every update is logged with its tau.
- Weights and gradients are flat tensors, cut as by `tensor_split` over the servers, which are the first ranks. Servers
  know nothing of each other, so that shares may be out of step. `messages` says what goes over the wire.
- All of it runs on any communicator with `wait_any`: simulated ranks (with slow ones), MPI, torch.distributed.
  `hpcdl.training.asynchronous` is a program made of it.

What is lost:

- A worker that raises tells the servers on its way out, on every communicator: the others go on, and the server says
  so.
- A worker that is killed is noticed by its silence: after `Server(patience=...)` while others are heard, and where
  nobody is, after `MPIComm(timeout=...)` on the servers; give workers a longer timeout. Nothing is quicker than those
  two: a server does not ask the system whether a process lives. mpiexec itself ends all ranks when one dies, and so
  does `hpcdl.cluster`, at once: where they do, start again from the snapshots. MPI cannot finalise without the dead:
  leave with `os._exit`.
- A server that dies is a CommError on each worker that waits for it, after the same timeout. Started again with as many
  ranks and the same folder of snapshots, each server goes on from its own last one; gradients that it has are left out
  when they come a second time.
- Not covered: `sandblaster`, whose ranks keep no snapshots: a run of it that loses one begins again; and on
  torch.distributed, a rank that is killed, since gloo does not say whose message failed.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.consistency.balancing import finish
    from hpcdl.consistency.clock import ASP, BSP, Timeline, timeline
    from hpcdl.consistency.fast_hogwild import logistic_epochs
    from hpcdl.consistency.hogwild import logistic_loss, round_robin, sparsity
    from hpcdl.consistency.lbfgs import minimise
    from hpcdl.consistency.server import Served, Server, Update
    from hpcdl.consistency.worker import Worker, work

# Imported when first used. `hogwild`, `downpour`, `sandblaster`, `adam` and `gossip` are modules, with functions of
# that name.
__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "ASP": "clock",
        "BSP": "clock",
        "Served": "server",
        "Server": "server",
        "Timeline": "clock",
        "Update": "server",
        "Worker": "worker",
        "finish": "balancing",
        "logistic_epochs": "fast_hogwild",
        "logistic_loss": "hogwild",
        "minimise": "lbfgs",
        "round_robin": "hogwild",
        "sparsity": "hogwild",
        "timeline": "clock",
        "work": "worker",
    },
)
