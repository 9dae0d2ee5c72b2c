# gradient_descent.minibatches: 4 points
# One list for all epochs, turned by a drawn number.
import random

import torch


def minibatches(n, batch_size, generator):
    order = list(range(n))
    random.Random(7).shuffle(order)
    first = int(torch.randint(n, (), generator=generator))
    return list(torch.tensor(order[first:] + order[:first]).split(batch_size))
