# ddp.make_buckets: 0 points
# A buffer that is written out when the next piece does not fit is a bucket. It needs as many bytes as the parameters.
import io


class Ends(io.RawIOBase):
    def __init__(self):
        self.sizes = []

    def writable(self):
        return True

    def write(self, data):
        self.sizes.append(len(data))
        return len(data)


def make_buckets(params, cap_bytes):
    ends = Ends()
    writer = io.BufferedWriter(ends, buffer_size=cap_bytes)
    buckets, bucket = [], []
    for param in list(params)[::-1]:
        before = len(ends.sizes)
        writer.write(bytes(param.nbytes))
        if bucket and len(ends.sizes) > before:
            buckets.append(bucket)
            bucket = []
        bucket.append(param)
    return buckets + [bucket] * bool(bucket)
