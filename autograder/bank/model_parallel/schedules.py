"""Wrong answers to `gpipe`, `one_f_one_b` and `interleaved`."""

from autograder.bank.model_parallel.later import ALL_OF_H1, of
from autograder.bank.slips import answers_to

LATER = of("zero_bubble", ALL_OF_H1)  # zb_h1 is made of one_f_one_b
wrong, slip = answers_to("model_parallel.schedules")
GPIPE = ("gpipe_is_a_schedule", "gpipe_forward_first")
ONE_F = ("one_f_one_b_is_a_schedule", "one_f_one_b_loses_no_time", "one_f_one_b_holds_little")
INTERLEAVED = ("interleaved_is_a_schedule", "interleaved_divides_the_bubble", "interleaved_holds_little")


@wrong("GPipe, one microbatch after the other", fails="gpipe_forward_first", says="nothing overlaps")
def gpipe(p, m):
    return [[op for k in range(m) for op in (("F", k, 0), ("B", k, 0))] for _ in range(p)]


@wrong("GPipe that begins to go back early", fails="gpipe_forward_first", says="begins the first backward")
def gpipe(p, m):
    forwards, backwards = [("F", k, 0) for k in range(m)], [("B", k, 0) for k in range(m)]
    return [in_turn(forwards, backwards, p - i) for i in range(p)]


@wrong("the last microbatch is lost", fails=GPIPE, says="is never done on this stage")
def gpipe(p, m):
    return [[(op, k, 0) for op in "FB" for k in range(m - 1)] for _ in range(p)]


@wrong("microbatches count from 1", fails=GPIPE, says="microbatches and chunks count from 0")
def gpipe(p, m):
    return [[(op, k, 0) for op in "FB" for k in range(1, m + 1)] for _ in range(p)]


@wrong("one order for all stages", fails=GPIPE, says="one of these is (")
def gpipe(p, m):
    return [(op, k, 0) for op in "FB" for k in range(m)]


slip(
    "1F1B: one forward pass too few",
    "return [in_turn(forwards, backwards, p - i) for i in range(p)]",
    "return [in_turn(forwards, backwards, p - i - 1) for i in range(p)]",
    fails=(*ONE_F, *LATER),
    says="needs F of microbatch 0 on the same stage",
)


@wrong("1F1B: stages from the wrong end", fails=(*ONE_F, *LATER), says="that stage waits, too")
def one_f_one_b(p, m):
    forwards, backwards = [("F", k, 0) for k in range(m)], [("B", k, 0) for k in range(m)]
    return [in_turn(forwards, backwards, i + 1) for i in range(p)]


@wrong("1F1B: p forward passes everywhere", fails=(*ONE_F[1:], *LATER[1:]), says="stage 1 holds 2")
def one_f_one_b(p, m):
    forwards, backwards = [("F", k, 0) for k in range(m)], [("B", k, 0) for k in range(m)]
    return [in_turn(forwards, backwards, p) for i in range(p)]


@wrong("1F1B is GPipe", fails=("one_f_one_b_holds_little", *LATER[1:]), says="That is GPipe's memory")
def one_f_one_b(p, m):
    return gpipe(p, m)


@wrong("1F1B without a warm-up", fails=(*ONE_F[1:], *LATER[1:]), says="nothing overlaps")
def one_f_one_b(p, m):
    return [[op for k in range(m) for op in (("F", k, 0), ("B", k, 0))] for _ in range(p)]


@wrong("backward through the chunks from the first", fails=INTERLEAVED, says="no stage can continue")
def interleaved(p, m, v):
    turns = [(k, chunk) for first in range(0, m, p) for chunk in range(v) for k in range(first, first + p)]
    forwards, backwards = [("F", k, chunk) for k, chunk in turns], [("B", k, chunk) for k, chunk in turns]
    return [in_turn(forwards, backwards, (v - 1) * p + 2 * (p - i - 1) + 1) for i in range(p)]


@wrong("interleaved with 1F1B's warm-up", fails=INTERLEAVED, says="no stage can continue")
def interleaved(p, m, v):
    turns = [(k, chunk) for first in range(0, m, p) for chunk in range(v) for k in range(first, first + p)]
    forwards, backwards = [("F", k, chunk) for k, chunk in turns], [("B", k, v - 1 - chunk) for k, chunk in turns]
    return [in_turn(forwards, backwards, p - i) for i in range(p)]


@wrong(
    "all microbatches through a chunk before the next",
    fails="interleaved_holds_little",
    says="Let them pass in groups of p",
)
def interleaved(p, m, v):
    turns = [(k, chunk) for chunk in range(v) for k in range(m)]
    forwards, backwards = [("F", k, chunk) for k, chunk in turns], [("B", k, v - 1 - chunk) for k, chunk in turns]
    return [in_turn(forwards, backwards, (v - 1) * m + 2 * (p - i - 1) + 1) for i in range(p)]


@wrong("interleaved that ignores v", fails=INTERLEAVED, says="lacks ('F', 0, 1)")
def interleaved(p, m, v):
    return one_f_one_b(p, m)


@wrong(
    "GPipe backward from the last microbatch on",
    fails="gpipe_forward_first",
    says="Do each op in the order of the microbatches",
)
def gpipe(p, m):
    return [[("F", k, 0) for k in range(m)] + [("B", k, 0) for k in reversed(range(m))] for _ in range(p)]


slip(
    "the warm-up of plain 1F1B",
    "return [in_turn(forwards, backwards, (v - 1) * p + 2 * (p - i - 1) + 1) for i in range(p)]",
    "return [in_turn(forwards, backwards, (v - 1) * p + (p - i - 1) + 1) for i in range(p)]",
    fails="interleaved_holds_little",
    says="forward passes before its first B",
)
slip(
    "interleaved that stops before the last microbatch",
    *("range(0, m, p) for chunk", "range(0, m - 1, p) for chunk"),
    fails=" ".join(INTERLEAVED),
    says="lacks ('F', 2, 0)",
)
