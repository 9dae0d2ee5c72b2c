"""Wrong answers to `route` and `balance`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("attention.route")
ROUTE = ("choices", "full_experts")

slip(
    "odds not divided by their sum",
    "chosen, experts = odds.topk(k, dim=1)\n"
    "    weights, taken = chosen / chosen.sum(1, keepdim=True), [0] * odds.shape[1]",
    "weights, experts = odds.topk(k, dim=1)\n    weights, taken = weights.clone(), [0] * odds.shape[1]",
    fails=ROUTE,
    says="Divide by the sum of the k odds",
)


@wrong("nothing is dropped", fails="full_experts", says="Nothing is dropped")
def route(odds, k, capacity):
    chosen, experts = odds.topk(k, dim=1)
    return experts, chosen / chosen.sum(1, keepdim=True)


slip(
    "token after token",
    "for choice in range(k):\n        for token, expert in enumerate(experts[:, choice].tolist()):",
    "for token, row in enumerate(experts.tolist()):\n        for choice, expert in enumerate(row):",
    fails="full_experts",
    says="First choices of all tokens come before second",
)
slip(
    "later tokens first",
    "for token, expert in enumerate(experts[:, choice].tolist()):",
    "for token in reversed(range(len(odds))):\n            expert = int(experts[token, choice])",
    fails="full_experts",
    says="Earlier tokens come before later ones",
)


@wrong("one fewer than there is room for", fails="full_experts", says="yours takes one fewer")
def route(odds, k, capacity):
    chosen, experts = odds.topk(k, dim=1)
    weights, taken = chosen / chosen.sum(1, keepdim=True), [0] * odds.shape[1]
    for choice in range(k):
        for token, expert in enumerate(experts[:, choice].tolist()):
            taken[expert] += 1
            if taken[expert] >= capacity:
                weights[token, choice] = 0
    return experts, weights


@wrong("one more than there is room for", fails="full_experts", says="yours takes one more")
def route(odds, k, capacity):
    chosen, experts = odds.topk(k, dim=1)
    weights, taken = chosen / chosen.sum(1, keepdim=True), [0] * odds.shape[1]
    for choice in range(k):
        for token, expert in enumerate(experts[:, choice].tolist()):
            if taken[expert] > capacity:
                weights[token, choice] = 0
            taken[expert] += 1
    return experts, weights


@wrong("divided after the dropping", fails="full_experts", says="does not change the other weights of its token")
def route(odds, k, capacity):
    weights, experts = odds.topk(k, dim=1)
    weights, taken = weights.clone(), [0] * odds.shape[1]
    for choice in range(k):
        for token, expert in enumerate(experts[:, choice].tolist()):
            if taken[expert] == capacity:
                weights[token, choice] = 0
            else:
                taken[expert] += 1
    return experts, (weights / weights.sum(1, keepdim=True)).nan_to_num()


@wrong("the worst experts", fails=ROUTE, says="the experts with the worst odds")
def route(odds, k, capacity):
    chosen, experts = odds.topk(k, dim=1, largest=False)
    return experts, chosen / chosen.sum(1, keepdim=True)


@wrong("the best comes last", fails=ROUTE, says="The expert with the best odds comes first")
def route(odds, k, capacity):
    chosen, experts = odds.topk(k, dim=1)
    weights = chosen / chosen.sum(1, keepdim=True)
    return experts.flip(1), weights.flip(1)


@wrong("not times the number of experts", fails="balance_of_a_gate", says="Multiply by the number of experts")
def balance(odds):
    share = odds.argmax(1).bincount(minlength=odds.shape[1]) / len(odds)
    return float(share.double() @ odds.mean(0).double())


@wrong("mean odds squared", fails="balance_of_a_gate", says="not the mean odds again")
def balance(odds):
    return odds.shape[1] * float(odds.mean(0).square().sum())


@wrong("shares squared", fails="balance_of_a_gate", says="not the share of first choices again")
def balance(odds):
    share = odds.argmax(1).bincount(minlength=odds.shape[1]) / len(odds)
    return odds.shape[1] * float(share.double().square().sum())


@wrong("counts for shares", fails="balance_of_a_gate", says="Take shares and means, not sums")
def balance(odds):
    count = odds.argmax(1).bincount(minlength=odds.shape[1]).double()
    return odds.shape[1] * float(count @ odds.mean(0).double())


slip(
    "crosses out the chosen experts in odds",
    "odds.topk(k, dim=1)",
    "odds.topk(k, dim=1)\n    odds.scatter_(1, experts, 0.0)",
    fails=" ".join(ROUTE),
    says="changed its argument odds",
)
slip(
    "experts of 32 bits",
    "return experts, weights",
    "return experts.int(), weights",
    fails=" ".join(ROUTE),
    says="int64",
)
slip(
    "weights of float64",
    "return experts, weights",
    "return experts, weights.double()",
    fails=" ".join(ROUTE),
    says="expected float32",
)
