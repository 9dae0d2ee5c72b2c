"""Lab 03: a machine that learns, and what it cannot. Checks of its seven exercises.

Samples are multiples of 1/8 and learning rates powers of two, so that float32 adds them without rounding: an answer may
add in any order and still makes exactly the same updates.
"""

import math

import torch

from autograder import checks
from autograder.authoring import Lab
from hpcdl.nn import perceptron as oracle

lab = Lab("perceptron", number=3, title="A machine that learns, and what it cannot")

XOR = torch.tensor([[1.0, -1.0, -1.0], [1.0, -1.0, 1.0], [1.0, 1.0, -1.0], [1.0, 1.0, 1.0]])
XOR_LABELS = torch.tensor([-1.0, 1.0, 1.0, -1.0])


def samples(n: int, d: int, rng: torch.Generator, reach: int = 16) -> torch.Tensor:
    """(n, d + 1): x_0 = 1, then multiples of 1/8 from -reach/8 to reach/8."""
    return oracle.with_bias(torch.randint(-reach, reach + 1, (n, d), generator=rng) / 8)


def separable_set(n: int, d: int, rng: torch.Generator, gap: float = 0.25):
    """Samples (n, d + 1), their labels (n,), and a w that separates them, none nearer to its cut than `gap` in z."""
    w = samples(1, d, rng).squeeze(0) + 1 / 64  # so that no weight is 0, and |w| is not 1
    w[0] = 0.5
    X = samples(40 * n, d, rng)
    X = X[(X @ w).abs() >= gap][:n]
    return X, oracle.predict(w, X), w


def slow_set(rng: torch.Generator, epochs: int):
    """A separable set on which the perceptron takes more than `epochs` epochs to settle, and its history (lr = 1/2)."""
    while True:
        X, y, _ = separable_set(24, 2, rng)
        history = oracle.train(X, y, 0.5, 200)
        if history.settled and len(history.mistakes) > epochs and 0 < (y > 0).sum() < len(y):
            return X, y, history


# ---------------------------------------------------------------------------------------------- predict

predict = lab.exercise("predict", points=10, minutes=5)


def bias_matters(n: int, d: int, rng: torch.Generator):
    """w (d + 1,) and samples X (n, d + 1), none with z = 0; without w_0 every other one would get the other sign."""
    w, X = samples(1, d, rng).squeeze(0) + 1 / 64, samples(500, d, rng)
    w[0], w[d] = -1.0, 1.0
    z, without_bias = X @ w, X[:, 1:] @ w[1:]
    changed = (z < 0) & (without_bias > 0)
    same = (z * without_bias > 0) & (z.abs() > 0)
    return w, torch.stack([X[changed][: n // 2 + 1], X[same][: n // 2 + 1]], dim=1).flatten(0, 1)[:n]


@predict.check(points=4)
def sign_of_z(student, rng):
    "Each row of X gets the sign of w^T x, as +1 or -1."
    for n, d in ((6, 2), (9, 4)):
        w, X = bias_matters(n, d, rng)
        z = X @ w
        checks.close(
            student.predict(w, X),
            oracle.predict(w, X),
            name="predict(w, X)",
            mistakes={
                "w * X multiplies entry by entry. w^T x is the sum of these products: X @ w.": (w * X).sign(),
                "These are the values of z. A perceptron answers with their sign alone: +1 or -1.": z,
                "You answer 0 for the negative side. The labels of this lab are +1 and -1.": (z >= 0).float(),
                "Every sign is turned round: z > 0 is called +1.": -oracle.predict(w, X),
                "The bias is missing: w_0 is the first entry of w, and x_0 = 1 takes part in w^T x.": (
                    oracle.predict(w[1:], X[:, 1:])
                ),
            },
        )


@predict.check(points=3)
def zero_counts_as_plus(student, rng):
    "sgn(0) = +1."
    d = int(torch.randint(2, 5, (), generator=rng))
    w = torch.zeros(d + 1)
    w[0], w[d] = 1.0, -1.0
    X = samples(5, d, rng)
    X[0, d], X[1, d], X[3, d] = 1.5, 1.0, 1.0  # in rows 1 and 3, z = 1 - 1 = 0 with nothing rounded
    expected = oracle.predict(w, X)
    at_zero = (X @ w == 0).float()
    checks.close(
        student.predict(w, X),
        expected,
        name="predict(w, X)",
        why="Rows 1 and 3 of X have z = 0 exactly, and sgn(0) = +1 in this course.",
        mistakes={
            "Where z is 0 you answer 0, as torch.sign does. A perceptron must choose: sgn(0) = +1.": expected - at_zero,
            "Where z is 0 you answer -1. sgn(0) = +1: compare with >=, not with >.": expected - 2 * at_zero,
        },
    )


@predict.check(points=3)
def one_sample_or_many(student, rng):
    "A single sample x (d + 1,) gives a single label; a batch of one gives a batch of one."
    w, X = bias_matters(4, 3, rng)
    checks.close(student.predict(w, X[:1]), oracle.predict(w, X[:1]), name="predict(w, X) for one row")
    for x in X:
        checks.close(student.predict(w, x), oracle.predict(w, x), name="predict(w, x) for a single sample x")


# ---------------------------------------------------------------------------------------------- update

update = lab.exercise("update", points=15, minutes=8, uses=("predict",))


def wrong_and_right(rng: torch.Generator):
    """w, a sample that it gets wrong with its label, for both labels; z is not 0."""
    w = samples(1, 3, rng).squeeze(0) + 1 / 64
    for y in (1.0, -1.0):
        X = samples(60, 3, rng)
        yield w, X[oracle.predict(w, X) == -y][0], y


@update.check(points=6)
def moves_on_a_mistake(student, rng):
    "After a mistake, w moves by lr (y - yhat) x, bias included."
    for w, x, y in wrong_and_right(rng):
        lr = 0.25
        step = 2 * lr * y * x
        no_bias = step.clone()
        no_bias[0] = 0
        checks.close(
            student.update(w.clone(), x, y, lr),
            w + step,
            name="update(w, x, y, lr)",
            why=f"Here y = {y:+g} and yhat = {-y:+g}, so y - yhat = {2 * y:+g} and w moves by {2 * lr * y:+g} x.",
            mistakes={
                "You moved the wrong way: it is w + lr (y - yhat) x, plus, and y minus yhat.": w - step,
                "You moved half the way: y - yhat is +2 or -2 after a mistake, not y.": w + step / 2,
                "w_0 did not move. The bias is a weight like the others: its input is x_0 = 1.": w + no_bias,
                "The learning rate is missing: multiply the step by lr.": w + step / lr,
                "w did not move, though the prediction was wrong.": w,
            },
        )


@update.check(points=5)
def stays_when_right(student, rng):
    "When the prediction is right, w stays as it is."
    for w, x, y in wrong_and_right(rng):
        y, lr = -y, 0.25  # the label that w gives
        checks.close(
            student.update(w.clone(), x, y, lr),
            w,
            name="update(w, x, y, lr)",
            why=f"Here w already calls x {y:+g}, which is its label: y - yhat = 0.",
            mistakes={
                "You update always. The perceptron learns from its mistakes only: y - yhat, not y.": w + lr * y * x,
                "You update always, and by twice the label.": w + 2 * lr * y * x,
                "You update exactly when you should not: only when the prediction is right.": w - 2 * lr * y * x,
            },
        )
        moved = student.update(w.clone(), x, -y, lr)  # the other label: here it must move, or staying means nothing
        checks.that(not checks.same(moved, w), "w stays also when the prediction is wrong: it never learns.", got=moved)


@update.check(points=2)
def at_zero(student, rng):
    "At z = 0 the prediction is +1: a sample of -1 is a mistake, one of +1 is not."
    x = samples(1, 3, rng).squeeze(0)
    w = torch.zeros(4)
    why = "w = 0 makes z = 0, and sgn(0) = +1."
    mistakes = {"You moved half the way: is sgn(0) = 0 in your predict? It is +1.": -0.5 * x}
    checks.close(student.update(w, x, -1.0, 0.5), -x, name="update(w, x, -1, lr) at w = 0", why=why, mistakes=mistakes)
    mistakes = {"You moved, as if the prediction had been wrong: is sgn(0) = +1 in your predict?": 0.5 * x}
    w = torch.zeros(4)
    checks.close(student.update(w, x, 1.0, 0.5), w, name="update(w, x, +1, lr) at w = 0", why=why, mistakes=mistakes)


@update.check(points=2, needs="moves_on_a_mistake")
def w_is_not_changed(student, rng):
    "The result is a new tensor: the w that was passed in keeps its values."
    for w, x, y in wrong_and_right(rng):
        given = w.clone()
        checks.tensor(student.update(given, x, y, 0.5), name="update(w, x, y, lr)", shape=(4,))
        checks.unchanged(given, w, name="w")


# ---------------------------------------------------------------------------------------------- fit

fit = lab.exercise("fit", points=20, minutes=12, uses=("predict", "update"))


def fitted(student, X, y, lr, max_epochs):
    """What the student's `fit` returns, as (w, mistakes), with its form checked."""
    result = student.fit(X, y, lr, max_epochs)
    form = "fit returns two things: w, and the list of mistakes per epoch."
    checks.that(type(result) is tuple and len(result) == 2, form, got=result)
    w, mistakes = result
    checks.tensor(w, name="w", shape=(X.shape[1],))
    checks.that(
        type(mistakes) is list, "The mistakes per epoch come as a list of ints, one for each epoch.", got=mistakes
    )
    return w, mistakes


def one_move_per_epoch(X, y, lr: float, max_epochs: int) -> torch.Tensor:
    """The mistake: all samples of an epoch judged by the same w, and w moved once."""
    w = X.new_zeros(X.shape[1])
    for _ in range(max_epochs):
        w = w + lr * ((y - oracle.predict(w, X))[:, None] * X).sum(dim=0)
    return w


@fit.check(points=8)
def weights(student, rng):
    "Starting from w = 0, sample by sample in the order given, w ends where the rule leads."
    X, y, history = slow_set(rng, epochs=3)
    w, _ = fitted(student, X, y, 0.5, 200)
    backwards = oracle.train(X.flip(0), y.flip(0), 0.5, 200).weights[-1]
    first = oracle.train(X, y, 0.5, 1).weights[-1]
    if (oracle.predict(w, X) == y).all():
        why = "Your w does separate the samples, but another order, start or rule led to it."
    else:
        why = f"Your w gets {int((oracle.predict(w, X) != y).sum())} of the {len(y)} samples wrong."
    checks.close(
        w,
        history.weights[-1],
        name="w",
        why=why,
        mistakes={
            "You went through the samples backwards.": backwards,
            "This is w after the first epoch. Go on until an epoch passes without an update.": first,
            "You judged all samples of an epoch by one w and moved once. Use the new w for the very next sample.": (
                one_move_per_epoch(X, y, 0.5, 200)
            ),
        },
    )


@fit.check(points=4)
def counts(student, rng):
    "mistakes[e] is the number of updates in epoch e, and there are at most max_epochs epochs."
    X, y, history = slow_set(rng, epochs=4)
    _, mistakes = fitted(student, X, y, 0.5, 3)
    expected = history.mistakes[:3]
    checks.equal(
        mistakes,
        expected,
        name="mistakes",
        why="These samples need more than the 3 epochs that max_epochs allows here.",
        mistakes={
            "These are running totals. Begin each epoch's count at 0.": [sum(expected[: e + 1]) for e in range(3)],
            "You went on after max_epochs epochs.": history.mistakes,
        },
    )


@fit.check(points=4)
def stops_when_settled(student, rng):
    "It stops after the first epoch without an update; that epoch's 0 is the last count."
    X, y, history = slow_set(rng, epochs=2)
    _, mistakes = fitted(student, X, y, 0.5, 60)
    counts = history.mistakes
    checks.equal(
        mistakes,
        counts,
        name="mistakes",
        mistakes={
            "You never stop: after an epoch without an update nothing can change any more.": (
                counts + [0] * (60 - len(counts))
            ),
            "The last epoch is missing: an epoch with 0 updates is what shows that it has settled, so count it.": (
                counts[:-1]
            ),
        },
    )


@fit.check(points=4, needs="counts", seconds=3)
def gives_up_on_xor(student, rng):
    "On samples that no line separates, it gives up after max_epochs."
    order = torch.randperm(4, generator=rng)
    X, y = XOR[order], XOR_LABELS[order]
    _, mistakes = fitted(student, X, y, 0.5, 25)
    checks.that(
        len(mistakes) == 25 and all(type(m) is int and m > 0 for m in mistakes),
        "On XOR every epoch has a mistake: 25 epochs give 25 counts, none of them 0.",
        got=mistakes,
        expected=oracle.train(X, y, 0.5, 25).mistakes,
    )


# ---------------------------------------------------------------------------------------------- margin

margin = lab.exercise("margin", points=10, minutes=6)


@margin.check(points=5)
def the_nearest_sample(student, rng):
    "The margin is the least of y w^T x / |w| over the samples."
    for d in (2, 5):
        X, y, w = separable_set(20, d, rng)
        z, length = X @ w, w.norm()
        nearest = (y * z).min()
        checks.close(
            student.margin(w, X, y),
            (nearest / length).item(),
            name="margin(w, X, y)",
            mistakes={
                "You did not divide by |w|: a w twice as long would have twice the margin.": nearest,
                "These are the distances of all samples. The margin is one number, the smallest.": y * z / length,
                "Divide by the length of the whole w, w_0 included: x has its x_0 too.": nearest / w[1:].norm(),
                "You divided by |w| squared: the distance is y z / |w|.": nearest / length**2,
                "This is the mean. The margin is that of the nearest sample: the minimum.": (y * z).mean() / length,
                "This is the farthest sample. The margin is that of the nearest: the minimum.": (y * z).max() / length,
                "The labels are missing: a sample of -1 is right when z is negative, so take y z.": z.min() / length,
            },
        )


@margin.check(points=3)
def negative_when_wrong(student, rng):
    "Where w gets a sample wrong, the margin is negative."
    X, y, w = separable_set(12, 3, rng)
    z, y = X @ w, y.clone()
    k = z.argmax()
    y[k] = -1.0
    checks.close(
        student.margin(w, X, y),
        oracle.margin(w, X, y),
        name="margin(w, X, y)",
        why=f"Here w gets sample {k} wrong, so that its y z is negative.",
        mistakes={
            "You took absolute values. The sign matters: it says whether the sample is on its right side.": (
                z.abs().min() / w.norm()
            ).item(),
            "You cut it off at 0. A negative margin says how far the worst sample is on the wrong side.": 0.0,
        },
    )


@margin.check(points=2, needs="the_nearest_sample")
def length_of_w_does_not_matter(student, rng):
    "w and 8 w draw the same line, so they have the same margin."
    X, y, w = separable_set(10, 2, rng)
    checks.close(
        student.margin(8 * w, X, y), student.margin(w, X, y), name="margin(8 w, X, y)", why="Divide by |w|.", rtol=1e-5
    )


# ---------------------------------------------------------------------------------------------- novikoff_bound

novikoff_bound = lab.exercise("novikoff_bound", points=15, minutes=8, uses=("margin",))


@novikoff_bound.check(points=6)
def value(student, rng):
    "The bound is (R / margin)^2 with R the length of the longest sample."
    for d in (2, 4):
        X, y, w = separable_set(15, d, rng)
        lengths, gamma = X.norm(dim=1), (y * (X @ w)).min() / w.norm()
        R = lengths.max()
        checks.close(
            student.novikoff_bound(X, y, w),
            ((R / gamma) ** 2).item(),
            name="novikoff_bound(X, y, w_star)",
            rtol=1e-5,
            mistakes={
                "Square it: the bound is (R / margin)^2.": R / gamma,
                "Upside down: it is (R / margin)^2, so that a wide margin means few mistakes.": (gamma / R) ** 2,
                "R is the length of the longest sample, not the mean length.": (lengths.mean() / gamma) ** 2,
                "R is the length of one sample, not of the whole matrix: X.norm(dim=1).": (X.norm() / gamma) ** 2,
                "R is the length of the whole sample, x_0 = 1 included.": (X[:, 1:].norm(dim=1).max() / gamma) ** 2,
                "R is a length, a root of a sum of squares. You took the largest entry.": (X.abs().max() / gamma) ** 2,
                "The margin is y z / |w_star|: divide by the length of w_star.": (R / (gamma * w.norm())) ** 2,
            },
        )


@novikoff_bound.check(points=6, needs="value", seconds=20)
def no_run_makes_more_mistakes(student, rng):
    "On 200 random separable sets, the perceptron never makes more mistakes than the bound allows."
    for k in range(200):
        d = int(torch.randint(1, 5, (), generator=rng))
        X, y, w = separable_set(int(torch.randint(2, 15, (), generator=rng)), d, rng)
        if k % 2:  # the same, shifted by 2: far from the origin the perceptron makes many mistakes
            X, w = X + 2.0 * (torch.arange(d + 1) > 0), w - 2.0 * w[1:].sum() * (torch.arange(d + 1) == 0)
        made = len(oracle.train(X, y, 1.0, 10_000).samples)
        bound = student.novikoff_bound(X, y, w)
        checks.close(bound, bound, name="novikoff_bound(X, y, w_star)")  # a finite number
        checks.that(
            float(bound) >= made * (1 - 1e-5),
            f"The perceptron made {made} mistakes on these {len(y)} samples, more than your bound allows.",
            got=f"{float(bound):.6g}",
            expected=f"{oracle.novikoff_bound(X, y, w):.6g}, which is at least {made}",
        )


@novikoff_bound.check(points=3)
def infinite_without_a_margin(student, rng):
    "Where w_star does not separate the samples, the theorem promises nothing: the bound is infinite."
    X, y, w = separable_set(12, 3, rng)
    checks.that(
        as_float(student.novikoff_bound(X, y, w)) < math.inf,
        "Here w_star does separate the samples: the bound is finite.",
    )
    y = y.clone()
    y[4] = -y[4]
    got = student.novikoff_bound(X, y, w)
    hint = " Squaring hides the sign of the margin: look at it first." if as_float(got) < math.inf else ""
    checks.that(
        as_float(got) == math.inf,
        f"w_star gets a sample wrong here, so its margin is negative and the bound must be math.inf.{hint}",
        got=got,
        expected="inf",
    )


def as_float(value) -> float:
    """A number, given as one or as a tensor of one element; NaN for anything else."""
    if type(value) is torch.Tensor and value.numel() == 1:
        value = value.item()
    return float(value) if type(value) in (int, float) else math.nan


# ---------------------------------------------------------------------------------------------- lift

lift = lab.exercise("lift", points=10, minutes=5)


@lift.check(points=5)
def appends_the_product(student, rng):
    "Each row (1, x1, x2) becomes (1, x1, x2, x1 x2)."
    for n in (7, 1):
        X = samples(n, 2, rng) + torch.tensor([0.0, 1 / 16, 1 / 16])  # never 0 or 1
        product, square = X[:, 1:2] * X[:, 2:3], X[:, 1:2] ** 2
        checks.close(
            student.lift(X.clone()),
            torch.cat([X, product], dim=1),
            name="lift(X)",
            mistakes={
                "This is the new column alone. Put it beside the three of X: torch.cat([X, column], dim=1).": product,
                "These are the products alone. Make a column of them, and put it beside X.": product.squeeze(1),
                "The product comes last: (1, x1, x2, x1 x2).": torch.cat([X[:, :1], product, X[:, 1:]], dim=1),
                "That is x1 squared. The new coordinate is x1 times x2.": torch.cat([X, square], dim=1),
                "That is x1 + x2. A sum of coordinates adds nothing that a line cannot do; take their product.": (
                    torch.cat([X, X[:, 1:2] + X[:, 2:3]], dim=1)
                ),
                "The columns are counted from 0: x_0 = 1 stands in column 0, x1 in column 1, x2 in column 2.": (
                    torch.cat([X, X[:, 0:1] * X[:, 1:2]], dim=1)
                ),
            },
        )


@lift.check(points=3)
def xor_becomes_separable(student, rng):
    "Four clouds in the pattern of XOR, which no line separates, are separable after the lift."
    corner = torch.randint(0, 4, (40,), generator=rng)
    X = XOR[corner] + torch.cat([torch.zeros(40, 1), torch.randint(-5, 6, (40, 2), generator=rng) / 8], dim=1)
    lifted = student.lift(X.clone())
    checks.tensor(lifted, name="lift(X)")
    checks.that(lifted.dim() == 2 and len(lifted) == 40, "lift(X) has a row for each row of X.", got=lifted)
    checks.that(
        oracle.separable(lifted, XOR_LABELS[corner]),
        "No plane separates the lifted samples. Where the signs of x1 and x2 differ, x1 x2 is negative; append that.",
        got=lifted,
    )


@lift.check(points=2, needs="appends_the_product")
def x_is_not_changed(student, rng):
    "The samples that were passed in stay as they were."
    X = samples(5, 2, rng)
    given = X.clone()
    checks.tensor(student.lift(given), name="lift(X)")
    checks.unchanged(given, X, name="X")


# ---------------------------------------------------------------------------------------------- mlp_xor

mlp_xor = lab.exercise("mlp_xor", points=20, minutes=12, uses=("predict",))


def both_layers(student, X):
    """What the student's network answers, (H, yhat), each with its form checked and every entry +1 or -1."""
    result = student.mlp_xor(X.clone())
    form = "mlp_xor returns two things: H, what the two hidden neurons say, and yhat, what the output neuron says."
    checks.that(type(result) is tuple and len(result) == 2, form, got=result)
    H, yhat = result
    checks.tensor(H, name="H", shape=(len(X), 2))
    checks.tensor(yhat, name="yhat", shape=(len(X),))
    for name, values in (("H", H), ("yhat", yhat)):
        step = f"Each neuron is a step: every entry of {name} is +1 or -1."
        zero = " Labels of 0 belong to another convention." if bool((values == 0).any()) else ""
        checks.that(bool((values.abs() == 1).all()), step + zero, got=values)
    return H, yhat


@mlp_xor.check(points=8)
def four_corners(student, rng):
    "yhat is +1 where the signs of x1 and x2 differ, and -1 where they agree."
    _, yhat = both_layers(student, XOR)
    rows = torch.tensor([-1.0, 1.0, 1.0, 1.0]), torch.tensor([-1.0, -1.0, -1.0, 1.0])
    checks.close(
        yhat.float(),
        XOR_LABELS,
        name="yhat",
        why="The rows of X are (1, -1, -1), (1, -1, +1), (1, +1, -1) and (1, +1, +1).",
        mistakes={
            "This is the opposite of XOR: +1 where the signs agree. Turn the output's weights round.": -XOR_LABELS,
            "This is OR. One line does OR; for XOR the corner (+1, +1) must be -1 as well.": rows[0],
            "This is AND: +1 only at (+1, +1).": rows[1],
            "This is NAND. For XOR the corner (-1, -1) must be -1 as well.": -rows[1],
        },
    )


@mlp_xor.check(points=4, needs="four_corners")
def any_batch(student, rng):
    "It works for any number of rows in any order."
    for n in (1, 3, 17):
        corner = torch.randint(0, 4, (n,), generator=rng)
        _, yhat = both_layers(student, XOR[corner])
        checks.close(yhat.float(), XOR_LABELS[corner], name=f"yhat for a batch of {n}")


def plane_points(rng: torch.Generator) -> torch.Tensor:
    """The four corners and 200 points between and around them, none on a line with short weights."""
    return torch.cat([XOR, samples(200, 2, rng) + torch.tensor([0.0, 0.0137, 0.0291])])


@mlp_xor.check(points=4, needs="four_corners")
def hidden_neurons_draw_lines(student, rng):
    "Each hidden neuron is a perceptron: a line in the plane, +1 on one side and -1 on the other."
    X = plane_points(rng)
    H, _ = both_layers(student, X)
    for j in range(2):
        checks.that(
            oracle.separable(X, H[:, j]),
            f"No line has all points that hidden neuron {j} calls +1 on one side. "
            "A neuron may only take the sign of w_0 + w_1 x1 + w_2 x2: no products, no ifs.",
            got=f"column {j} of H on 204 points",
        )


@mlp_xor.check(points=4, needs="four_corners")
def output_neuron_draws_a_line(student, rng):
    "The output neuron is a perceptron too: its inputs are 1, h1 and h2, and nothing else."
    X = plane_points(rng)
    H, yhat = both_layers(student, X)
    checks.that(
        oracle.separable(oracle.with_bias(H), yhat),
        "No perceptron gives these yhat from these H. The output neuron sees only (1, h1, h2), "
        "and takes the sign of v_0 + v_1 h1 + v_2 h2.",
        got="yhat and H on the four corners and 200 points around them",
    )
