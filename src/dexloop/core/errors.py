"""Errors split by consequence: before the run, a failed trial, always halt.

Every message is one sentence about what is wrong and, after a semicolon or a colon, what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DexloopError(Exception):
    """Base of all errors that dexloop raises on purpose."""

    exit_code = 1


class SetupError(DexloopError):
    """Something is wrong before anything ran: nothing was written, nothing moved. Mend the input and try again."""

    exit_code = 2


class InputError(SetupError):
    """A file or a value that was given cannot be used."""


class UnknownName(SetupError):
    """A name that matches nothing; the message lists what there is.

    Args:
        kind: What was looked for ("object", "stream").
        name: What was asked for.
        choices: What there is.
        hint: What else could be done, as a sentence.
    """

    def __init__(self, kind: str, name: str, choices: Iterable[str], hint: str = ""):
        self.kind, self.name, self.choices = kind, name, tuple(choices)
        close = difflib.get_close_matches(name, self.choices, n=1)
        listed = ", ".join(self.choices) or "none"
        did_you_mean = f" (did you mean {close[0]!r}?)" if close else ""
        super().__init__(f"unknown {kind} {name!r}{did_you_mean}: there is {listed}" + (f". {hint}" if hint else ""))


class MissingPart(SetupError):
    """An optional library or a piece of the machine is missing; the message says how to get it."""


class StorageError(SetupError):
    """The disk is full or cannot be written. What was there before is intact."""


class NoEffect(SetupError):
    """A parameter that changes nothing in the world it was asked for."""


class TrialError(DexloopError):
    """One trial, recording or world failed. It is written down, and the next one may go on."""

    exit_code = 3


class Diverged(TrialError):
    """A simulated world became unstable; the message names the file that replays it."""


class HaltError(DexloopError):
    """A robot may not go on: a limit was passed, or what it does is no longer known. A person resets it."""

    exit_code = 4
