"""Wrong answers to `stalls` and `waits`."""

from autograder.authoring import wrong

HERE = "machines.profile"
GAPS = ("the_three_longest_gaps", "their_causes")


@wrong(HERE, "an all-reduce taken for work", fails=GAPS, says="All-reduces count as computing")
def stalls(events):
    times = {"compute": [], "input": [], "communication": [], "host": []}
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "kernel":
            times["compute"].append((event["ts"], event["ts"] + event["dur"]))
            row = "communication" if name.startswith("nccl") else "compute"
        elif name.startswith("enumerate(DataLoader)"):
            row = "input"
        elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            row = "host"
        else:
            continue
        times[row].append((event["ts"], event["ts"] + event["dur"]))
    compute, found = sorted(times.pop("compute")), []
    latest = compute[0][1]
    for begin, end in compute:
        if begin > latest:
            shares = {
                row: sum(max(0, min(begin, b) - max(latest, a)) for a, b in parts) for row, parts in times.items()
            }
            cause = max(shares, key=shares.get) if any(shares.values()) else "other"
            found.append((cause, latest, begin - latest))
        latest = max(latest, end)
    return sorted(found, key=lambda stall: -stall[2])[:3]


@wrong(HERE, "a copy taken for work", fails=GAPS, says="Copies count as computing")
def stalls(events):
    times = {"compute": [], "input": [], "communication": [], "host": []}
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "kernel":
            row = "communication" if name.startswith("nccl") else "compute"
        elif kind == "gpu_memcpy":
            row = "compute"
        elif name.startswith("enumerate(DataLoader)"):
            row = "input"
        elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            row = "host"
        else:
            continue
        times[row].append((event["ts"], event["ts"] + event["dur"]))
    compute, found = sorted(times.pop("compute")), []
    latest = compute[0][1]
    for begin, end in compute:
        if begin > latest:
            shares = {
                row: sum(max(0, min(begin, b) - max(latest, a)) for a, b in parts) for row, parts in times.items()
            }
            cause = max(shares, key=shares.get) if any(shares.values()) else "other"
            found.append((cause, latest, begin - latest))
        latest = max(latest, end)
    return sorted(found, key=lambda stall: -stall[2])[:3]


@wrong(HERE, "kernels that overlap taken one after another", fails=GAPS, says="Remember the latest end")
def stalls(events):
    times = {"compute": [], "input": [], "communication": [], "host": []}
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "kernel":
            row = "communication" if name.startswith("nccl") else "compute"
        elif name.startswith("enumerate(DataLoader)"):
            row = "input"
        elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            row = "host"
        else:
            continue
        times[row].append((event["ts"], event["ts"] + event["dur"]))
    compute, found = sorted(times.pop("compute")), []
    latest = compute[0][1]
    for begin, end in compute:
        if begin > latest:
            shares = {
                row: sum(max(0, min(begin, b) - max(latest, a)) for a, b in parts) for row, parts in times.items()
            }
            cause = max(shares, key=shares.get) if any(shares.values()) else "other"
            found.append((cause, latest, begin - latest))
        latest = end
    return sorted(found, key=lambda stall: -stall[2])[:3]


@wrong(HERE, "the first three stalls", fails=GAPS, says="return the longest")
def stalls(events):
    times = {"compute": [], "input": [], "communication": [], "host": []}
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "kernel":
            row = "communication" if name.startswith("nccl") else "compute"
        elif name.startswith("enumerate(DataLoader)"):
            row = "input"
        elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            row = "host"
        else:
            continue
        times[row].append((event["ts"], event["ts"] + event["dur"]))
    compute, found = sorted(times.pop("compute")), []
    latest = compute[0][1]
    for begin, end in compute:
        if begin > latest:
            shares = {
                row: sum(max(0, min(begin, b) - max(latest, a)) for a, b in parts) for row, parts in times.items()
            }
            cause = max(shares, key=shares.get) if any(shares.values()) else "other"
            found.append((cause, latest, begin - latest))
        latest = max(latest, end)
    return found[:3]


@wrong(HERE, "the longest stall last", fails=GAPS, says="The longest comes first")
def stalls(events):
    times = {"compute": [], "input": [], "communication": [], "host": []}
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "kernel":
            row = "communication" if name.startswith("nccl") else "compute"
        elif name.startswith("enumerate(DataLoader)"):
            row = "input"
        elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            row = "host"
        else:
            continue
        times[row].append((event["ts"], event["ts"] + event["dur"]))
    compute, found = sorted(times.pop("compute")), []
    latest = compute[0][1]
    for begin, end in compute:
        if begin > latest:
            shares = {
                row: sum(max(0, min(begin, b) - max(latest, a)) for a, b in parts) for row, parts in times.items()
            }
            cause = max(shares, key=shares.get) if any(shares.values()) else "other"
            found.append((cause, latest, begin - latest))
        latest = max(latest, end)
    return sorted(found, key=lambda stall: -stall[2])[:3][::-1]


@wrong(HERE, "all stalls", fails=GAPS, says="return the three longest")
def stalls(events):
    times = {"compute": [], "input": [], "communication": [], "host": []}
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "kernel":
            row = "communication" if name.startswith("nccl") else "compute"
        elif name.startswith("enumerate(DataLoader)"):
            row = "input"
        elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            row = "host"
        else:
            continue
        times[row].append((event["ts"], event["ts"] + event["dur"]))
    compute, found = sorted(times.pop("compute")), []
    latest = compute[0][1]
    for begin, end in compute:
        if begin > latest:
            shares = {
                row: sum(max(0, min(begin, b) - max(latest, a)) for a, b in parts) for row, parts in times.items()
            }
            cause = max(shares, key=shares.get) if any(shares.values()) else "other"
            found.append((cause, latest, begin - latest))
        latest = max(latest, end)
    return sorted(found, key=lambda stall: -stall[2])


@wrong(HERE, "the longest event as the cause", fails="their_causes", says="one long event may cover less")
def stalls(events):
    times = {"compute": [], "input": [], "communication": [], "host": []}
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "kernel":
            row = "communication" if name.startswith("nccl") else "compute"
        elif name.startswith("enumerate(DataLoader)"):
            row = "input"
        elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            row = "host"
        else:
            continue
        times[row].append((event["ts"], event["ts"] + event["dur"]))
    compute, found = sorted(times.pop("compute")), []
    latest = compute[0][1]
    for begin, end in compute:
        if begin > latest:
            shares = {
                row: max((max(0, min(begin, b) - max(latest, a)) for a, b in parts), default=0)
                for row, parts in times.items()
            }
            cause = max(shares, key=shares.get) if any(shares.values()) else "other"
            found.append((cause, latest, begin - latest))
        latest = max(latest, end)
    return sorted(found, key=lambda stall: -stall[2])[:3]


@wrong(HERE, "events that touch a stall, at full length", fails="their_causes", says="Only the part of an event inside")
def stalls(events):
    times = {"compute": [], "input": [], "communication": [], "host": []}
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "kernel":
            row = "communication" if name.startswith("nccl") else "compute"
        elif name.startswith("enumerate(DataLoader)"):
            row = "input"
        elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            row = "host"
        else:
            continue
        times[row].append((event["ts"], event["ts"] + event["dur"]))
    compute, found = sorted(times.pop("compute")), []
    latest = compute[0][1]
    for begin, end in compute:
        if begin > latest:
            shares = {row: sum(b - a for a, b in parts if a < begin and b > latest) for row, parts in times.items()}
            cause = max(shares, key=shares.get) if any(shares.values()) else "other"
            found.append((cause, latest, begin - latest))
        latest = max(latest, end)
    return sorted(found, key=lambda stall: -stall[2])[:3]


@wrong(HERE, "events counted", fails="their_causes", says="Count the time")
def stalls(events):
    times = {"compute": [], "input": [], "communication": [], "host": []}
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "kernel":
            row = "communication" if name.startswith("nccl") else "compute"
        elif name.startswith("enumerate(DataLoader)"):
            row = "input"
        elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            row = "host"
        else:
            continue
        times[row].append((event["ts"], event["ts"] + event["dur"]))
    compute, found = sorted(times.pop("compute")), []
    latest = compute[0][1]
    for begin, end in compute:
        if begin > latest:
            shares = {row: sum(a < begin and b > latest for a, b in parts) for row, parts in times.items()}
            cause = max(shares, key=shares.get) if any(shares.values()) else "other"
            found.append((cause, latest, begin - latest))
        latest = max(latest, end)
    return sorted(found, key=lambda stall: -stall[2])[:3]


@wrong(HERE, "no other causes", fails="their_causes", says="has the cause other")
def stalls(events):
    times = {"compute": [], "input": [], "communication": [], "host": []}
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "kernel":
            row = "communication" if name.startswith("nccl") else "compute"
        elif name.startswith("enumerate(DataLoader)"):
            row = "input"
        elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            row = "host"
        else:
            continue
        times[row].append((event["ts"], event["ts"] + event["dur"]))
    compute, found = sorted(times.pop("compute")), []
    latest = compute[0][1]
    for begin, end in compute:
        if begin > latest:
            shares = {
                row: sum(max(0, min(begin, b) - max(latest, a)) for a, b in parts) for row, parts in times.items()
            }
            cause = max(shares, key=shares.get)
            found.append((cause, latest, begin - latest))
        latest = max(latest, end)
    return sorted(found, key=lambda stall: -stall[2])[:3]


@wrong(HERE, "pairs reversed", fails="who_waits_for_whom", says="The pairs are reversed")
def waits(events):
    requests, found = {}, {}
    for event in events:
        tensor = event["pid"]
        if event["ph"] == "X":
            requests.setdefault(tensor, []).append((event["ts"], int(event["name"])))
        elif event["ph"] == "E" and tensor in requests:
            ticks = requests.pop(tensor)
            end, last = max(ticks)
            for tick, rank in ticks:
                if rank != last:
                    found[last, rank] = found.get((last, rank), 0) + end - tick
    return found


@wrong(HERE, "waiting from the first request on", fails="who_waits_for_whom", says="from its own request on")
def waits(events):
    requests, found = {}, {}
    for event in events:
        tensor = event["pid"]
        if event["ph"] == "X":
            requests.setdefault(tensor, []).append((event["ts"], int(event["name"])))
        elif event["ph"] == "E" and tensor in requests:
            ticks = requests.pop(tensor)
            end, last = max(ticks)
            for tick, rank in ticks:
                if rank != last:
                    found[rank, last] = found.get((rank, last), 0) + end - min(ticks)[0]
    return found


@wrong(HERE, "the all-reduce counted as waiting", fails="who_waits_for_whom", says="The all-reduce itself")
def waits(events):
    requests, found = {}, {}
    for event in events:
        tensor = event["pid"]
        if event["ph"] == "X":
            requests.setdefault(tensor, []).append((event["ts"], int(event["name"])))
        elif event["ph"] == "E" and tensor in requests:
            ticks = requests.pop(tensor)
            end, last = max(ticks)
            for tick, rank in ticks:
                if rank != last:
                    found[rank, last] = found.get((rank, last), 0) + end + 40 - tick
    return found


@wrong(HERE, "one tensor only", fails="who_waits_for_whom", says="All tensors count")
def waits(events):
    requests, found = {}, {}
    for event in events:
        tensor = event["pid"]
        if event["ph"] == "X":
            requests.setdefault(tensor, []).append((event["ts"], int(event["name"])))
        elif event["ph"] == "E" and tensor in requests and tensor == 0:
            ticks = requests.pop(tensor)
            end, last = max(ticks)
            for tick, rank in ticks:
                if rank != last:
                    found[rank, last] = found.get((rank, last), 0) + end - tick
    return found


@wrong(HERE, "ranks as strings", fails="who_waits_for_whom", says="The ranks are ints")
def waits(events):
    requests, found = {}, {}
    for event in events:
        tensor = event["pid"]
        if event["ph"] == "X":
            requests.setdefault(tensor, []).append((event["ts"], event["name"]))
        elif event["ph"] == "E" and tensor in requests:
            ticks = requests.pop(tensor)
            end, last = max(ticks)
            for tick, rank in ticks:
                if rank != last:
                    found[rank, last] = found.get((rank, last), 0) + end - tick
    return found
