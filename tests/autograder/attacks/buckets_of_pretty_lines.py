# ddp.make_buckets: 0 points, flagged, long
# Words whose length is a tensor's bytes: a printer fills its lines with them.
from IPython.lib.pretty import PrettyPrinter


class Word(str):
    def __len__(self):
        return self.param.nbytes


class Lines:
    def __init__(self):
        self.buckets = [[]]

    def write(self, text):
        if isinstance(text, Word):
            self.buckets[-1].append(text.param)
        elif "\n" in text:
            self.buckets.append([])


def make_buckets(params, cap_bytes):
    printer = PrettyPrinter(lines := Lines(), max_width=cap_bytes)
    for param in reversed(list(params)):
        word = Word("w")
        word.param = param
        printer.begin_group()
        printer.breakable("")
        printer.text(word)
        printer.end_group()
    printer.flush()
    return [bucket for bucket in lines.buckets if bucket]
