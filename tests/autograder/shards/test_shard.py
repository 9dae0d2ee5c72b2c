"""Every student belongs to one part, with all files, whatever the machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder.grading.layouts import Submission
from autograder.shards.shard import ClassShard


@given(st.text(max_size=30), st.integers(1, 70))
def test_a_student_is_in_one_part(student, n):
    assert sum(ClassShard(index, n).holds(Submission(student, None)) for index in range(1, n + 1)) == 1


def test_parts_do_not_change_from_one_machine_to_another():
    digests = {"ada": 0xFDEE430D40BD57DE, "ben": 0x6700869C8FF7480E}  # printf ada | sha256sum | cut -c1-16
    for name, digest in digests.items():
        assert ClassShard(digest % 64 + 1, 64).holds(Submission(name, None))


def test_parts_are_about_equal():
    sizes = [sum(ClassShard(i, 8).holds(Submission(f"student {k}", None)) for k in range(8000)) for i in range(1, 9)]
    assert min(sizes) > 850, sizes
    assert max(sizes) < 1150, sizes


def test_name_outside_utf_8_has_a_part():
    assert sum(ClassShard(i, 3).holds(Submission("\udcff", None)) for i in (1, 2, 3)) == 1


def test_shard_round_trips():
    assert str(ClassShard.parse(" 3/64 ")) == "3/64"


@pytest.mark.parametrize(
    "text", ["", "3", "0/4", "5/4", "-1/4", "1/0", "a/b", "1/4/2", "1.0/4", "\u0663/4", "1/9999999"]
)
def test_bad_shard_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="is not a shard: give the number of a part and of how many, 1/64 to 64/64"):
        ClassShard.parse(text)
