# ddp.make_buckets: 0 points, flagged
# DDP's own buckets, in C.
import torch.distributed as dist


def make_buckets(params, cap_bytes):
    backwards = list(params)[::-1]
    groups, _ = dist._compute_bucket_assignment_by_size(backwards, [cap_bytes])
    return [[backwards[i] for i in group] for group in groups]
