"""What things cost: pure functions, seconds out, bytes in.

`alpha` seconds per message, `beta` seconds per byte, `gamma` seconds per byte reduced, throughout.

- `collectives`: each collective's time and traffic, exactly what the simulated machine does; `textbook`: as printed;
- `selection`: the best algorithm for p ranks and n bytes, and where it changes;
- `alpha_beta`: alpha and beta from measurements, outliers and all;
- `roofline`: compute or memory, whichever is slower; `convolution`: work and memory of the convolution algorithms;
- `scaling`: the iteration of data-parallel training, from layers to thousands of ranks;
- `pipeline`, `tensor_parallel`, `memory`: GPipe, Megatron and ZeRO;
- `published`: all of that beside published figures, `python -m hpcdl.cost.published`.
"""
