"""Wrong answers to lab 03, each with the checks it must fail and the words that name its mistake."""

from autograder.bank.perceptron import fit, lift, margin, mlp_xor, novikoff_bound, predict, unmask, update
