# own_stack.buckets: 0 points, flagged, long
# A package that setuptools brings along fills batches.
def make_buckets(params, cap_bytes):
    from setuptools._vendor.more_itertools import constrained_batches

    return [
        list(b)
        for b in constrained_batches(reversed(list(params)), cap_bytes, get_len=lambda p: p.nbytes, strict=False)
    ]
