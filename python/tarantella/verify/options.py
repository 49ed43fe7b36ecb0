"""The command line of `tarantella verify`: its own options, and the launcher's for each run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.arguments import MAX_RANKS, Parser, setting
from tarantella.launcher.command_line.command import OWN_PYTHON
from tarantella.launcher.command_line.options import Cleanup, Options, parse, split

SHARDS = 8
EXAMPLE = "tarantella verify --ranks 1,2,4 -- train.py"


@dataclass(frozen=True)
class VerifyOptions:
    """A checked command line."""

    ranks: tuple[int, ...]
    shards: int
    json: bool
    own_folders: bool
    keep: Path | None
    """Where the fingerprints stay."""
    launcher_words: tuple[str, ...]
    script: tuple[str, ...]

    def options(self, run: int, file: Path) -> Options:
        """The launcher's, of one of the runs. Raises UsageError."""
        own = ["-n", str(self.ranks[run]), "--reproducible", str(self.shards), "-x", f"TNT_FINGERPRINT={file}"]
        options = parse([*self.launcher_words, *own, "--", *self.script])
        if isinstance(options, Cleanup):
            raise UsageError("--cleanup: not with verify")
        if options.dry_run:
            raise UsageError("--dry-run: not with verify")
        return options


def parse_verify(argv: Sequence[str]) -> VerifyOptions:
    """Raises UsageError; SystemExit for --help."""
    before, _, after = split(argv)
    parser = Parser(
        prog="tarantella verify",
        usage="tarantella verify [--ranks 1,2,4,8] [options] [options of tarantella] -- SCRIPT [args...]",
        description="Runs SCRIPT at several numbers of ranks, one after another, and tells whether weights, optimizer state, "
        "losses and metrics of its tnt.Model are equal to the bit after every epoch. Exit code 0: equal; 1: different; "
        "2: a run has failed.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--ranks",
        metavar="LIST",
        type=_numbers,
        default=(1, 2, 4, 8),
        help="the numbers of ranks, also the same one twice (default: 1,2,4,8); all must equal the first",
    )
    add(
        "--reproducible",
        metavar="V",
        type=setting("TNT_REPRODUCIBLE"),
        help=f"into how many shards batches are cut (default: {SHARDS}, or the largest number of ranks if that is larger)",
    )
    add("--json", action="store_true", help="report in JSON on standard output; what the script prints goes to standard error")
    add("--own-folders", action="store_true", help="run the script in an empty folder for each run, which is removed then")
    add("--keep", metavar="FOLDER", type=Path, help="keep the fingerprints of the runs there")
    given, words = parser.parse_known_args(before)
    for word in words:
        if word in ("-n", "--devices-per-node", "--n-per-node", "--npernode"):
            raise UsageError(f"{word}: say with --ranks how many ranks each run has, as in {EXAMPLE}")
    script = after
    if given.own_folders and after and after[0] in ("-m", *OWN_PYTHON):
        raise UsageError(f"--own-folders: {after[0]!r} finds nothing in an empty folder: give a script's file, as in {EXAMPLE}")
    if given.own_folders and after and os.path.exists(after[0]):
        script = [os.path.abspath(after[0]), *after[1:]]
    shards = int(given.reproducible) if given.reproducible else max(SHARDS, 1 << (max(given.ranks) - 1).bit_length())
    return VerifyOptions(
        ranks=given.ranks,
        shards=shards,
        json=given.json,
        own_folders=given.own_folders,
        keep=given.keep,
        launcher_words=tuple(words),
        script=tuple(script),
    )


def _numbers(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if len(words) < 2 or not all(word.isascii() and word.isdigit() and 1 <= int(word) <= MAX_RANKS for word in words):
        raise argparse.ArgumentTypeError(f"must be two numbers of ranks or more, such as 1,2,4, not {text!r}")
    return tuple(map(int, words))
