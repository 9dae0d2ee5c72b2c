# ddp.make_buckets: 0 points, flagged
# Words in lines of a width are parameters in buckets of a size.
def make_buckets(params, cap_bytes):
    from textwrap import wrap

    params = list(params)[::-1]
    words = " ".join("a" * (param.nbytes - 1) for param in params)
    lines = wrap(words, max(cap_bytes - 1, 1), break_long_words=False, break_on_hyphens=False)
    rest = iter(params)
    return [[next(rest) for _ in line.split()] for line in lines]
