#!/bin/sh
# Runs an engine ("$@"), and stays when it dies: to mpiexec its rank still lives. Otherwise mpiexec would at times end the
# other ranks for its sake, and nobody could tell afterwards which one died first. Runs mpiexec (--launcher "$@") only to
# end it with the kernel.

# As `lifeline.machine` says it: a pid of another machine, or of another container, means nothing here.
machine="$(uname -n)/$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)/$(readlink /proc/self/ns/pid 2>/dev/null)"
here() { [ "$machine" = "${HPCDL_KERNEL%% *}" ]; }
kernel_lives() { pid=${HPCDL_KERNEL#* }; ! here || kill -0 "${pid%% *}" 2>/dev/null; }
runs() { kill -0 "$program" 2>/dev/null; }

if [ "$1" = --launcher ]; then
    shift
    "$@" &
    program=$!
    role=launcher
else
    program=$$
    role=engine
fi

# The engine ends by itself when it is to end, but not while it hangs in MPI's start. So a watchdog ends this shell, and
# with it Linux ends the engine (`lifeline.end_with_parent`), or the template does (`stand_in`).
(
    while runs && kill -0 $$ 2>/dev/null && [ -e "$HPCDL_LEASE" ] && kernel_lives; do sleep 1; done
    for second in 1 2 3; do if runs; then sleep 1; fi; done
    if runs; then kill -9 "$program"; fi
) </dev/null >/dev/null 2>&1 &
watchdog=$!

if [ $role = launcher ]; then wait "$program"; else "$@"; fi
status=$?

# The lease is empty until all engines are up: one that cannot even start is for mpiexec to know. It is removed when they
# are to end, and so is its folder when the kernel has ended.
while [ $role = engine ] && [ -s "$HPCDL_LEASE" ] && kernel_lives; do sleep 0.2; done
kill "$watchdog" 2>/dev/null
exit "$status"
