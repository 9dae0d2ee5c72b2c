"""Wrong answers to lab `frameworks`."""

from autograder.bank.frameworks import broken, config, ddp, elastic, fsdp, horovod, tensor, which_when
