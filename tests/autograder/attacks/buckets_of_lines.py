# ddp.make_buckets: 0 points, flagged, long
# Lines of words, as long as the gradients are large.
import textwrap


def make_buckets(params, cap_bytes):
    params = list(params)[::-1]
    words = " ".join("a" * (p.nbytes - 1) for p in params)
    lines = textwrap.wrap(words, max(cap_bytes - 1, 1), break_long_words=False, break_on_hyphens=False)
    rest = iter(params)
    return [[next(rest) for _ in line.split()] for line in lines]
