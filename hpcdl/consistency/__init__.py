"""How late may a gradient be? Training in which workers wait for each other a little, or not at all.

| module | owner of the weights | who waits for whom |
|---|---|---|
| `clock` | | BSP, SSP and ASP as one recurrence: when each worker begins and ends each iteration |
| `server`, `worker` | the servers', each a share | a worker at most `staleness` iterations ahead of the slowest |
| `downpour` | the servers | no one: weights are fetched and gradients pushed every few steps |
| `hogwild`, `fast_hogwild` | one vector in memory | no one: there are no locks; for comparison, locks and round robin |
| `lbfgs`, `sandblaster`, `balancing` | shards | the coordinator, for the first result of each portion of the batch |
| `adam` | a server's | Project Adam: factors instead of the gradient of a fully connected layer |
| `gossip` | each rank's own | a rank for its neighbours: a ring, a wheel, or new pairs in each round |

Begin with `plain`: a parameter server in one sitting.

The contract:

- The notation is the lecture's: N workers, staleness threshold s, tau how old a gradient is. A pull for iteration k is
  answered once every worker has finished k - s of them. (The lecture's SSP formula adds update t - s of worker n twice:
  its sums go to t - s and from t - s.)
- Each gradient is applied exactly once, on arrival, w -= lr g: there is no mean over workers. At staleness 0 a round is
  one step for the sum. A worker's pull contains its own pushes. Every update is logged with its tau.
- Weights and gradients are flat tensors, split like `tensor_split` over the servers, which are the first ranks. Servers
  do not communicate with each other, so shares may be out of step. `messages` describes the protocol.
- Everything runs on any communicator with `wait_any`: simulated ranks (with slow ones), MPI, torch.distributed.
  `hpcdl.training.asynchronous` is a program that uses it.

Failures:

- A worker that raises tells the servers, on every communicator: the others continue, and the server reports it.
- A killed worker is noticed by its silence: after `Server(patience=...)` while others send messages, otherwise after
  `MPIComm(timeout=...)` on the servers; give workers a longer timeout. Detection cannot be faster, because a server
  does not ask the system whether a process lives. mpiexec and `hpcdl.cluster` end all ranks at once when one dies: then
  start again from the snapshots. MPI cannot finalise with a dead rank: exit with `os._exit`.
- A server that dies is a CommError on each worker that waits for it, after the same timeout. Restarted with the same
  number of ranks and the same folder of snapshots, each server continues from its own last snapshot, and ignores
  gradients that it already has.
- Not covered: ranks of `sandblaster` keep no snapshots, so a run that loses one must start again; and killed ranks on
  torch.distributed, since gloo does not say whose message failed.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.consistency.balancing import finish
    from hpcdl.consistency.clock import ASP, BSP, WorkerTimeline, timeline
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
        "WorkerTimeline": "clock",
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
