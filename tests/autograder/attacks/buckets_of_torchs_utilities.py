# own_stack.buckets: 0 points, flagged, long
# Buckets from the time before DDP.
def make_buckets(params, cap_bytes):
    from torch._utils import _take_tensors

    return list(map(list, _take_tensors(list(params)[::-1], cap_bytes)))
