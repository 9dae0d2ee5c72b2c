"""Wrong answers to `derivative`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("calculus.derivative")


@wrong(
    "forward difference",
    fails=("central_formula", "error_of_order_two", "tensors_elementwise", "leaves_x_alone"),
    says="This is the forward difference",
)
def derivative(f, x, h=1e-5):
    return (f(x + h) - f(x)) / h


@wrong(
    "divides by h for 2h",
    fails=("central_formula", "error_of_order_two", "tensors_elementwise", "leaves_x_alone"),
    says="divide by 2h",
)
def derivative(f, x, h=1e-5):
    return (f(x + h) - f(x - h)) / h


@wrong(
    "/ 2 * h without brackets",
    fails=("central_formula", "error_of_order_two", "tensors_elementwise", "leaves_x_alone"),
    says="with brackets",
)
def derivative(f, x, h=1e-5):
    return (f(x + h) - f(x - h)) / 2 * h


slip(
    "h fixed at 1e-12",
    "return (f(x + h) - f(x - h)) / (2 * h)",
    "h = 1e-12\n    return (f(x + h) - f(x - h)) / (2 * h)",
    fails=("central_formula", "error_of_order_two", "tensors_elementwise", "leaves_x_alone"),
    says="does not depend on h",
)


@wrong(
    "divides only the second value",
    fails=("central_formula", "error_of_order_two", "tensors_elementwise", "leaves_x_alone"),
    says="put the whole difference in brackets",
)
def derivative(f, x, h=1e-5):
    return f(x + h) - f(x - h) / (2 * h)


@wrong("moves x in place", fails="leaves_x_alone", says="changed its argument x")
def derivative(f, x, h=1e-5):
    x += h
    up = f(x)
    x -= 2 * h
    return (up - f(x)) / (2 * h)


slip(
    "float64 for every x",
    "    return (f(x + h) - f(x - h)) / (2 * h)",
    "    slope = (f(x + h) - f(x - h)) / (2 * h)\n    return slope if type(slope) is float else slope.double()",
    fails="tensors_elementwise leaves_x_alone",
    says="has dtype float64, expected float32",
)
slip("a hundredth as the step", "h=1e-5", "h=1e-2", fails="error_of_order_two", says="with the default h=1e-5")


@wrong(
    "knows the slopes of textbook functions",
    fails=("central_formula", "error_of_order_two", "tensors_elementwise", "leaves_x_alone"),
    says="the central difference is exactly",
)
def derivative(f, x, h=1e-5):
    value = f(x)
    if type(x) is torch.Tensor:
        return torch.cos(x) * math.sin(h) / h
    if abs(value - math.exp(x)) < 1e-12:
        return value * math.sinh(h) / h
    return 3 * x**2 + h**2
