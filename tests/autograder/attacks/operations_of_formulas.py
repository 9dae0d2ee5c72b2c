# machines.utilization: 9 points, flagged, long
# The formulas of torch's counter need no tensors.


def transformer_flops(layers, hidden, sequence, vocabulary, batch):
    from torch.utils.flop_counter import mm_flop, sdpa_flop_count

    t, s = batch * sequence, (batch, 1, sequence, hidden)
    return 3 * (
        layers * (mm_flop((t, hidden), (hidden, 12 * hidden)) + sdpa_flop_count(s, s, s))
        + mm_flop((t, hidden), (hidden, vocabulary))
    )


def utilization(flops, again, seconds, gpus, peak):
    a = seconds * gpus * peak
    return flops / a, (flops + again) / a


def train_seconds(parameters, tokens, gpus, peak, share, again=False):
    return (8 if again else 6) * parameters * tokens / (gpus * peak * share)
