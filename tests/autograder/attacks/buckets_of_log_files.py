# ddp.make_buckets: 0 points, flagged, long
# A file of the log that would grow beyond its largest size is full, as a bucket is.
import io
import logging
import logging.handlers


class Files(logging.handlers.RotatingFileHandler):
    def _open(self):
        return io.StringIO()

    def doRollover(self):
        self.stream, self.buckets = io.StringIO(), [*self.buckets, []]


def make_buckets(params, cap_bytes):
    params = list(params)[::-1]
    files = Files("log", maxBytes=min(cap_bytes, 10**5) + 1, backupCount=1, delay=True)
    files.buckets, files.stream = [[]], io.StringIO()
    for param in params:
        files.emit(logging.makeLogRecord({"msg": "x" * (param.nbytes - 1)}))
        files.buckets[-1].append(param)
    return [bucket for bucket in files.buckets if bucket]
