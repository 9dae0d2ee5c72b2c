"""Calls whose effects `effects` knows by name: read-only calls, calls that change arguments, and calls that concern
everything."""

import re

# Calls that do not change their arguments: builtins, and everything from these modules.
PURE = frozenset(
    """
    abs all any bool bytes callable chr complex dict display divmod enumerate filter float format frozenset getattr
    hasattr hash hex id int isinstance issubclass len list map max min open ord pow print range repr reversed round
    set slice sorted str sum super tuple type vars zip
    """.split()  # noqa: SIM905
)
QUIET = frozenset(
    """
    matplotlib pylab IPython autograder ipywidgets hpcdl.widgets hpcdl.cluster hpcdl.data hpcdl.cost time math
    warnings itertools operator pprint statistics
    """.split()  # noqa: SIM905
)
# Libraries whose functions change arguments only if their name or an `out=` says so.
ARRAYS = ("torch", "numpy", "scipy")
CHANGERS = frozenset(
    """
    at copyto delitem fill_diagonal iadd iconcat imul ior isub place put putmask setitem shuffle vector_to_parameters
    """.split()  # noqa: SIM905
)
# Read-only methods of any object; and methods of containers, which do not change their arguments.
READS = frozenset(
    """
    abs all allclose any argmax argmin astype bool clamp clone contiguous copy cos count cpu detach diff dim double
    dtype endswith eq exp expand find flatten float format ge get gt half index int isfinite isnan item items join
    keys le log long lower lstrip lt max mean min mm mul ne neg norm numel numpy permute pow prod replace reshape
    rsplit rstrip shape sin size split sqrt squeeze startswith state_dict std strip sub sum t tan tanh to tolist
    topk transpose type unsqueeze upper values var view zfill
    """.split()  # noqa: SIM905
)
CONTAINERS = frozenset(
    """
    add append appendleft clear discard extend insert pop popitem remove reverse setdefault sort update
    """.split()  # noqa: SIM905
)
# Calls that may bind any name, and calls that write and read files: one may read what another has written.
ANYTHING = frozenset({"exec", "eval", "globals", "locals", "run_cell", "run_cell_magic", "push", "ex", "ev"})
BARE = frozenset({"exec", "eval", "globals", "locals"})  # only without a dot: `model.eval()` is something else
READABLE = frozenset({"globals", "locals"})  # a function may only read them; a statement may do more
RUNS_TEXT = frozenset(
    {"exec", "eval", "run_cell", "run_cell_magic", "ex", "ev", "run_path"}
)  # their names are in texts
# Objects that hold the notebook's names: `vars()["x"] = 1`.
SPACES = frozenset({"vars", "get_ipython", "builtins", "__main__"})
WRITES = frozenset(
    """
    chdir commit dump execute executemany executescript extractall hardlink_to makedirs mkdir mkdtemp mkstemp rename
    save savefig savetxt savez savez_compressed symlink symlink_to to_csv to_excel to_feather to_hdf to_json to_parquet
    to_pickle tofile touch unlink urlretrieve write write_bytes write_text writefile writelines writerow writerows
    writestr
    """.split()  # noqa: SIM905
)
# Modules whose every call may write.
WRITERS = ("dbm", "h5py", "joblib", "logging", "shelve", "shutil", "sqlite3", "tarfile", "zipfile")
# Functions of `os` that change no file.
OS_READS = frozenset(
    """
    _exit abort cpu_count fork fsencode fsdecode fspath get_terminal_size getcwd getenv getloadavg getpgid getpid
    getppid isatty kill killpg listdir pread read scandir sched_getaffinity stat sysconf uname urandom waitpid walk
    """.split()  # noqa: SIM905
)
OPENS = frozenset(
    """
    connect exec_module exists find_spec from_file fromfile genfromtxt getmtime getsize glob import_module is_dir
    is_file isdir isfile iterdir lexists listdir load loadtxt memmap open open_memmap parse read read_bytes read_csv
    read_excel read_feather read_hdf read_html read_json read_parquet read_pickle read_table read_text rglob run_cell
    run_path scandir spec_from_file_location stat walk ZipFile
    """.split()  # noqa: SIM905
)
# Calls that change a library's settings: they are quick, and always run.
SETTINGS = frozenset(
    """
    filterwarnings manual_seed seed set_option setcontext seterr setlocale setrecursionlimit setstate simplefilter
    """.split()  # noqa: SIM905
)
# Such calls by their names, if they are a library's; grading chooses the numbers of threads, and debugs nothing.
SETS = re.compile(
    r"(?!set_num_|set_trace)(?:set|register|enable|disable|use|add)_\w+|register|enable|disable|custom_op|triton_op|Library"
)
# What calls leave in a library, where later calls find it: by "module.function".
HIDDEN = {
    "<figures>": re.compile(r"(matplotlib\.pyplot|pylab)\..*"),
    "<random>": re.compile(
        r"random\..*|.*\.sample|.*\.(random|uniform|normal|bernoulli|exponential|log_normal|cauchy|geometric)_"
        r"|(torch|numpy|scipy)\b.*\.\w*(rand|normal|uniform|bernoulli|multinomial|shuffle|choice|permutation|poisson)\w*"
        r"|torch\b.*\.(\w*(dropout|xavier|kaiming|orthogonal)\w*|Linear|Bilinear|Conv\w+|Embedding|LSTM|GRU|RNN)"
    ),
}
ARGUMENTS = frozenset({"parse_args", "parse_known_args"})  # calls that read `sys.argv`
# Calls that start something beside the cells, which runs while a cell sleeps.
STARTS = frozenset("call_at call_later call_soon create_task ensure_future run_in_executor start submit".split())  # noqa: SIM905
SLOW = ("matplotlib", "autograder", "hpcdl.widgets", "hpcdl.cluster", "hpcdl.training")
