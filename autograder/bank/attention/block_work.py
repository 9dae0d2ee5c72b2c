"""Wrong answers to `block_work`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("attention.block_work")


@wrong("one matrix for q, k and v", fails="weights", says="Queries, keys and values have one matrix each")
def block_work(b, n, h, heads):
    return 10 * h**2, 24 * b * n * h**2 + 4 * b * n**2 * h, 12 * b * n * h + b * heads * n**2


@wrong("a narrow second layer", fails="weights", says="`up` and `down` have 4 h² weights each")
def block_work(b, n, h, heads):
    return 6 * h**2, 24 * b * n * h**2 + 4 * b * n**2 * h, 12 * b * n * h + b * heads * n**2


@wrong("weights for each token", fails="weights", says="they do not grow with n")
def block_work(b, n, h, heads):
    return 12 * b * n * h**2, 24 * b * n * h**2 + 4 * b * n**2 * h, 12 * b * n * h + b * heads * n**2


@wrong("a MAC counted once", fails="operations", says="are two operations")
def block_work(b, n, h, heads):
    return 12 * h**2, 12 * b * n * h**2 + 2 * b * n**2 * h, 12 * b * n * h + b * heads * n**2


@wrong("a MAC of the weights counted once", fails="operations", says="Each weight takes two operations for a token")
def block_work(b, n, h, heads):
    return 12 * h**2, 12 * b * n * h**2 + 4 * b * n**2 * h, 12 * b * n * h + b * heads * n**2


@wrong("no scores", fails="operations", says="The scores and their product with the values are missing")
def block_work(b, n, h, heads):
    return 12 * h**2, 24 * b * n * h**2, 12 * b * n * h + b * heads * n**2


@wrong("the scores alone", fails="operations", says="Two products have n² pairs")
def block_work(b, n, h, heads):
    return 12 * h**2, 24 * b * n * h**2 + 2 * b * n**2 * h, 12 * b * n * h + b * heads * n**2


@wrong("all numbers in each head", fails="operations", says="do not multiply the work")
def block_work(b, n, h, heads):
    return 12 * h**2, 24 * b * n * h**2 + 4 * b * n**2 * h * heads, 12 * b * n * h + b * heads * n**2


@wrong("the backward pass, too", fails="operations", says="count only the forward pass")
def block_work(b, n, h, heads):
    return 12 * h**2, 3 * (24 * b * n * h**2 + 4 * b * n**2 * h), 12 * b * n * h + b * heads * n**2


@wrong("scores of one head", fails="activations", says="Each head keeps n² numbers of its own")
def block_work(b, n, h, heads):
    return 12 * h**2, 24 * b * n * h**2 + 4 * b * n**2 * h, 12 * b * n * h + b * n**2


@wrong("no softmax kept", fails="activations", says="The output of the softmax is missing")
def block_work(b, n, h, heads):
    return 12 * h**2, 24 * b * n * h**2 + 4 * b * n**2 * h, 12 * b * n * h


@wrong("scores kept before and after", fails="activations", says="The scores before the softmax are not needed")
def block_work(b, n, h, heads):
    return 12 * h**2, 24 * b * n * h**2 + 4 * b * n**2 * h, 12 * b * n * h + 2 * b * heads * n**2


@wrong("ReLU's output counted twice", fails="activations", says="it counts once")
def block_work(b, n, h, heads):
    return 12 * h**2, 24 * b * n * h**2 + 4 * b * n**2 * h, 16 * b * n * h + b * heads * n**2


@wrong("bytes", fails="activations", says="Those are bytes: count numbers")
def block_work(b, n, h, heads):
    return 12 * h**2, 24 * b * n * h**2 + 4 * b * n**2 * h, 4 * (12 * b * n * h + b * heads * n**2)


slip(
    "a mask halves the scores", "4 * b * n**2 * h", "2 * b * n**2 * h", fails="operations", says="A mask makes neither"
)
slip("q, k and v are not kept", "12 * b * n * h", "9 * b * n * h", fails="activations", says="q, k and v have as many")
slip(
    "norms keep one tensor",
    "12 * b * n * h",
    "10 * b * n * h",
    fails="activations",
    says="Count inputs and outputs of both norms",
)
slip("no merged heads", "12 * b * n * h", "11 * b * n * h", fails="activations", says="as many as the merged heads")
