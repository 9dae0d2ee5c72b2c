"""Real data for the labs: `digits` comes with scikit-learn, larger sets are fetched once and checked."""

from hpcdl.data.digits import Split, digits

__all__ = ["Split", "digits"]
