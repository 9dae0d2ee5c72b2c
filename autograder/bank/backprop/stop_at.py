"""Wrong answers to `stop_at`."""

from functools import partial

from autograder.bank.slips import slip

slip = partial(slip, "backprop.stop_at")
KEEPS, CHOOSES, TESTS, ENDS = "keeps_the_best", "chooses_the_candidate", "tests_once", "ends_at_most_epochs"
ALL = f"stops_by_patience {KEEPS} {CHOOSES} {TESTS} {ENDS}"
OWN, READ = '        own = float("inf")\n', "            now = validate(network)\n"
KEEP, CHOOSE = "own, best_epoch, best = now, epoch, network", "lowest, chosen_epoch, chosen = own, best_epoch, best"
LOWER, CHOSEN, RETURN = "if now < own:", "        if own < lowest:\n", "return chosen, chosen_epoch, test(chosen)"
STOP = "elif epoch - best_epoch == patience:"
BREAK = f"            {STOP}\n                break\n"

slip("stops one epoch too late", STOP, STOP.replace("==", ">"), fails=ALL, says="You stop one epoch too late")
slip(
    "compares with the last loss",
    *(OWN, '        own = last = float("inf")\n        waited = 0\n'),
    *(READ, f"{READ}            waited = 0 if now < last else waited + 1\n            last = now\n"),
    *(STOP, "if waited == patience:"),
    fails=ALL,
    says="compare it with the lowest so far",
)
slip(
    "never resets the count",
    *(OWN, '        own, waited = float("inf"), 0\n'),
    *(
        BREAK,
        "            else:\n                waited += 1\n            if waited == patience:\n                break\n",
    ),
    fails=ALL,
    says="You count all epochs without a new lowest loss",
)
slip("an equal loss is a better one", LOWER, "if now <= own:", fails=ALL, says="An equal loss counts as lower")
slip("never stops", BREAK, "", fails=ALL, says="You never stop")
slip(
    "always trains the start",
    *("for network in candidates", "for start in candidates", "train_once(network)", "train_once(start)"),
    fails=ALL,
    says="You train from the same network twice",
)
slip(
    "stops by the test set",
    *(READ, "            now = test(network)\n"),
    fails=ALL,
    says="the epochs after which you read the validation",
)
slip(
    "returns the last network",
    *(KEEP, "own, best_epoch = now, epoch", CHOOSE, "lowest, chosen_epoch, chosen = own, best_epoch, network"),
    fails=f"{KEEPS} {CHOOSES}",
    says="keep that network when you see its loss",
)
slip(
    "counts epochs from 0",
    *("range(1, most_epochs + 1)", "range(most_epochs)"),
    fails=f"{KEEPS} {CHOOSES} {ENDS}",
    says="Epochs count from 1",
)
slip(
    "one patience for all candidates",
    *('    lowest = float("inf")\n', '    lowest = own = float("inf")\n', OWN, "        waited = 0\n"),
    *(READ, f"{READ}            waited += 1\n", KEEP, "own, best_epoch, best, waited = now, epoch, network, 0"),
    *(STOP, "elif waited == patience:"),
    fails=CHOOSES,
    says="the number of epochs that you train",
)
slip(
    "of equal candidates the later",
    *(CHOSEN, "        if own <= lowest:\n"),
    fails=CHOOSES,
    says="of equals the earlier candidate counts",
)
slip(
    "chooses the candidate by the test set",
    *(CHOSEN, "        own = test(best)\n" + CHOSEN, RETURN, "return chosen, chosen_epoch, lowest"),
    fails=f"{CHOOSES} {TESTS}",
    says="what chooses or stops is the validation set",
)
slip(
    "looks at the test set before",
    *('    lowest = float("inf")\n', '    print("before training:", test(candidates[0]))\n    lowest = float("inf")\n'),
    fails=TESTS,
    says="You read the test set 2 times",
)
slip("never tests", RETURN, "return chosen, chosen_epoch, lowest", fails=f"{CHOOSES} {TESTS}", says="test set 0 times")
slip(
    "tests the last network, not the chosen one",
    *(RETURN, "return chosen, chosen_epoch, test(network)"),
    fails=f"{CHOOSES} {TESTS}",
    says="test the network that you chose",
)
slip(
    "a loss of 0 taken for none",
    *(OWN, "        own = None\n"),
    *(LOWER, "if not own or now < own:"),
    fails=ALL,
    says="A lowest loss of 0 is a loss",
)
slip(
    "reads the validation loss twice",
    *(LOWER, "if validate(network) < own:"),
    fails=ALL,
    says="Each new network is validated once",
)
slip(
    "changes the result for a patience of 2",
    *(RETURN, "return chosen, chosen_epoch, test(chosen) + (patience == 2)"),
    fails=f"{ALL}",
    says="the result on the test set: what test returned",
)
slip(
    "thirty epochs at most",
    "range(1, most_epochs + 1)",
    "range(1, min(most_epochs, 30) + 1)",
    fails=ENDS,
    says="most_epochs =",
)
