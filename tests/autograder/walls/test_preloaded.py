"""What the zygote imported for one lab changes nothing for the next: classes of several labs share one."""

from autograder.sessions.remote import RemoteSession
from autograder.walls.zygote import Zygote

KIND = "import triton.language as tl\ndef kind():\n    return type(tl.sum).__name__"


def test_kernels_are_interpreted_after_a_compiler(need, tmp_path):
    import torch

    need("triton", not torch.cuda.is_available(), "there is a card: Triton compiles")
    with Zygote() as zygote:
        zygote.preload_lab(("triton.language",))  # as torch's optimizers do, in lab frameworks
        with RemoteSession(zygote, [("cell 1", KIND)], str(tmp_path)) as session:
            session.start_check(20)
            assert session.student.kind() == "InterpretedFunction"
