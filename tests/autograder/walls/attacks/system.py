"""Code that leaves its process: the network, other files, other processes. Only what the tests made is ever a target."""

import sys

from . import CLOSED, mean

DENIED = "PermissionError"

ATTACKS = {
    "a TCP socket": mean("import socket\nsocket.create_connection(('127.0.0.1', 9), 1)", says=DENIED),
    "a UDP socket": mean("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)", says=DENIED),
    "a raw socket": mean("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW)", says=DENIED),
    "a netlink socket": mean("import socket\nsocket.socket(socket.AF_NETLINK)", says=DENIED),
    "an abstract socket": mean("import socket\nsocket.socket(socket.AF_UNIX).bind('\\0hpcdl')", says=DENIED),
    "a listening server": mean("import socket\nsocket.create_server(('127.0.0.1', 0))", says=DENIED),
    "the home folder": mean("import os\nreturn os.listdir(os.path.expanduser('~root'))", says=DENIED),
    "SSH keys": mean("import os\nreturn os.listdir(os.path.expanduser('~/../root/.ssh'))", says="Your code raised"),
    "accounts": mean("return open('/etc/passwd').read()", says=DENIED),
    "other submissions": mean("import os\nreturn os.listdir('..')", says=DENIED),
    "temporary files": mean("import os\nreturn os.listdir('/tmp')", says=DENIED),
    "out through a link": mean("import os\nos.symlink('/etc', 'e')\nreturn os.listdir('e')", says=DENIED),
    "a hard link": mean("import os\nos.link('/etc/hostname', 'h')", says="Your code raised"),
    "a device": mean("import os\nos.mknod('d', 0o60600, os.makedev(8, 0))", says=DENIED),
    "kill(-1)": mean("import os\nos.kill(-1, 9)", says=DENIED),
    "kill the zygote": mean("import os\nos.kill(os.getppid(), 9)", says=DENIED),
    "kill the group": mean("import os\nos.killpg(0, 9)", says=DENIED),
    "ptrace": mean("import ctypes\nreturn ctypes.CDLL(None).ptrace(16, 1, 0, 0)", says=CLOSED),
    "a mount": mean("import ctypes\nreturn ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, 0)", says=CLOSED),
    "new namespaces": mean("import ctypes\nreturn ctypes.CDLL(None).unshare(0x10000000)", says=CLOSED),
    "another user": mean("import os\nos.setuid(12345)", says="Your code raised"),
    "setuid helpers": mean("import subprocess\nsubprocess.run(['/bin/su', '-c', 'id'])", says=DENIED),
    "a compiler": mean("import os\nreturn os.system('cc --version')", says="expected"),
    "another Python": mean(f"import os\nos.execv({sys.executable!r}, ['python'])", says=DENIED),
    "free files counted": mean("import os\nreturn os.statvfs('.').f_ffree", says=DENIED),
    "free memory counted": mean("return open('/proc/meminfo').read()", says=DENIED),
    "a mark on its processors": mean(
        "import os\nbefore = os.sched_getaffinity(0)\nos.sched_setaffinity(0, {min(before)})\n"
        "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))\n"
        "assert os.sched_getscheduler(0) == os.SCHED_OTHER and os.sched_getaffinity(0) == before\n"
        "raise KeyError('no mark')",
        says="no mark",
    ),
    "another process's processors": mean("import os\nreturn os.sched_getaffinity(os.getppid())", says=DENIED),
    "another process's priority": mean("import os\nreturn os.getpriority(os.PRIO_PROCESS, 1)", says=DENIED),
    "a file's parts in memory": mean(
        "import os\nwith open(os.__file__, 'rb') as file:\n"
        "    return os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)",
        says=DENIED,
    ),
    "limits raised": mean("import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))", says="Your code raised"),
    "the zygote's limits": mean("import resource\nresource.prlimit(1, resource.RLIMIT_CPU, (1, 1))", says=DENIED),
}
