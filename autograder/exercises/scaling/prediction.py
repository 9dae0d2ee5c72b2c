"""A run predicted from its parts. Oracle: all buckets tried or the library's best ones; published efficiencies."""

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number
from autograder.exercises.scaling.fusion import backward_pass, played, soonest
from hpcdl.cost.machines import GIGABIT, RDMA
from hpcdl.cost.published.data_parallel import IMAGES_PER_SECOND
from hpcdl.cost.published.row import SPREAD, USABLE
from hpcdl.cost.scaling import Gradient, finished, gradients, merged, slowest
from hpcdl.nn.networks import inception_v3, resnet101, vgg16

exercise = Exercise("prediction", points=20, minutes=18, functions=("predict",), uses=("fusion",))

PARTS = ("compute", "stragglers", "exposed", "input")
HOROVOD = {"Inception V3": (inception_v3, 90), "ResNet-101": (resnet101, 90), "VGG-16": (vgg16, 68)}
SERVERS, GPUS = 128, 4  # Horovod's 512 GPUs share 128 links
LIMIT = 7  # points of efficiency


def ring(p: int, alpha: float, beta: float) -> tuple[float, float]:
    """Of an all-reduce: 2 (p - 1) messages one after the other, each of a p-th of the bytes."""
    return 2 * (p - 1) * alpha, 2 * (p - 1) / p * beta


def right_parts(
    forward: float, ready: list, p: int, alpha: float, beta: float, late: float, loading: float, best=None
) -> dict[str, float]:
    """From the definitions; `best` is how the soonest end of the messages is found."""
    backward, stretched = ready[-1][0], [(late * when, nbytes) for when, nbytes in ready]
    end = (best or soonest)(stretched, *ring(p, alpha, beta)) if p > 1 else late * backward
    parts = {"compute": forward + backward, "stragglers": (late - 1) * (forward + backward)}
    parts["exposed"] = end - late * backward
    return parts | {"input": max(0.0, loading - sum(parts.values()))}


def parts_of(got, call: str) -> None:
    checks.that(
        type(got) is dict and set(got) == set(PARTS) and all(checks.is_number(value) for value in got.values()),
        f"{call} is {show.show(got, 80)}, expected a dict of the numbers {', '.join(PARTS)}.",
    )


def predict_is(student, forward, ready, p, alpha, beta, late=1.0, loading=0.0) -> dict[str, float]:
    got = student.predict(forward, list(ready), p, alpha, beta, late, loading)
    call = (
        f"predict({forward:g}, {show.show(ready, 120)}, {p}, {alpha:g}, {beta:g}, late={late:g}, loading={loading:g})"
    )
    parts_of(got, call)
    right = right_parts(forward, ready, p, alpha, beta, late, loading)
    backward, ringed = ready[-1][0], ring(p, alpha, beta)
    stretched = [(late * when, nbytes) for when, nbytes in ready]
    everything = [(late * backward, sum(nbytes for _, nbytes in ready))]
    one, each = played(everything, *ringed)[-1][1], played(stretched, *ringed)[-1][1]
    used = right["compute"] + right["stragglers"] + right["exposed"]
    known = {
        "compute": {
            "The backward pass is over when the last gradient is ready: forward + ready.": forward,
            "The stragglers are a separate part.": late * (forward + backward),
        },
        "stragglers": {
            "All ranks wait for the slowest: (late - 1) times forward and backward.": 0.0,
            "A late rank is late in the forward pass, too.": (late - 1) * backward,
            "Only what is above 1 is lost.": late * (forward + backward),
        },
        "exposed": {
            "A ring has 2 (p - 1) messages one after the other: 2 (p - 1) alpha.": soonest(stretched, alpha, ringed[1])
            - late * backward,
            "A ring sends 2 (p - 1)/p of the bytes.": soonest(stretched, ringed[0], beta) - late * backward,
            "That is only the reduce-scatter; the all-gather sends as much again.": soonest(
                stretched, ringed[0] / 2, ringed[1] / 2
            )
            - late * backward,
            "A late rank's gradients are late as well: late * ready.": soonest(ready, *ringed) - late * backward,
            "The slowest rank sends last: `late` multiplies its gradients and the end of its backward pass.": (
                soonest(ready, *ringed) - backward
            ),
            "That is the whole time of the messages: count only the time after the backward pass.": soonest(
                stretched, *ringed
            ),
            "You use one bucket: fuse finds better ones.": one - late * backward,
            "You send each gradient alone: fuse finds better buckets.": each - late * backward,
        },
        "input": {
            "The next batch is loaded while this one is computed: only the rest is waited for.": loading,
            "It is also loaded during messages and while others are late.": max(0.0, loading - right["compute"]),
            "It cannot be negative.": loading - used,
        },
    }
    last = late * backward
    rules = {
        "compute": f"Forward takes {forward:g} s, backward {backward:g} s.",
        "stragglers": f"The slowest rank computes for {late:g} times as long.",
        "exposed": f"On the slowest rank the backward pass is over at {last:g} s, the last message at "
        f"{soonest(stretched, *ringed):g} s.",
        "input": f"The other parts take {used:g} s, loading takes {loading:g} s.",
    }
    for part in PARTS:
        mistakes = {s: v for s, v in known[part].items() if abs(v - right[part]) > 1e-9}
        name = f"{call}: {part}"
        checks.close(got[part], right[part], name=name, why=rules[part], mistakes=mistakes, rtol=1e-9, atol=1e-9)
    return got


@exercise.check(points=11)
def parts_of_an_iteration(student, rng):
    "predict: computing, stragglers, exposed messages, and input."
    for p in (2, 4, 8, 64):
        ready = backward_pass(rng, 6)
        predict_is(student, 3.0, ready, p, 0.125, 0.0625)
        predict_is(student, 3.0, ready, p, 0.0625, 0.03125, 1.25, 0.0)
        predict_is(student, 3.0, ready, p, 0.0625, 0.03125, 1.5, 20.0)
        predict_is(student, 1.0, ready, p, 0.5, 0.125, 1.125, 1000.0)


@exercise.check(points=3, needs="parts_of_an_iteration")
def one_rank_and_many(student, rng):
    "predict: one rank sends nothing; more ranks never make an iteration shorter."
    ready = backward_pass(rng, 5)
    alone = predict_is(student, 2.0, ready, 1, 0.5, 0.125)
    checks.close(alone["exposed"], 0.0, name="what one rank's messages expose", atol=1e-9)
    before = 0.0
    for p in (1, 2, 3, 8, 32, 256):
        took = sum(predict_is(student, 2.0, ready, p, 0.0625, 0.0625).values())
        checks.that(took >= before - 1e-9, f"{p} ranks need {took:g} s for an iteration, fewer needed {before:g} s.")
        before = took


def horovod(name: str) -> dict:
    """A network on 512 GPUs: what `predict` takes, with a third of the time for the forward pass."""
    layers, _ = HOROVOD[name]
    seconds = 64 / IMAGES_PER_SECOND[name]
    ready = [(when, nbytes) for when, nbytes in gradients(layers(), 2 * seconds / 3)]
    beta = 1 / (25 * GIGABIT * USABLE)
    late = slowest(SERVERS * GPUS, SPREAD)
    return {
        "forward": seconds / 3,
        "p": SERVERS,
        "alpha": RDMA,
        "beta": beta,
        "late": late,
        "loading": 0.0,
        "ready": ready,
    }


def best_end(ready: list, alpha: float, beta: float) -> float:
    def seconds(nbytes):
        return alpha + beta * nbytes

    pairs = [Gradient(when, nbytes) for when, nbytes in ready]
    return finished(merged(pairs, seconds), seconds)


@exercise.check(points=6, needs="parts_of_an_iteration")
def published(student, rng):
    "predict: three networks on Horovod's 512 GPUs, within seven points of the efficiency that was printed."
    other = list(HOROVOD)[whole_number(rng, 0, len(HOROVOD) - 1)]
    as_it_should(student, other, whole_number(rng, 2, 60))
    for name, (_, printed) in HOROVOD.items():
        got = as_it_should(student, name, SERVERS)
        efficiency = 100 * got["compute"] / sum(got.values())
        checks.that(
            abs(efficiency - printed) <= LIMIT,
            f"{name} on 512 GPUs: an efficiency of {efficiency:.1f} %; measured was {printed} %.",
        )


def as_it_should(student, name: str, servers: int) -> dict[str, float]:
    """Check the parts of a network's iteration on so many servers; return the student's."""
    case, setting = {**horovod(name), "p": servers}, f"{name} on {servers * GPUS} GPUs"
    forward, p, alpha, beta, late, loading, ready = case.values()
    got = student.predict(forward, list(ready), p, alpha, beta, late, loading)
    parts_of(got, f"predict(...) of {setting}")
    right = right_parts(**case, best=best_end)
    for part in PARTS:
        checks.close(got[part], right[part], name=f"{setting}: {part}", rtol=1e-6, atol=1e-9)
    return got
