"""Wrong answers that the checks must catch: a package for each lab, its modules named as in `exercises`."""
