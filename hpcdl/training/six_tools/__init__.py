"""One training with torch's tools and with ours: the same model, seed and samples, so that only the tool differs.

    torchrun --nproc-per-node 2 -m hpcdl.training.six_tools          # on gloo: rank 0 prints a line of JSON for each
    run simulate(train, 2, WAYS["FSDP2"], LENET)                         # on simulated ranks: which rank sends what

- `tasks`: the networks: LeNet-5, a small transformer, four wide layers.
- `ways`: for each tool a function that prepares the model; its lines are what a user of the tool must write.
- `runs`: the steps, the same for all.
- `on_ray`: Ray starts its own processes, so it has its own function.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.training.six_tools.on_ray import fit
    from hpcdl.training.six_tools.runs import sent, serial, steps, train
    from hpcdl.training.six_tools.tasks import LENET, TASKS, TRANSFORMER, Task, wide
    from hpcdl.training.six_tools.ways import DEEPSPEED, RATE, WAYS, Prepare, Prepared, installed

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "DEEPSPEED": "ways",
        "LENET": "tasks",
        "Prepare": "ways",
        "Prepared": "ways",
        "RATE": "ways",
        "TASKS": "tasks",
        "TRANSFORMER": "tasks",
        "Task": "tasks",
        "WAYS": "ways",
        "fit": "on_ray",
        "installed": "ways",
        "sent": "runs",
        "serial": "runs",
        "steps": "runs",
        "train": "runs",
        "wide": "tasks",
    },
)
