"""What all benchmarks use: the machine's description, turns that rotate, pairs of ranks, results and their page."""
