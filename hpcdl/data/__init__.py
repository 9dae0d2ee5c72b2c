"""Data for the labs: digits, text and sparse rows need no download; MNIST and CIFAR-10 are fetched once and checked.

`loader` brings samples from disk to a training: shards, a shuffle that all ranks share, batches loaded ahead.
"""

from hpcdl.data.cifar10 import cifar10
from hpcdl.data.digits import Split, digits
from hpcdl.data.mnist import mnist
from hpcdl.data.sparse import SparseRows, rcv1_like
from hpcdl.data.text import Characters, corpus, windows

__all__ = ["Characters", "SparseRows", "Split", "cifar10", "corpus", "digits", "mnist", "rcv1_like", "windows"]
