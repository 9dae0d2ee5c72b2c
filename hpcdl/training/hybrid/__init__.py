"""The parts of `hpcdl.training.Trainer`, which trains one model on a mesh of ranks.

| file | what it does |
|---|---|
| `configuration` | the options of a run, checked, from TOML and back to it |
| `models` | mlp, lenet and gpt by size: layers, how each is cut, data, loss |
| `attention` | attention of which a rank has some heads and some tokens |
| `fitting` | whether a mesh fits a model, and the nearest mesh that does |
| `gradients` | DDP, ZeRO-1 to -3 or nothing, behind one interface |
| `whole` | which elements of the whole model a rank holds; checkpoints of any mesh, one torch file |
| `metering` | bytes sent and seconds waited, counted on the way to the communicator |
| `records` | one line per step and rank, in files that a restart goes on with |
| `predictions` | the numbers that a run prints before its first step |
| `comparing` | two meshes, and the first step and tensor in which they differ |
| `command` | `hpcdl train` |
"""
