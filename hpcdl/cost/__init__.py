"""Cost models: pure functions from bytes to seconds.

`alpha` seconds per message, `beta` seconds per byte, `gamma` seconds per byte reduced, throughout.

- `collectives`: each collective's time and traffic, exactly what the simulated machine does; `textbook`: as printed;
- `selection`: the best algorithm for p ranks and n bytes, and where it changes;
- `alpha_beta`: alpha and beta from measurements, outliers and all;
- `topology`: an all-reduce over nodes, a torus, parameter servers; `machines`: the machines of published results;
- `roofline`: compute or memory, whichever is slower; `convolution`: work and memory of the convolution algorithms;
- `kernels`: matrix products by their sizes, everything else by bytes; `blocks`: the kernels of a transformer's layer;
- `work`: operations, bytes and parameters of networks and transformers; `memory`: the memory of training;
- `layout`: how a training is spread over ranks; `traffic`: messages of a layer; `factors`: gradients as two factors;
- `scaling`: gradients in buckets, summed during the backward pass;
- `loading`: whether the input keeps up, by a queue model;
- `pipeline`: simulates any schedule, and has closed forms; `timeline`: the result; `sequence_parallel`: ring attention;
- `training`: an iteration predicted from a model, a machine and a layout, and its utilization; `reached`: the
  prediction's interval; `run`: a whole training with its checkpoints and failures;
- `published`: predictions compared with published figures, `python -m hpcdl.cost.published`.
"""
