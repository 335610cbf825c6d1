from __future__ import annotations

import pytest

from dexloop.core import errors


def test_families_are_split_by_consequence() -> None:
    before_the_run = {
        errors.InputError,
        errors.UnknownName,
        errors.MissingPart,
        errors.StorageError,
        errors.NoEffect,
    }
    assert all(issubclass(e, errors.SetupError) for e in before_the_run)
    assert issubclass(errors.Diverged, errors.TrialError)
    families = (errors.SetupError, errors.TrialError, errors.HaltError)
    assert all(issubclass(family, errors.DexloopError) for family in families)
    # A handler of one consequence must never swallow another one: a halt is no failed trial.
    for family in families:
        assert not any(issubclass(family, other) for other in families if other is not family)


def test_exit_codes_tell_the_consequences_apart() -> None:
    codes = [e.exit_code for e in (errors.DexloopError, errors.SetupError, errors.TrialError, errors.HaltError)]
    assert len(set(codes)) == len(codes)
    assert 0 not in codes
    assert errors.StorageError("full").exit_code == errors.SetupError.exit_code


def test_unknown_name_lists_what_there_is() -> None:
    error = errors.UnknownName("stream", "wrist_pose", ["joints", "wrench"], "Recording 'push' was asked for it.")
    assert str(error) == ("unknown stream 'wrist_pose': there is joints, wrench. Recording 'push' was asked for it.")
    assert (error.kind, error.name, error.choices) == ("stream", "wrist_pose", ("joints", "wrench"))


def test_unknown_name_guesses_a_slip_of_the_finger() -> None:
    assert "did you mean 'ketchup'?" in str(errors.UnknownName("object", "ketchp", ["cube", "ketchup"]))
    assert "did you mean" not in str(errors.UnknownName("object", "zebra", ["cube", "ketchup"]))


def test_unknown_name_says_when_there_is_nothing() -> None:
    assert str(errors.UnknownName("video", "front", [])) == "unknown video 'front': there is none"


def test_unknown_name_takes_any_iterable_once() -> None:
    assert errors.UnknownName("object", "x", (name for name in ("a", "b"))).choices == ("a", "b")


def test_a_setup_error_is_caught_as_one() -> None:
    with pytest.raises(errors.SetupError, match="pip install mcap"):
        raise errors.MissingPart("mcap is not installed; pip install mcap")
