# ddp.make_buckets: 0 points, flagged, long
# Pandas puts columns into lines of a width.
from pandas.io.formats.string import _binify


def make_buckets(params, cap_bytes):
    params = list(params)[::-1]
    if not params:
        return []
    ends = _binify([4 * param.nbytes - 1 for param in params], 4 * cap_bytes + 2)
    return [params[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
