"""Kernels for the processor, compiled by Numba, one file for each operation; import the one that you need.

`direct`, `winograd` and `spectrum` are for `hpcdl.conv`, `rounding` for `hpcdl.numerics.rounding`; they are made of
`vectors` (registers full of numbers), `product` (matrix products), `philox` (random bits) and `threads`.

Threads are had in two ways. Convolutions run in torch's own pool (`threads`), since they come in turns with torch's
operations, whose threads would keep spinning next to a second pool. Rounding starts threads of its own
(`hpcdl.numerics.rounding.threads`), because its plain form in torch needs whole operations side by side, each on one
thread, which torch's pool cannot do, and the compiled form shares that code.
"""
