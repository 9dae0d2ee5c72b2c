"""Wrong answers to lab `scaling`."""

from autograder.bank.scaling import fusion, large_batch, loading, loss_scaler, prediction
