"""Who shares code with whom, as the instructor's page has it."""

from autograder.outputs.instructor import Overview


def test_instructor_sees_who_shares_code(make_result):
    found = [make_result(name) for name in "abcd"]
    for result, codes in zip(found, [("1", "2"), ("1", "2"), ("3", "4"), ("5", "4")], strict=True):
        for exercise, code in zip(result.exercises, codes, strict=True):
            exercise.fingerprint = code
    (who, what), (others, less) = Overview(found).flags
    assert (who, others) == ("a, b", "c, d")
    assert "tiny.mean, tiny.count" in what
    assert less.endswith("in tiny.count")
