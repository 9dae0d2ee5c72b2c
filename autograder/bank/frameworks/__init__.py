"""Wrong answers to lab `frameworks`."""

from autograder.bank.frameworks import config, ddp, elastic, fsdp, horovod, tensor
