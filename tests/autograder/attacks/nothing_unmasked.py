# backprop.unmask_softmax: 0 points
# An input that keeps to all rules, as in the text.
def unmask_softmax():
    return [([[0.0, 0.0]], [0])]
