"""Real data for the labs: `digits` comes with scikit-learn, larger sets are fetched once and checked."""

from hpcdl.data.cifar10 import cifar10
from hpcdl.data.digits import Split, digits
from hpcdl.data.mnist import mnist

__all__ = ["Split", "cifar10", "digits", "mnist"]
