"""Data-parallel training: every rank has the whole model and a part of each batch.

`naive` is the plain step: after backward, one all-reduce averages all gradients. `train` trains LeNet-5 on the digits
with it, from a notebook's engines or as a program (`mpiexec -n 4 python -m hpcdl.ddp.train`).
"""
