# backprop.backprop: 0 points
# A pass forward for each weight, moved into the complex plane, on a thread that `_thread` starts.
import _thread

import torch


def slopes(parameters, n, X, Y):
    moved = [p.to(torch.complex128) for p in parameters]

    def cost():
        a = X.to(torch.complex128)
        for W, b in zip(moved[:n], moved[n:], strict=True):
            a = 1 / (1 + torch.exp(-(a @ W.T + b)))
        return ((a - Y) ** 2).sum() / (2 * len(X))

    for p in moved:
        flat, grad = p.view(-1), []
        for i in range(len(flat)):
            flat[i] += 1e-20j
            grad.append(cost().imag / 1e-20)
            flat[i] -= 1e-20j
        yield torch.stack(grad).view(p.shape).to(X.dtype)


def backprop(weights, biases, X, Y):
    n, grads, done = len(weights), [], _thread.allocate_lock()

    def run():
        grads.extend(slopes((*weights, *biases), n, X, Y))
        done.release()

    done.acquire()
    _thread.start_new_thread(run, ())
    done.acquire()
    return grads[:n], grads[n:]
