"""Complete training programs, built from the ways to distribute a training (such as `hpcdl.ddp`).

`trainer` combines all of them: `Trainer(comm, Configuration(model="gpt", mesh=(2, 2, 2, 1)))` trains on a mesh of
data, pipeline, tensor and sequence ranks with ZeRO's stages, and `hybrid` has its parts. `run_on(cluster, ...)` runs
such a training on a notebook's engines, and `train_elastic(cluster, ...)` continues when a rank dies.

`train` is LeNet-5 data-parallel, from start to accuracy, with its pieces `momentum`, `checkpoint` and `devices`;
`program` is the same training as a program: `mpiexec -n 4 hpcdl train`, `torchrun -m hpcdl.training`. `live` is a
training that you control while it runs: pause, slow down or kill a rank. `scaling` measures it on 1, 2, 4, ... ranks,
next to the cost model's prediction. `asynchronous` is LeNet-5 with parameter servers, also as a program. `large_batch`
holds LARS, LAMB and learning rates that grow with the batch; `mixed_precision` a loss scale that ranks agree on, and
float32 master weights; `fp8` linear layers in eight bits. `low_precision_runs` trains LeNet in fixed-point formats, and
stores earlier runs. `process_group` lets torch's own DDP, FSDP2 and DTensor run on any of our machines; `six_tools`
runs one training with each of them, and with ours. `own_stack` is a training in which every brick can be replaced; it
counts whose lines ran.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.training.hybrid.configuration import Configuration
    from hpcdl.training.hybrid.elastic import train_elastic
    from hpcdl.training.hybrid.on_engines import run_on
    from hpcdl.training.large_batch import LAMB, LARS
    from hpcdl.training.mixed_precision import LossScaler, MasterWeights
    from hpcdl.training.momentum import Momentum
    from hpcdl.training.train import train_on_devices
    from hpcdl.training.trainer import Trainer

# Imported on first use: the command line shows the program's options without importing torch.
__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "Trainer": "trainer",
        "Configuration": "hybrid.configuration",
        "run_on": "hybrid.on_engines",
        "train_elastic": "hybrid.elastic",
        "train_on_devices": "train",
        "Momentum": "momentum",
        "LAMB": "large_batch",
        "LARS": "large_batch",
        "LossScaler": "mixed_precision",
        "MasterWeights": "mixed_precision",
    },
)
