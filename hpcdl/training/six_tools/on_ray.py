"""The same training by Ray, which starts the processes itself: Moritz et al. 2018."""

import json
import tempfile
import time
from pathlib import Path

import torch

from hpcdl.training.six_tools.runs import steps
from hpcdl.training.six_tools.tasks import Task
from hpcdl.training.six_tools.ways import RATE, Prepared


def loop(config: dict) -> None:
    """Train on one of Ray's workers."""
    from ray import train

    from hpcdl.comm.distributed import TorchComm

    torch.set_num_threads(1)
    task, comm = config["task"], TorchComm()
    model = train.torch.prepare_model(task.network())
    prepared = Prepared(model, torch.optim.SGD(model.parameters(), RATE))
    losses, seconds = steps(prepared, comm, config["count"], task)
    first = time.time() - sum(seconds[1:])
    comm.all_reduce(losses)
    if comm.rank == 0:
        found = {"losses": losses.tolist(), "seconds": seconds, "first": first}
        Path(config["out"]).write_text(json.dumps(found), encoding="utf-8")
    train.report({"loss": losses[-1].item()})


def fit(task: Task, p: int = 2, count: int = 20) -> dict:
    """Return losses, seconds of each step, and `ready`: seconds from here to the end of the first step, including Ray's
    start.

    Ray is shut down afterwards. It needs the package: `hpcdl.training.optional`.
    """
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    begin = time.time()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "found.json")
        ray.init(num_cpus=p, log_to_driver=False)
        try:
            config = {"task": task, "count": count, "out": str(out)}
            scaling, run = ScalingConfig(num_workers=p), RunConfig(storage_path=folder)
            TorchTrainer(loop, train_loop_config=config, scaling_config=scaling, run_config=run).fit()
        finally:
            ray.shutdown()
        found = json.loads(out.read_text(encoding="utf-8"))
    return {**found, "ready": found["first"] - begin}
