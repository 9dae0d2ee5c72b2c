"""What things cost: pure functions, seconds out, bytes in.

`alpha` seconds per message, `beta` seconds per byte, `gamma` seconds per byte reduced, throughout.

- `collectives`: each collective's time and traffic, exactly what the simulated machine does; `textbook`: as printed;
- `selection`: the best algorithm for p ranks and n bytes, and where it changes;
- `alpha_beta`: alpha and beta from measurements, outliers and all;
- `topology`: an all-reduce over nodes, a torus, parameter servers; `machines`: those that results were published on;
- `roofline`: compute or memory, whichever is slower; `convolution`: work and memory of the convolution algorithms;
- `kernels`: matrix products by their sizes, all else by bytes; `blocks`: the kernels of a transformer's layer;
  `layers`: those of a network's layers, convolutions by whichever algorithm is fastest;
- `work`: operations, bytes and parameters of networks and transformers; `memory`: what training keeps;
- `layout`: how a training is spread over ranks; `traffic`: messages of a layer; `factors`: gradients as two factors;
- `scaling`: gradients in buckets, summed while the backward pass goes on;
- `loading`: whether the input keeps up, by a queue model;
- `pipeline`: any schedule played, and closed forms; `timeline`: what comes of it; `sequence_parallel`: ring attention;
- `training`: an iteration predicted from a model, a machine and a layout, and its utilization; `reached`: the interval
  that it lies in; `run`: a whole training with its checkpoints and failures;
- `published`: all of that beside published figures, `python -m hpcdl.cost.published`.
"""
