"""Wrong answers to `chain_gradient`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("calculus.chain_gradient")


@wrong("the Jacobian transposed", fails=("two_by_two", "any_sizes"), says="You use the rows of the Jacobian")
def chain_gradient(df_dx, dx_ds):
    return dx_ds @ df_dx


@wrong("forgets the sum", fails=("two_by_two", "any_sizes"), says="Add them up over i")
def chain_gradient(df_dx, dx_ds):
    return df_dx[:, None] * dx_ds


@wrong("written for the lecture's two variables", fails="any_sizes", says="has shape")
def chain_gradient(df_dx, dx_ds):
    return df_dx[0] * dx_ds[0, :2] + df_dx[-1] * dx_ds[-1, :2] * (len(df_dx) > 1)


slip(
    "multiplies in place",
    "df_dx @ dx_ds",
    "dx_ds.mul_(df_dx[:, None]).sum(0)",
    fails="any_sizes",
    says="changed its argument dx_ds",
)
