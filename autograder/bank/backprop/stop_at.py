"""Wrong answers to `stop_at`."""

from autograder.authoring import wrong

ALL = ("stops_by_patience", "keeps_the_best", "chooses_the_candidate", "tests_once", "ends_at_most_epochs")


@wrong("backprop.stop_at", "stops one epoch too late", fails=ALL, says="You stop one epoch too late")
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        best = float("inf")
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            if now < best:
                best, best_epoch, kept = now, epoch, network
            elif epoch - best_epoch > patience:
                break
        if best < lowest:
            lowest, chosen, at = best, kept, best_epoch
    return chosen, at, test(chosen)


@wrong("backprop.stop_at", "compares with the last loss", fails=ALL, says="compare it with the lowest so far")
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        best = last = float("inf")
        waited = 0
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            waited = 0 if now < last else waited + 1
            last = now
            if now < best:
                best, best_epoch, kept = now, epoch, network
            if waited == patience:
                break
        if best < lowest:
            lowest, chosen, at = best, kept, best_epoch
    return chosen, at, test(chosen)


@wrong("backprop.stop_at", "never resets the count", fails=ALL, says="You count all epochs without a new lowest loss")
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        best, waited = float("inf"), 0
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            if now < best:
                best, best_epoch, kept = now, epoch, network
            else:
                waited += 1
                if waited == patience:
                    break
        if best < lowest:
            lowest, chosen, at = best, kept, best_epoch
    return chosen, at, test(chosen)


@wrong("backprop.stop_at", "an equal loss is a better one", fails=ALL, says="An equal loss counts as lower")
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        best = float("inf")
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            if now <= best:
                best, best_epoch, kept = now, epoch, network
            elif epoch - best_epoch == patience:
                break
        if best < lowest:
            lowest, chosen, at = best, kept, best_epoch
    return chosen, at, test(chosen)


@wrong("backprop.stop_at", "never stops", fails=ALL, says="You never stop")
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            if now < lowest:
                lowest, chosen, at = now, network, epoch
    return chosen, at, test(chosen)


@wrong("backprop.stop_at", "always trains the start", fails=ALL, says="You train from the same network twice")
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for start in candidates:
        best = float("inf")
        for epoch in range(1, most_epochs + 1):
            network = train_once(start)
            now = validate(network)
            if now < best:
                best, best_epoch, kept = now, epoch, network
            elif epoch - best_epoch == patience:
                break
        if best < lowest:
            lowest, chosen, at = best, kept, best_epoch
    return chosen, at, test(chosen)


@wrong("backprop.stop_at", "stops by the test set", fails=ALL, says="the epochs after which you read the validation")
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        best = float("inf")
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = test(network)
            if now < best:
                best, best_epoch, kept = now, epoch, network
            elif epoch - best_epoch == patience:
                break
        if best < lowest:
            lowest, chosen, at = best, kept, best_epoch
    return chosen, at, test(chosen)


@wrong(
    "backprop.stop_at",
    "returns the last network",
    fails=("keeps_the_best", "chooses_the_candidate"),
    says="keep that network when you see its loss",
)
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        best = float("inf")
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            if now < best:
                best, best_epoch = now, epoch
            elif epoch - best_epoch == patience:
                break
        if best < lowest:
            lowest, chosen, at = best, network, best_epoch
    return chosen, at, test(chosen)


@wrong(
    "backprop.stop_at",
    "counts epochs from 0",
    fails=("keeps_the_best", "chooses_the_candidate", "ends_at_most_epochs"),
    says="Epochs count from 1",
)
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        best = float("inf")
        for epoch in range(most_epochs):
            network = train_once(network)
            now = validate(network)
            if now < best:
                best, best_epoch, kept = now, epoch, network
            elif epoch - best_epoch == patience:
                break
        if best < lowest:
            lowest, chosen, at = best, kept, best_epoch
    return chosen, at, test(chosen)


@wrong(
    "backprop.stop_at",
    "one patience for all candidates",
    fails="chooses_the_candidate",
    says="the number of epochs that you train",
)
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    best = float("inf")
    for network in candidates:
        waited = 0
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            waited += 1
            if now < best:
                best, chosen, at, waited = now, network, epoch, 0
            elif waited == patience:
                break
    return chosen, at, test(chosen)


@wrong(
    "backprop.stop_at",
    "of equal candidates the later",
    fails="chooses_the_candidate",
    says="of equals the earlier candidate counts",
)
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        best = float("inf")
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            if now < best:
                best, best_epoch, kept = now, epoch, network
            elif epoch - best_epoch == patience:
                break
        if best <= lowest:
            lowest, chosen, at = best, kept, best_epoch
    return chosen, at, test(chosen)


@wrong(
    "backprop.stop_at",
    "chooses the candidate by the test set",
    fails=("chooses_the_candidate", "tests_once"),
    says="what chooses or stops is the validation set",
)
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        best = float("inf")
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            if now < best:
                best, best_epoch, kept = now, epoch, network
            elif epoch - best_epoch == patience:
                break
        result = test(kept)
        if result < lowest:
            lowest, chosen, at = result, kept, best_epoch
    return chosen, at, lowest


@wrong("backprop.stop_at", "looks at the test set before", fails="tests_once", says="You read the test set 2 times")
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    print("before training:", test(candidates[0]))
    lowest = float("inf")
    for network in candidates:
        best = float("inf")
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            if now < best:
                best, best_epoch, kept = now, epoch, network
            elif epoch - best_epoch == patience:
                break
        if best < lowest:
            lowest, chosen, at = best, kept, best_epoch
    return chosen, at, test(chosen)


@wrong("backprop.stop_at", "never tests", fails=("chooses_the_candidate", "tests_once"), says="test set 0 times")
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        best = float("inf")
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            if now < best:
                best, best_epoch, kept = now, epoch, network
            elif epoch - best_epoch == patience:
                break
        if best < lowest:
            lowest, chosen, at = best, kept, best_epoch
    return chosen, at, lowest


@wrong(
    "backprop.stop_at",
    "tests the last network, not the chosen one",
    fails=("chooses_the_candidate", "tests_once"),
    says="test the network that you chose",
)
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    lowest = float("inf")
    for network in candidates:
        best = float("inf")
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            if now < best:
                best, best_epoch, kept = now, epoch, network
            elif epoch - best_epoch == patience:
                break
        if best < lowest:
            lowest, chosen, at = best, kept, best_epoch
    return chosen, at, test(network)
