"""Data for the labs: digits, text and sparse rows need no download; MNIST and CIFAR-10 are fetched once and checked.

`loader` reads samples from disk for a training: shards, a shuffle shared by all ranks, prefetched batches.
"""

from hpcdl.data.cifar10 import cifar10
from hpcdl.data.digits import Split, digits
from hpcdl.data.mnist import mnist
from hpcdl.data.sparse import SparseRows, rcv1_like
from hpcdl.data.text import Characters, corpus, windows

__all__ = ["Characters", "SparseRows", "Split", "cifar10", "corpus", "digits", "mnist", "rcv1_like", "windows"]
