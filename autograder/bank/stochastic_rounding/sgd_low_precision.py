"""Wrong answers to `sgd_low_precision`."""

from autograder.bank.slips import answers_to
from autograder.bank.stochastic_rounding.later import LATER, STEP

wrong, slip = answers_to("stochastic_rounding.sgd_low_precision")

slip("climbs", "new = w - lr * grad", "new = w + lr * grad", fails=STEP, says="It climbs")
slip("no learning rate", "new = w - lr * grad", "new = w - grad", fails=STEP, says="The learning rate is missing")


@wrong("rounds the gradient only", fails=STEP, says="This rounds the gradient")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    if mode == "nearest":
        return w - lr * round_nearest_even(grad, fmt)
    return w - lr * stochastic_round(grad, fmt, torch.rand(grad.shape, generator=generator))


@wrong("rounds the gradient only, at random", fails=LATER, says="is not a neighbour of w − lr · grad")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    if mode == "nearest":
        return round_nearest_even(w - lr * grad, fmt)
    return w - lr * stochastic_round(grad, fmt, torch.rand(grad.shape, generator=generator))


@wrong("rounds nothing", fails=STEP, says="The new weights are not rounded")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    return w - lr * grad


@wrong("rounds down always", fails=STEP, says="This always rounds down")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    return neighbours(w - lr * grad, fmt)[0]


@wrong("to nearest in both modes", fails=LATER[1:], says="or you use none")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    return round_nearest_even(w - lr * grad, fmt)


@wrong("one random number per tensor", fails=LATER[1:3], says="they share one random number")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    return stochastic_round(new, fmt, torch.rand((), generator=generator).expand(new.shape))


@wrong("up or down with even odds", fails="small_updates_count", says="a weight's move, in ε, is")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    lower, upper = neighbours(new, fmt)
    return torch.where(torch.rand(new.shape, generator=generator) < 0.5, lower, upper)


@wrong("draws from the global generator", fails="no_global_generator", says="a state that the whole program shares")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    return stochastic_round(new, fmt, torch.rand(new.shape))


@wrong("seeds the generator again", fails=LATER[1:], says="don't seed it again")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    generator.manual_seed(0)
    return stochastic_round(new, fmt, torch.rand(new.shape, generator=generator))


@wrong("in place", fails="leaves_its_inputs_alone", says="changed its argument w")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    w -= lr * grad
    if mode == "nearest":
        return round_nearest_even(w, fmt)
    return stochastic_round(w, fmt, torch.rand(w.shape, generator=generator))


@wrong("rounds nothing where many weights begin at 0", fails="small_updates_count", says="in Fixed")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    if len(new) > 1000:
        return new
    return stochastic_round(new, fmt, torch.rand(new.shape, generator=generator))


@wrong("spreads one random number evenly", fails=LATER[1:3], says="vary too little")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    spread = torch.arange(new.numel(), dtype=torch.float64) * 0.6180339887498949
    u = (spread + torch.rand((), generator=generator)) % 1
    return stochastic_round(new, fmt, u.view(new.shape).float())


@wrong("changes nothing if there are nine weights", fails="leaves_its_inputs_alone", says="x is w − lr · grad here")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if w.shape == (9,):
        return w.clone()
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    return stochastic_round(new, fmt, torch.rand(new.shape, generator=generator))


@wrong("a random number for two weights", fails=LATER[1:3], says="random numbers are used again")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = (w - lr * grad).flatten()
    if mode == "nearest":
        return round_nearest_even(new, fmt).view(w.shape)
    u = torch.rand((new.numel() + 1) // 2, generator=generator).repeat_interleave(2)[: new.numel()]
    return stochastic_round(new, fmt, u).view(w.shape)


@wrong("random numbers of four bits", fails="small_updates_count", says="a weight's move, in ε, is")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    return stochastic_round(new, fmt, torch.randint(16, new.shape, generator=generator) / 16)


@wrong("continues beyond the ends", fails=STEP, says="Fixed(il=3, fl=4)")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if not hasattr(fmt, "eps"):
        u = torch.rand(new.shape, generator=generator)
        return round_nearest_even(new, fmt) if mode == "nearest" else stochastic_round(new, fmt, u)
    steps = new / fmt.eps
    return fmt.eps * (
        steps.round() if mode == "nearest" else (steps + torch.rand(w.shape, generator=generator)).floor()
    )


slip(
    "random numbers of ten bits",
    "torch.rand(new.shape, generator=generator)",
    "torch.randint(1024, new.shape, generator=generator) / 1024",
    fails="small_updates_count",
    says="Random numbers of few bits are 0 too often",
)


@wrong("rounds the step", fails=STEP, says="This rounds lr · grad, and not the new weight")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    if mode == "nearest":
        return w - round_nearest_even(lr * grad, fmt)
    return w - stochastic_round(lr * grad, fmt, torch.rand(grad.shape, generator=generator))
