"""Wrong answers to `descend` and `watch`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("tensors.grads")

slip(
    "lets autograd watch the step",
    "with torch.no_grad():\n        w -= lr * w.grad",
    "w -= lr * w.grad",
    fails=("one_step", "gradients_do_not_pile_up"),
    says="Autograd watches w",
)
slip("gradients pile up", "    w.grad = None\n", "", fails="gradients_do_not_pile_up", says="backward() adds to w.grad")


@wrong("a new w of its own", fails=("one_step", "gradients_do_not_pile_up"), says="w has not changed")
def descend(w, lr):
    with torch.no_grad():
        w = w - lr * w.grad


slip("climbs", "w -= lr * w.grad", "w += lr * w.grad", fails=("one_step", "gradients_do_not_pile_up"), says="You climb")


@wrong("takes w away from autograd", fails="gradients_do_not_pile_up", says="do not change its flag")
def descend(w, lr):
    w.requires_grad_(False)
    w -= lr * w.grad
    w.grad = None


slip(
    "a hook that looks up i when it is called",
    "param.register_post_accumulate_grad_hook(lambda _, i=i: ready(i))",
    "param.register_post_accumulate_grad_hook(lambda _: ready(i))",
    fails=("as_soon_as_it_is_there", "in_every_pass"),
    says="keeps the value of i",
)
slip(
    "calls instead of handing over",
    "param.register_post_accumulate_grad_hook(lambda _, i=i: ready(i))",
    "param.register_post_accumulate_grad_hook(ready(i))",
    fails=("as_soon_as_it_is_there", "in_every_pass"),
    says="register the function itself",
)
slip(
    "the hook that comes too early",
    "param.register_post_accumulate_grad_hook(lambda _, i=i: ready(i))",
    "param.register_hook(lambda _, i=i: ready(i))",
    fails=("as_soon_as_it_is_there", "in_every_pass"),
    says="calls with the gradient before it is written",
)


@wrong(
    "passes the tensor, not the number",
    fails=("as_soon_as_it_is_there", "in_every_pass"),
    says="call it with the number",
)
def watch(params, ready):
    for param in params:
        param.register_post_accumulate_grad_hook(ready)


@wrong("zeros for None", fails="gradients_do_not_pile_up", says="`w.grad = None` clears the gradient")
def descend(w, lr):
    with torch.no_grad():
        w -= lr * w.grad
        w.grad.zero_()


slip(
    "one row after the other, and no single number",
    "        w -= lr * w.grad",
    "        for i in range(len(w)):\n            w[i] -= lr * w.grad[i]",
    fails="gradients_do_not_pile_up",
    says="0-d",
)


@wrong("the first pass only", fails="in_every_pass", says="pass 2: the calls of ready")
def watch(params, ready):
    def hear(i, hooks):
        ready(i)
        hooks.pop().remove()

    for i, param in enumerate(params):
        hooks = []
        hooks.append(param.register_post_accumulate_grad_hook(lambda _, i=i, hooks=hooks: hear(i, hooks)))


slip(
    "hooks that call once",
    "lambda _, i=i: ready(i)",
    "lambda _, i=i, left=[i]: ready(left.pop()) if left else None",
    fails="in_every_pass",
    says="in every backward pass",
)


@wrong(
    "one hook, on the parameter that comes last",
    fails=("as_soon_as_it_is_there", "in_every_pass"),
    says="has already come to earlier layers",
)
def watch(params, ready):
    def all_of_them(_):
        for i in range(len(params) - 1, -1, -1):
            if params[i].grad is not None:
                ready(i)

    params[0].register_post_accumulate_grad_hook(all_of_them)


slip(
    "zeros until the gradient comes",
    "        param.register_post_accumulate_grad_hook(lambda _, i=i: ready(i))\n",
    "        def hook(g, i=i, param=param):\n"
    "            param.grad = torch.zeros_like(g) if param.grad is None else param.grad\n"
    "            ready(i)\n\n"
    "        param.register_hook(hook)\n",
    fails="as_soon_as_it_is_there in_every_pass",
    says="before the gradient of this pass is in params",
)
