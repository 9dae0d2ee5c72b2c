"""Lab `machines` answered rightly, in many styles: each cell below replaces the reference's answer."""


# %% work: one rule for all layers
def of_layer(weights, macs, read, written):
    return weights, macs, read + written


def conv(channels, filters, kernel, size, groups=1):
    pixels = size * size
    per_filter = channels // groups * kernel * kernel
    return of_layer(filters * per_filter, filters * per_filter * pixels, channels * pixels, filters * pixels)


def linear(tokens, inputs, outputs):
    return of_layer(inputs * outputs, tokens * inputs * outputs, tokens * inputs, tokens * outputs)


def attention(tokens, hidden):
    scores, sums = tokens * tokens * hidden, tokens * tokens * hidden
    return of_layer(0, scores + sums, 3 * tokens * hidden, tokens * hidden)


def work(layers, batch, again=False):
    def row(i, layer):
        weights, macs, moved = layer
        forward = 2 * macs * batch
        passes = (1 if i == 0 else 2) + (1 if again else 0)
        return forward, passes * forward, 4 * (weights + batch * moved)

    return [row(i, layer) for i, layer in enumerate(layers)]


# %% work: groups one after the other, the first layer mended at the end
def conv(channels, filters, kernel, size, groups=1):
    weights = macs = 0
    for _ in range(groups):
        own = (filters // groups) * (channels // groups) * kernel**2
        weights += own
        macs += own * size**2
    return weights, macs, channels * size**2 + filters * size**2


linear = lambda tokens, inputs, outputs: (
    inputs * outputs,
    inputs * outputs * tokens,
    tokens * inputs + tokens * outputs,
)
attention = lambda tokens, hidden: (0, 2 * hidden * tokens**2, 4 * hidden * tokens)


def work(layers, batch, again=False):
    rows = []
    for weights, macs, moved in layers:
        flops = 2 * batch * macs
        rows.append([flops, flops * (3 if again else 2), 4 * batch * moved + 4 * weights])
    rows[0][1] -= rows[0][0]
    return [tuple(row) for row in rows]


# %% utilization: products of matrices, one by one
def matmul(a, b, c):
    return 2 * a * b * c


def transformer_flops(layers, hidden, sequence, vocabulary, batch):
    one_layer = 4 * matmul(batch * sequence, hidden, hidden)
    one_layer += 2 * matmul(batch * sequence, hidden, 4 * hidden)
    one_layer += 2 * batch * matmul(sequence, hidden, sequence)
    forward = layers * one_layer + matmul(batch * sequence, hidden, vocabulary)
    return forward + 2 * forward


def utilization(flops, again, seconds, gpus, peak):
    model = flops / seconds / gpus / peak
    return model, model + again / seconds / gpus / peak


def train_seconds(parameters, tokens, gpus, peak, share, again=False):
    passes = 3 + again
    return 2 * passes * parameters * tokens / gpus / (peak * share)


# %% utilization: the formula of the paper
def transformer_flops(layers, hidden, sequence, vocabulary, batch):
    b, s, l, h, V = batch, sequence, layers, hidden, vocabulary
    return 72 * b * s * l * h**2 * (1 + s / (6 * h) + V / (12 * l * h))


def utilization(flops, again, seconds, gpus, peak):
    rates = [operations / seconds for operations in (flops, flops + again)]
    return tuple(rate / (gpus * peak) for rate in rates)


def train_seconds(parameters, tokens, gpus, peak, share, again=False):
    per_token = 8 * parameters if again else 6 * parameters
    return per_token * tokens / (share * peak * gpus)


# %% work: products of sizes, a running first
from math import prod


def conv(channels, filters, kernel, size, groups=1):
    weights = prod((filters, channels // groups, kernel, kernel))
    return weights, prod((weights, size, size)), sum(prod((c, size, size)) for c in (channels, filters))


def linear(tokens, inputs, outputs):
    return prod((inputs, outputs)), prod((tokens, inputs, outputs)), tokens * sum((inputs, outputs))


def attention(tokens, hidden):
    return 0, 2 * prod((tokens, tokens, hidden)), 4 * prod((tokens, hidden))


def work(layers, batch, again=False):
    rows, passes = [], 1
    for weights, macs, moved in layers:
        forward = batch * macs + batch * macs
        rows.append((forward, (passes + int(again)) * forward, 4 * batch * moved + 4 * weights))
        passes = 2
    return rows


# %% utilization: everything for one token
def transformer_flops(layers, hidden, sequence, vocabulary, batch):
    a_token = layers * (24 * hidden**2 + 4 * sequence * hidden) + 2 * hidden * vocabulary
    return sum(passes * a_token * batch * sequence for passes in (1, 2))


def utilization(flops, again, seconds, gpus, peak):
    most = peak * gpus * seconds
    return (flops / most, (flops + again) / most)


def train_seconds(parameters, tokens, gpus, peak, share, again=False):
    flops = 6 * parameters * tokens
    if again:
        flops += 2 * parameters * tokens
    return flops / (gpus * peak * share)


# %% roofline: comparisons
def roof(flops, nbytes, peak, bandwidth):
    if flops * bandwidth >= nbytes * peak:
        return flops / peak, "compute"
    return nbytes / bandwidth, "memory"


def place(layers, batch, peak, bandwidth, itemsize):
    found = []
    for weights, macs, moved in layers:
        intensity = 2 * batch * macs / (itemsize * (batch * moved + weights))
        limited = intensity < peak / bandwidth
        found.append((intensity, intensity * bandwidth if limited else peak, "memory" if limited else "compute"))
    return found


def smallest_batch(layer, peak, bandwidth, itemsize):
    weights, macs, moved = layer
    slope = 2 * macs * bandwidth - itemsize * moved * peak
    if weights == 0 and slope >= 0:
        return 1
    if slope <= 0:
        return math.inf
    return max(1, math.ceil(itemsize * weights * peak / slope))


# %% roofline: a named tuple, doubling and halving
from collections import namedtuple

Row = namedtuple("Row", "intensity rate limit")


def roof(flops, nbytes, peak, bandwidth):
    ways = {"compute": flops / peak, "memory": nbytes / bandwidth}
    limit = max(ways, key=ways.get)
    return ways[limit], limit


def place(layers, batch, peak, bandwidth, itemsize):
    def row(weights, macs, moved):
        flops, nbytes = 2.0 * batch * macs, 1.0 * itemsize * (batch * moved + weights)
        seconds, limit = roof(flops, nbytes, peak, bandwidth)
        return tuple(Row(flops / nbytes, flops / seconds, limit))

    return [row(*layer) for layer in layers]


def smallest_batch(layer, peak, bandwidth, itemsize):
    def filled(batch):
        return place([layer], batch, peak, bandwidth, itemsize)[0][2] == "compute"

    high = 1
    while not filled(high):
        high *= 2
        if high > 2**45:
            return float("inf")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if filled(middle) else (middle, high)
    return high


# %% roofline: seconds of one sample, one weight
def roof(flops, nbytes, peak, bandwidth):
    arithmetic = flops / peak
    memory = nbytes / bandwidth
    return (memory, "memory") if memory > arithmetic else (arithmetic, "compute")


def place(layers, batch, peak, bandwidth, itemsize):
    rows = []
    for weights, macs, moved in layers:
        work, traffic = 2 * batch * macs, itemsize * batch * moved + itemsize * weights
        rows += [(work / traffic, min(peak, work / traffic * bandwidth), roof(work, traffic, peak, bandwidth)[1])]
    return rows


def smallest_batch(layer, peak, bandwidth, itemsize):
    weights, macs, moved = layer
    won = 2 * macs / peak - itemsize * moved / bandwidth
    lost = itemsize * weights / bandwidth
    if lost == 0:
        return 1 if won >= 0 else math.inf
    return math.inf if won <= 0 else -int(-lost // won)


# %% hours: one pass at a time
def activation(channels, size):
    numbers = channels * size * size
    return (0, 0, numbers + numbers)


def pooling(channels, size, window):
    out = size // window
    return (0, 0, channels * (size * size + out * out))


def batch_norm(channels, size):
    return (channels + channels, 0, 3 * channels * size * size)


def hours(layers, batch, images, epochs, peak, bandwidth, rate, itemsize=2):
    flat, high = 0.0, 0.0
    for number, layer in enumerate(layers):
        passes = ["forward", "weights"] + ["inputs"] * (number > 0)
        for _ in passes:
            flops = 2 * batch * layer[1]
            nbytes = itemsize * (batch * layer[2] + layer[0])
            flat += flops / peak
            high += max(flops / peak, nbytes / bandwidth)
    steps = images / batch * epochs
    return dict(arithmetic=flat * steps / 3600, roof=high * steps / 3600, measured=images * epochs / rate / 60 / 60)


# %% hours: tensors
def activation(channels, size):
    return 0, 0, 2 * channels * size**2


def pooling(channels, size, window):
    return 0, 0, channels * size**2 + channels * (size // window) ** 2


def batch_norm(channels, size):
    return 2 * channels, 0, 3 * channels * size**2


def hours(layers, batch, images, epochs, peak, bandwidth, rate, itemsize=2):
    weights, macs, moved = torch.tensor(layers, dtype=torch.float64).T
    passes = torch.full_like(weights, 3.0)
    passes[0] = 2.0
    arithmetic = 2 * batch * macs / peak
    memory = itemsize * (batch * moved + weights) / bandwidth
    scale = images * epochs / batch / 3600
    return {
        "arithmetic": (passes * arithmetic).sum().item() * scale,
        "roof": (passes * torch.maximum(arithmetic, memory)).sum().item() * scale,
        "measured": images * epochs / rate / 3600,
    }


# %% hours: seconds of an image first
def activation(channels, size):
    return 0, 0, channels * size**2 * 2


def batch_norm(channels, size):
    weights, _, moved = 2 * channels, 0, 3 * channels * size**2
    return weights, 0, moved


def pooling(channels, size, window):
    inside = channels * size**2
    return 0, 0, inside + inside // window**2


def hours(layers, batch, images, epochs, peak, bandwidth, rate, itemsize=2):
    seen = images * epochs
    per_image = {"arithmetic": 0.0, "roof": 0.0, "measured": 1 / rate}
    for i, (weights, macs, moved) in enumerate(layers):
        times = 2 + (i > 0)
        least, _ = roof(2 * macs, itemsize * (moved + weights / batch), peak, bandwidth)
        per_image["arithmetic"] += times * 2 * macs / peak
        per_image["roof"] += times * least
    return {kind: seen * seconds / 3600 for kind, seconds in per_image.items()}


# %% profile: kernels merged into blocks, then the gaps between blocks
def blocks_of(spans):
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def stalls(events):
    spans = lambda keep: [(e["ts"], e["ts"] + e["dur"]) for e in events if "dur" in e and keep(e)]
    blocks = blocks_of(spans(lambda e: e.get("cat") == "kernel" and "nccl" not in e["name"]))
    causes = {
        "input": spans(lambda e: e["name"].startswith("enumerate(DataLoader)")),
        "communication": spans(lambda e: e["name"].startswith("nccl")),
        "host": spans(lambda e: e["name"].startswith("cuda") and e["name"].endswith("Synchronize")),
    }
    result = []
    for (_, begin), (end, _) in zip(blocks, blocks[1:]):
        best, most = "other", 0
        for cause, parts in causes.items():
            covered = 0
            for a, b in parts:
                if b > begin and a < end:
                    covered += min(b, end) - max(a, begin)
            if covered > most:
                best, most = cause, covered
        result.append((best, begin, end - begin))
    result.sort(key=lambda stall: stall[2], reverse=True)
    return result[:3]


def waits(events):
    import collections

    total = collections.Counter()
    asked = collections.defaultdict(dict)
    for event in events:
        if event["ph"] == "B" and event["name"] == "NEGOTIATE_ALLREDUCE":
            asked[event["pid"]] = {}
        if event["ph"] == "X":
            asked[event["pid"]][int(event["name"])] = event["ts"]
        if event["ph"] == "E" and asked[event["pid"]]:
            times = asked.pop(event["pid"])
            slowest = max(times, key=times.get)
            for rank, when in times.items():
                if rank != slowest:
                    total[rank, slowest] += times[slowest] - when
    return dict(total)


# %% profile: a sweep over begins and ends
def stalls(events):
    def kind(e):
        if "dur" not in e:
            return None
        if e.get("cat") == "kernel":
            return "communication" if e["name"][:4] == "nccl" else "gpu"
        if e["name"].startswith("enumerate(DataLoader)"):
            return "input"
        return "host" if e["name"] in {"cudaStreamSynchronize", "cudaDeviceSynchronize"} else None

    moments = []
    for e in events:
        if kind(e):
            moments += [(e["ts"], 1, kind(e)), (e["ts"] + e["dur"], -1, kind(e))]
    moments.sort(key=lambda m: (m[0], -m[1]))
    running = {"gpu": 0, "input": 0, "communication": 0, "host": 0}
    found, open_since, covered, before, started = [], None, {}, 0, False
    for now, change, what in moments:
        if open_since is not None:
            for name in ("input", "communication", "host"):
                if running[name]:
                    covered[name] = covered.get(name, 0) + now - before
        running[what] += change
        if what == "gpu":
            if running["gpu"] == 1 and change == 1 and open_since is not None:
                if now > open_since:
                    name = max(covered, key=covered.get) if any(covered.values()) else "other"
                    found.append((name, open_since, now - open_since))
                open_since = None
            elif running["gpu"] == 0:
                open_since, covered = now, {}
        before = now
    return sorted(found, key=lambda f: f[2])[::-1][:3]


def waits(events):
    phases, answer = {}, {}
    for e in events:
        if e["ph"] == "M":
            continue
        if e["ph"] == "B":
            phases[e["pid"]] = (e["name"], [])
        elif e["ph"] == "X":
            phases[e["pid"]][1].append(e)
        elif phases[e["pid"]][0] == "NEGOTIATE_ALLREDUCE":
            *early, late = sorted(phases[e["pid"]][1], key=lambda tick: tick["ts"])
            for tick in early:
                pair = int(tick["name"]), int(late["name"])
                answer[pair] = answer.get(pair, 0) + late["ts"] - tick["ts"]
    return answer


# %% profile: a tensor with a place for each microsecond
def stalls(events):
    timed = [e for e in events if e.get("ph") == "X"]
    size = int(max(e["ts"] + e["dur"] for e in timed)) + 1
    rows = torch.zeros(4, size, dtype=torch.int32)
    for e in timed:
        nccl = e["name"].startswith("nccl")
        row = None
        if e["cat"] == "kernel":
            row = 2 if nccl else 0
        elif "enumerate(DataLoader)" in e["name"]:
            row = 1
        elif "Synchronize" in e["name"]:
            row = 3
        if row is not None:
            rows[row, e["ts"] : e["ts"] + e["dur"]] = 1
    busy = rows[0].nonzero().flatten()
    steps = busy.diff()
    found = []
    for i in (steps > 1).nonzero().flatten().tolist():
        begin, end = int(busy[i]) + 1, int(busy[i + 1])
        shares = rows[1:, begin:end].sum(1)
        cause = ("input", "communication", "host")[int(shares.argmax())] if shares.any() else "other"
        found.append((cause, begin, end - begin))
    return sorted(found, key=lambda stall: stall[2], reverse=True)[:3]


def waits(events):
    ticks = [e for e in events if e["ph"] in ("X", "E")]
    found = {}
    for tensor in {e["pid"] for e in ticks}:
        group = []
        for e in (e for e in ticks if e["pid"] == tensor):
            if e["ph"] == "X":
                group.append((e["ts"], int(e["name"])))
                continue
            if group:
                last_time, last_rank = group[-1]
                for time, rank in group[:-1]:
                    found.setdefault((rank, last_rank), 0)
                    found[rank, last_rank] += last_time - time
            group = []
    return found


# %% profile: sweep over points
def kind(event):
    category, name = event.get("cat"), event.get("name", "")
    if category == "kernel":
        return "communication" if name.startswith("nccl") else "work"
    if category == "user_annotation" and name.startswith("enumerate(DataLoader)"):
        return "input"
    if category == "cuda_runtime" and name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
        return "host"
    return None


def stalls(events):
    spans = {"work": [], "input": [], "communication": [], "host": []}
    for event in events:
        if event.get("ph") == "X" and kind(event):
            spans[kind(event)].append((event["ts"], event["ts"] + event["dur"]))
    work = sorted(spans.pop("work"))
    gaps, end = [], None
    for a, b in work:
        if end is not None and a > end:
            gaps.append((end, a))
        end = b if end is None else max(end, b)
    gaps = sorted(gaps, key=lambda gap: gap[0] - gap[1])[:3]
    out = []
    for a, b in gaps:
        cover = {name: sum(max(0, min(b, y) - max(a, x)) for x, y in of) for name, of in spans.items()}
        cause = max(cover, key=cover.get)
        out.append((cause if cover[cause] > 0 else "other", a, b - a))
    return out


def waits(events):
    open_, out = {}, {}
    for event in events:
        pid = event["pid"] if "pid" in event else None
        if event["ph"] == "B" and event.get("name", "").startswith("NEGOTIATE"):
            open_[pid] = []
        elif event["ph"] == "X" and pid in open_:
            open_[pid].append((int(event["name"]), event["ts"]))
        elif event["ph"] == "E" and pid in open_:
            ranks = open_.pop(pid)
            if ranks:
                last, when = max(ranks, key=lambda r: r[1])
                for rank, ts in ranks:
                    if rank != last:
                        out[rank, last] = out.get((rank, last), 0) + when - ts
    return out


# %% profile: sums of floats, tensors popped as they end
from collections import defaultdict


def stalls(events):
    spans = defaultdict(list)
    for e in events:
        if e["ph"] != "X" or "cat" not in e or "dur" not in e:
            continue
        kind = {
            "kernel": "communication" if e["name"].startswith("nccl") else "compute",
            "user_annotation": "input" if e["name"].startswith("enumerate(DataLoader)") else "",
            "cuda_runtime": "host" if e["name"] in ("cudaStreamSynchronize", "cudaDeviceSynchronize") else "",
        }.get(e["cat"], "")
        spans[kind].append((e["ts"], e["ts"] + e["dur"]))
    points = sorted(
        [(a, 1) for a, b in spans["compute"]] + [(b, -1) for a, b in spans["compute"]], key=lambda q: (q[0], -q[1])
    )
    gaps, level = [], 0
    for (t, d), following in zip(points, points[1:]):
        level += d
        if level == 0 and following[0] > t:
            gaps.append((t, following[0]))
    out = []
    for a, b in gaps:
        covered = {
            k: sum(max(0, min(b, y) - max(a, x)) for x, y in spans[k]) for k in ("input", "communication", "host")
        }
        best = max(covered, key=covered.get)
        out.append((best if covered[best] else "other", a, b - a))
    out.sort(key=lambda s: s[2], reverse=True)
    return out[:3]


def waits(events):
    pending, result = {}, defaultdict(float)
    for e in events:
        match e["ph"]:
            case "B" if e["name"] == "NEGOTIATE_ALLREDUCE":
                pending[e["pid"]] = {}
            case "X":
                if e["pid"] in pending:
                    pending[e["pid"]][int(e["name"])] = e["ts"]
            case "E":
                got = pending.pop(e["pid"], None)
                if got:
                    last = max(got, key=got.get)
                    for rank in got:
                        if rank != last:
                            result[rank, last] += got[last] - got[rank]
    return dict(result)
