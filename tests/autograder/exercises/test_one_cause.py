"""An answer with one mistake is told one, where an input could show another that it did not make, or the same twice."""

import pytest
import torch
from torch.nn import functional

from autograder import exercises
from autograder.grading.run import run_exercise
from autograder.grading.seeds import seeds
from autograder.sessions.local import LocalSession
from autograder.show import OR

ANSWERS = {
    "tensors.cut": ("return x.view(torch.int32) & -65536", "read them as floats again"),
    "gradient_descent.max_stable_lr": ("return 2 / float(hessian.diagonal().max())", "largest entry on the diagonal"),
    "hogwild.finish": (
        "free = [0.0] * len(speeds)\n"
        "    for work in tasks:\n"
        "        free[free.index(min(free))] += work / speeds[free.index(min(free))]\n"
        "    return max(free)",
        "your answer ignores backups",
    ),
    "convolution.conv_fft": (
        "x = functional.pad(x, (padding,) * 4)\n"
        "    w = torch.fft.rfft2(w, s=x.shape[2:]).conj()\n"
        "    y = torch.einsum('nchw,kchw->nkhw', torch.fft.rfft2(x), w)\n"
        "    return torch.fft.irfft2(y, s=x.shape[2:])",
        "The result is not cut",
    ),
}
ARGUMENTS = {
    "cut": "x",
    "max_stable_lr": "hessian",
    "finish": "tasks, speeds, backups=False",
    "conv_fft": "x, w, padding=0",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_one_mistake_is_told_once(name):
    slug, function = name.split(".")
    body, said = ANSWERS[name]
    namespace = {"torch": torch, "functional": functional}
    exec(f"def {function}({ARGUMENTS[function]}):\n    {body}\n", namespace)
    exercise = exercises.load(slug).exercises[function]
    result = run_exercise(exercise, LocalSession(namespace), seeds(b"notebook", ""), hidden=False)
    mistakes = [check.mistake for check in result.checks if check.mistake]
    assert any(said in mistake for mistake in mistakes)
    assert not [mistake for mistake in mistakes if OR in mistake]
