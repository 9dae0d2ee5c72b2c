"""What grading does with IPython's own magics and what its shell has; a test compares it with the IPython installed.

Every other name is a magic of the student's own, or has a sentence where a cell uses it (`absent`).
"""

# Line magics that change names, files or the process, which `shell` does as IPython does.
DONE = frozenset(
    """
    autoreload cd env mkdir popd precision prun pushd pwd pylab reset reset_selective run set_env store time xdel
    """.split()  # noqa: SIM905
)
REMOVES = frozenset({"reset", "reset_selective", "xdel"})
BINDS = frozenset({"macro", "sc"})  # the name that they bind has a sentence
REFUSED = frozenset({"code_wrap", "rerun"})  # they change later cells, or run earlier ones again: a sentence
# Line magics that run programs: what they return, and a file that they would have written, has a sentence.
PROGRAMS = frozenset(
    """
    alias cat clear conda cp ldir less lf lk ll ls lx mamba man micromamba more mv pip rm rmdir subshell sx system uv
    """.split()  # noqa: SIM905
)
# Line magics that only show or ask something; if they return a value, it has a sentence.
HARMLESS = frozenset(
    """
    alias_magic autoawait autocall automagic autosave bookmark colors config connect_info debug dhist dirs doctest_mode
    ed edit gui hist history killbgscripts load load_ext loadpy logoff logon logstart logstate logstop lsmagic magic
    matplotlib notebook page pastebin pdb pdef pdoc pfile pinfo pinfo2 pprint psearch psource pycat qtconsole quickref
    recall rehashx reload_ext rep save tb timeit unalias unload_ext who who_ls whos xmode
    """.split()  # noqa: SIM905
)
LINE_MAGICS = DONE | BINDS | REFUSED | PROGRAMS | HARMLESS
EFFECTS = (DONE - REMOVES - {"pwd"}) | REFUSED

# Cell magics that become their body; that write a file; that run a program, whose `--out NAME` has a sentence; and
# that only show something. Others are not run, and what their cell would have bound has a sentence.
TRANSPARENT = frozenset({"px", "time", "capture", "timeit", "prun"})
FILES = frozenset({"writefile", "file"})
SCRIPTS = frozenset("! bash perl pypy python python2 python3 ruby script sh sx system".split())  # noqa: SIM905
TEXTS = frozenset("HTML SVG html javascript js latex markdown svg".split())  # noqa: SIM905
CELL_MAGICS = TRANSPARENT | FILES | SCRIPTS | TEXTS

# What the shell has whose calls do nothing that an answer can notice.
QUIET_METHODS = frozenset(
    """
    ask_exit atexit_operations auto_rewrite_input cleanup clear_main_mod_cache complete enable_gui enable_matplotlib
    excepthook getoutput refresh_style restore_sys_module_state save_sys_module_state set_autoindent
    set_completer_frame set_custom_completer set_custom_exc set_hook set_next_input set_parent show_banner show_usage
    show_usage_error showindentationerror showsyntaxerror showtraceback switch_doctest_mode system system_piped
    system_raw
    """.split()  # noqa: SIM905
)
QUIET_OBJECTS = frozenset(
    """
    Completer InteractiveTB SyntaxTB colors display_formatter display_pub displayhook inspector log logger
    payload_manager sys_excepthook xmode
    """.split()  # noqa: SIM905
)
