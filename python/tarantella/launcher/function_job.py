"""The program `function_job FOLDER RANKS PARENT` (`own_program.py`): the launcher of the ranks of `tnt.launch`.

It is a process of its own because the caller's belongs to a notebook, with threads, signal handlers and TensorFlow.
"""

import signal
from pathlib import Path

from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.options import Options, parse
from tarantella.launcher.launch import launch
from tarantella.launcher.show.output import Console
from tarantella.launcher.start.function import Folder
from tarantella.launcher.start.own_program import own_program
from tarantella.launcher.start.process import end_with_parent
from tarantella.launcher.start.results import JobResult
from tarantella.launcher.watch import supervision

USAGE_ERROR = 2


def main(argv: list[str]) -> int:
    """Runs the ranks, and leaves word of how they ended in the folder."""
    folder, ranks = Folder(Path(argv[0])), argv[1]
    end_with_parent(int(argv[2]), signal.SIGTERM)
    console = Console()
    supervision.split(console)
    try:
        options = parse(["-n", ranks, "--", *own_program("launcher.start.function_rank", str(folder.path))[1:]])
        assert isinstance(options, Options)
        result = launch(options, console)
    except UsageError as error:  # such as a setting of the environment that makes no sense
        result = JobResult(USAGE_ERROR, str(error), started=False)
    folder.write_job(result)
    return result.code
