"""The parts of `hpcdl.training.Trainer`, which trains one model on a mesh of ranks.

| file | what it does |
|---|---|
| `configuration` | the options of a run, checked, from TOML and back to it |
| `models` | mlp, lenet and gpt by size: layers, how each is cut, data, loss |
| `attention` | attention with some heads and some tokens on each rank |
| `fitting` | whether a mesh fits a model, and the nearest mesh that does |
| `gradients` | DDP, ZeRO-1 to -3 or a single replica, behind one interface |
| `whole` | which elements of the whole model a rank holds; checkpoints of any mesh, one torch file |
| `metering` | bytes sent and seconds waited, counted on the way to the communicator |
| `records` | one line per step and rank, in files that a restart continues |
| `predictions` | the numbers that a run prints before its first step |
| `precision` | float64, float32, or 16 bits by autocast; the scale of the loss in fp16 |
| `work`, `seconds` | operations of each layer, MFU; what `hpcdl.cost` predicts for a machine |
| `planning` | the best mesh for a machine and a memory limit |
| `dry` | one rank of any mesh without the others: a real run's messages, bytes and memory |
| `timeline`, `tracing` | each rank's activity over time, and one timeline of all ranks |
| `on_engines` | the trainer on engines, from a notebook |
| `elastic` | continue with fewer ranks after one dies, until a new one comes in |
| `neighbours` | copies of each rank's part of the state in the next rank's memory |
| `comparing` | the first step and tensor in which two meshes differ |
| `command` | `hpcdl train` |
"""
