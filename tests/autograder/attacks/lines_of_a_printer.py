# ddp.make_buckets: 0 points, flagged
# A printer fills lines with words as long as the parameters.
import pprint


class Word:
    def __init__(self, number, size):
        self.number, self.size = number, size

    def __repr__(self):
        return f"{self.number:x}".rjust(self.size - 2, "-")


def make_buckets(params, cap_bytes):
    params = list(params)
    words = [Word(number, param.nbytes) for number, param in reversed(list(enumerate(params)))]
    lines = pprint.pformat(words, width=min(cap_bytes, 10**6), compact=True)[1:-1].split("\n")
    return [[params[int(word.strip(" -,"), 16)] for word in line.split(", ") if word.strip()] for line in lines]
