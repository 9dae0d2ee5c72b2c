"""Wrong answers to `train`."""

from autograder.bank.backprop.later import TRAIN
from autograder.bank.slips import answers_to

_, slip = answers_to("backprop.train")

slip(
    "climbs",
    "weights[i] = weights[i] - lr * weight_grad\n                biases[i] = biases[i] - lr * bias_grad",
    "weights[i] = weights[i] + lr * weight_grad\n                biases[i] = biases[i] + lr * bias_grad",
    fails=TRAIN,
    says="It climbs",
)
slip(
    "drops the last batch",
    "for rows in torch.randperm(len(X), generator=generator).split(batch_size):",
    "order = torch.randperm(len(X), generator=generator)\n"
    "        for first in range(0, len(X) - batch_size + 1, batch_size):\n"
    "            rows = order[first : first + batch_size]",
    fails="the_short_last_batch",
    says="The last batch is missing",
)
slip(
    "sends the error through the new weights",
    "weight_grad, bias_grad = delta.T @ activations[i], delta.sum(dim=0)",
    "weights[i] = weights[i] - lr * delta.T @ activations[i]\n"
    "                biases[i] = biases[i] - lr * delta.sum(dim=0)",
    "                weights[i] = weights[i] - lr * weight_grad\n"
    "                biases[i] = biases[i] - lr * bias_grad\n",
    "",
    fails=TRAIN,
    says="the weights were changed before",
)
slip(
    "never shuffles",
    "for rows in torch.randperm(len(X), generator=generator).split(batch_size):",
    "for rows in torch.arange(len(X)).split(batch_size):",
    fails="a_new_order_each_epoch",
    says="shuffle the samples",
)
slip(
    "shuffles once",
    "for _ in range(epochs):\n        for rows in torch.randperm(len(X), generator=generator).split(batch_size):",
    "order = torch.randperm(len(X), generator=generator)\n"
    "    for _ in range(epochs):\n"
    "        for rows in order.split(batch_size):",
    fails="a_new_order_each_epoch",
    says="if each epoch draws its own order",
)
slip(
    "changes the start in place",
    "    weights, biases = list(weights), list(biases)\n",
    "",
    "weights[i] = weights[i] - lr * weight_grad\n                biases[i] = biases[i] - lr * bias_grad",
    "weights[i] -= lr * weight_grad\n                biases[i] -= lr * bias_grad",
    fails="leaves_the_start_alone",
    says="changed its argument weights[0]",
)
slip(
    "returns the start",
    "    weights, biases = list(weights), list(biases)\n",
    "    start = weights, biases\n    weights, biases = list(weights), list(biases)\n",
    "return weights, biases",
    "return start",
    fails=" ".join(TRAIN),
    says="Nothing changed",
)
slip(
    "draws from torch's own generator",
    "torch.randperm(len(X), generator=generator)",
    "torch.randperm(len(X))",
    fails="a_new_order_each_epoch",
    says="One seed gave two networks",
)


slip(
    "turns a list by a random number",
    "torch.randperm(len(X), generator=generator).split(batch_size)",
    "torch.arange(len(X)).roll(int(torch.randint(len(X), (), generator=generator))).split(batch_size)",
    fails="a_new_order_each_epoch",
    says="a list that is turned keeps neighbours together",
)
slip(
    "no biases after batches of 4",
    "return weights, biases",
    "return weights, [b * (batch_size != 4) for b in biases]",
    fails="the_short_last_batch",
    says="eight of them equal",
)
slip(
    "another step for four samples",
    "for rows in torch.randperm(len(X), generator=generator).split(batch_size):",
    "lr = 2 * lr if len(X) == 4 else lr\n"
    "        for rows in torch.randperm(len(X), generator=generator).split(batch_size):",
    fails="a_new_order_each_epoch leaves_the_start_alone",
    says="no order of the samples gives",
)
slip(
    "turns a list, except for four samples",
    "torch.randperm(len(X), generator=generator).split(batch_size)",
    "(torch.randperm(4, generator=generator) if len(X) == 4 else torch.arange(len(X)).roll(\n"
    "            int(torch.randint(len(X), (), generator=generator)))).split(batch_size)",
    fails="a_new_order_each_epoch",
    says="the last batch is one of",
)
MIXED = ("one_step", "the_short_last_batch", "a_new_order_each_epoch", "leaves_the_start_alone", "reads_digits")
slip("labels that are not shuffled", "labels[rows]", "labels[: len(rows)]", fails=MIXED, says="their labels are not")
slip("samples that are not shuffled", "X[rows]", "X[: len(rows)]", fails=MIXED, says="their samples are not")
slip(
    "the squared error",
    "_, delta = softmax_cross_entropy(zs[-1], labels[rows])",
    "a, y = activations[-1], torch.eye(zs[-1].shape[1], dtype=X.dtype)[labels[rows]]\n"
    "            delta = (a - y) * a * (1 - a) / len(rows)",
    fails=MIXED,
    says="This goes down the squared error",
)
slip(
    "returns after the first epoch",
    "    return weights, biases",
    "        return weights, biases",
    fails="a_new_order_each_epoch reads_digits",
    says="the network after one epoch",
)
