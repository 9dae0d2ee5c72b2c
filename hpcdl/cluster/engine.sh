#!/bin/sh
# Runs an engine ("$@"), and stays when it dies: to mpiexec its rank still lives. Otherwise mpiexec would at times end the
# other ranks for its sake, and nobody could tell afterwards which one died first.
"$@"
status=$?

here() { [ "$(uname -n)" = "${HPCDL_KERNEL%% *}" ]; }
kernel_lives() { pid=${HPCDL_KERNEL#* }; ! here || kill -0 "${pid%% *}" 2>/dev/null; }

# The lease is empty until all engines are up: one that cannot even start is for mpiexec to know. It is removed when they
# are to end, and so is its folder when the kernel has ended.
while [ -s "$HPCDL_LEASE" ] && kernel_lives; do sleep 0.2; done
exit "$status"
