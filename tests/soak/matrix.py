"""The fault matrix: each fault in each phase of a job, over each transport, to each victim (fault_cells.py).

    python tests/soak/matrix.py [--runs 10] [--of c|keras|all] [--only WORD...] [--results FILE] [--write docs/reliability.md]

A cell is a job of three ranks (fault_rank.c, or fault_training.py for the phases of Keras). Checked are that it ends, how soon
the other ranks know, that they and the launcher name the rank that was at fault and no other, that nothing is left, and that
the bits after a restart, or of a job that went on, are those of an untouched one. Exit code 1 if a cell is wrong.

With --results, each job is noted in the file as soon as it has ended. The same command again goes on where the last one was
interrupted, and commands with other cells add theirs; --write makes the tables of all that is in the file.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))  # started by itself

import fault_table
import tarantella
from fault_cells import KERAS, SIGNALS, SIZE, UNDER_MPIRUN, Cell, Found, keras_cells, named, sensible_cells
from support import forked_jobs
from support.launch import DEFAULTS
from support.preloaded_jobs import Job
from survival import processes_with

HERE = Path(__file__).resolve().parent
PACKAGE = Path(tarantella.__file__).parent
MARK = "TARANTELLA_FAULTS"
MOMENT, STOPPED_FOR, GONE_SECONDS, END_SECONDS, MPIRUN_SECONDS = 0.05, 0.3, 10, 90, 2
KINDS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "stop-continue": signal.SIGSTOP, "term": signal.SIGTERM}
LATE = SIZE - 1
Launcher = subprocess.Popen[bytes] | Job
# Open MPI as root, in a container, with more ranks than cores
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


def build(folder: Path) -> Path:
    """The program of the ranks, against the installed package."""
    (library,) = PACKAGE.glob("libtarantella.so.*")
    program = folder / "fault_rank"
    source = [str(HERE / "fault_rank.c"), "-I", str(PACKAGE / "include"), "-o", str(program)]
    linked = [f"-L{PACKAGE}", f"-l:{library.name}", f"-Wl,-rpath,{PACKAGE}"]
    subprocess.run(["cc", "-std=gnu99", "-O1", "-Wall", "-Wextra", "-Werror", *source, *linked], check=True)
    return program


def free_port() -> int:
    """One that nobody listens on, for rank 0."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


class Run:
    """One job of a cell; of none, untouched."""

    def __init__(self, program: Path, folder: Path, transport: str, cell: Cell | None, slack: float) -> None:
        self._program, self._folder, self._transport, self._cell, self._slack = program, folder, transport, cell, slack
        self._mark = uuid.uuid4().hex
        self._restarted = False
        self.found = Found()

    def go(self) -> Found:
        """Starts the job and watches it to its end."""
        with (self._folder / "log").open("wb") as log:
            launcher = self._start(log.fileno())
            try:
                faulted = self._do_the_fault(launcher)
                code = self._wait(launcher)
                ended = time.monotonic()
            except subprocess.TimeoutExpired:
                self._end(launcher, hangs=True)
                return self.found
        self._end(launcher, hangs=False)
        self._judge(code, faulted, ended)
        return self.found

    def _start(self, log: int) -> Launcher:
        environment = self._environment()
        if self._program.suffix == ".py":  # a fork of a process that has imported TensorFlow once for all jobs
            words = ["--preload", "tensorflow,keras", *self._options(), "--", str(self._program)]
            folder, patience = str(self._folder), GONE_SECONDS
            return Job(forked_jobs.LAUNCHER, words, {**DEFAULTS, **environment}, folder, log, log, patience=patience)
        return subprocess.Popen(
            self._command(), cwd=self._folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip

    def _wait(self, launcher: Launcher) -> int:
        """The exit code. Open MPI's mpirun may hang at its own end (PMIx_server_finalize) though all ranks have ended."""
        if self._transport not in UNDER_MPIRUN:
            return launcher.wait(END_SECONDS * self._slack)
        assert isinstance(launcher, subprocess.Popen)
        deadline, alone_since = time.monotonic() + END_SECONDS * self._slack, None
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return launcher.wait(0.5)
            alone = processes_with(MARK, self._mark) == [launcher.pid]
            alone_since = (alone_since or time.monotonic()) if alone else None
            if alone_since is not None and time.monotonic() - alone_since > MPIRUN_SECONDS * self._slack:
                launcher.kill()
                launcher.wait()
                self.found.mpirun_hung = True
                return 0 if self._cell is None or self._cell.ends_well else 1
        raise subprocess.TimeoutExpired("the job", END_SECONDS)

    def _command(self) -> list[str]:
        if self._transport in UNDER_MPIRUN:
            return ["mpirun", "-n", str(SIZE), str(self._program)]
        launcher = (
            [sys.executable, "-P", "-m", "tarantella"] if sys.version_info >= (3, 11) else [sys.executable, "-m", "tarantella"]
        )
        return [*launcher, *self._options(), "--", str(self._program)]

    def _options(self) -> list[str]:
        return ["-n", str(SIZE), *(["--max-restarts", "1"] if self._cell and not self._cell.ends_well else [])]

    def _environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TNT_")}
        cell = self._cell
        own = {
            MARK: self._mark,
            "FAULT_FOLDER": str(self._folder),
            "FAULT_LATE": str(LATE),
            "FAULT_KIND": "none" if cell is None else "signal" if cell.fault in SIGNALS else cell.fault,
            "FAULT_PHASE": cell.phase if cell else "",
            "FAULT_RANK": cell.victim if cell else "",
            "TNT_TIMEOUT": str(cell.timeout if cell else 60),
        }
        if self._transport in UNDER_MPIRUN:
            own |= {"TNT_TRANSPORT": self._transport, **MPI}
        if self._transport == "hierarchical":
            own["FAULT_NODES"] = "2"
        if self._transport == "tcp":
            own |= {"TNT_TRANSPORT": "tcp", "FAULT_RENDEZVOUS": f"tcp://127.0.0.1:{free_port()}"}
        return {**inherited, **own}

    def _note(self, name: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self._folder / name).read_text()
        return ""

    def _do_the_fault(self, launcher: Launcher) -> float:
        """Returns when it happened."""
        if self._cell is None:
            return time.monotonic()
        deadline = time.monotonic() + END_SECONDS * self._slack
        own = self._cell.fault not in SIGNALS
        while not all(self._note(f"{'fault' if own and rank in self._cell.victims else 'at'}-{rank}") for rank in range(SIZE)):
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("the phase", deadline)
            if launcher.has_ended() if isinstance(launcher, Job) else launcher.poll() is not None:
                break
            time.sleep(0.005)
        if own:
            return max(float(self._note(f"fault-{rank}") or "nan") for rank in self._cell.victims)
        time.sleep(MOMENT)  # the ranks that are not late are inside of the call now
        return self._signal(launcher)

    def _signal(self, launcher: Launcher) -> float:
        assert self._cell is not None
        pids = [int(self._note(f"at-{rank}") or 0) for rank in self._cell.victims] or [launcher.pid]
        now = time.monotonic()
        for pid in filter(None, pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, KINDS[self._cell.fault])
        if self._cell.fault == "stop-continue":
            time.sleep(STOPPED_FOR)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        # without a launcher the ranks of mpirun find out by themselves; else they might end well before they are told to end
        if (
            self._cell.victim != "launcher"
            or self._cell.ends_well
            or (self._transport in UNDER_MPIRUN and self._cell.fault == "kill")
        ):
            (self._folder / "go").write_text("go")
        return now

    def _end(self, launcher: Launcher, hangs: bool) -> None:
        """Nothing may be left; a job that hangs is ended."""
        if isinstance(launcher, Job):
            if hangs:
                launcher.give_up()
            launcher.close()
            self._note_end(launcher.left, hangs)
            return
        deadline = time.monotonic() + (0 if hangs else GONE_SECONDS)
        while (left := processes_with(MARK, self._mark)) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        launcher.wait()
        self._note_end(left, hangs)

    def _note_end(self, left: list[int], hangs: bool) -> None:
        self.found.said = self._note("log")
        if hangs:
            self.found.add("seconds", "does not end")
        elif left:
            self.found.add("left", f"{len(left)} processes are left")

    def _judge(self, code: int, faulted: float, ended: float) -> None:
        cell, found = self._cell, self.found
        errors = {rank: self._note(f"error-{rank}").split("\t") for rank in range(SIZE)}
        if cell is None or cell.ends_well:
            told = [error[-1] for error in errors.values() if error != [""]]
            if code != 0 or told:
                found.add("bits", f"ends with code {code}{': ' + told[0] if told else ''}")
            return
        restarted = "restart 1 of 1" in self.found.said
        if cell.victim == "launcher":
            self.found.seconds = ended - faulted
            if code == 0:
                found.add("names", "the end of the launcher is a success")
        elif restarted != (code == 0):
            found.add("bits", f"ends with code {code}{' after a restart' if restarted else ''}")
        knew = [float(error[0]) for rank, error in errors.items() if rank not in cell.victims and len(error) > 1]
        if knew:
            self.found.seconds = max(knew) - faulted
        elif not restarted and not self.found.mpirun_hung:
            self.found.seconds = ended - faulted
        if self.found.seconds is not None and self.found.seconds > cell.seconds * self._slack:
            found.add("seconds", f"took {found.seconds:.1f} s")
        if cell.victim != "launcher":
            self._check_names(errors)

    def _check_names(self, errors: dict[int, list[str]]) -> None:
        assert self._cell is not None
        victims = self._cell.victims
        for rank, error in errors.items():
            if rank in victims or error == [""] or (named(error[-1]) and named(error[-1]) <= victims):
                continue
            self.found.add("names", f"rank {rank} says: {error[-1]}")
        if self._transport in UNDER_MPIRUN:
            if not any(re.search(rf"\brank {victim}\b", self.found.said) for victim in victims):
                self.found.add("names", "nobody names the rank")
            return
        blamed = set(map(int, re.findall(r"^tarantella: rank (\d+) ", self.found.said, re.MULTILINE)))
        # a program in C cannot tell the launcher that it has failed because of another rank: its words do, and are shown
        shown = {rank for rank in blamed if errors[rank][-1] and errors[rank][-1] in self.found.said}
        if not blamed or not blamed - shown <= victims:
            self.found.add("names", f"the launcher names {blamed or 'nobody'}")


class Matrix:
    """Runs cells, several at a time, as they wait most of the time."""

    def __init__(self, top: Path, slack: float = 1.0) -> None:
        """slack: all may take so many times as long as promised."""
        self._top, self._slack = top, slack
        self._program = build(top)
        self._lock = threading.Lock()
        self._numbers = iter(range(1 << 30))
        self._bits: dict[str, str] = {}

    def run(self, cells: Sequence[Cell], parallel: int) -> Iterator[tuple[Cell, Found]]:
        """What came of each, as it ends. A cell may be in the list several times."""
        for transport in {cell.transport for cell in cells if cell.phase not in KERAS}:
            self._bits["c"] = self._untouched(self._program, transport)
        if any(cell.phase in KERAS for cell in cells):
            self._bits["keras"] = self._untouched(HERE / "fault_training.py", "shm")
        jobs = sorted(cells, key=lambda cell: not cell.has_deadline)  # the longest first, so that none is left alone at the end
        pool = ThreadPoolExecutor(parallel)
        try:
            for job in as_completed([pool.submit(self._run_cell, cell) for cell in jobs]):
                yield job.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _untouched(self, program: Path, transport: str) -> str:
        folder = self._folder()
        found = Run(program, folder, transport, None, self._slack).go()
        bits = (folder / "result").read_text() if not found.wrong else ""
        if not bits or (bits != self._bits.get("c", bits) and program.suffix != ".py"):
            raise SystemExit(f"an untouched job over {transport} is wrong: {found.wrong} {bits}\n{found.said}")
        return bits

    def _folder(self) -> Path:
        with self._lock:
            folder = self._top / str(next(self._numbers))
        folder.mkdir()
        return folder

    def _run_cell(self, cell: Cell) -> tuple[Cell, Found]:
        folder, script = self._folder(), cell.phase in KERAS
        program = HERE / "fault_training.py" if script else self._program
        found = Run(program, folder, cell.transport, cell, self._slack).go()
        if not found.wrong and not cell.ends_well and (cell.transport in UNDER_MPIRUN or cell.victim == "launcher"):
            for note in folder.iterdir():
                note.unlink()
            again = Run(program, folder, cell.transport, None, self._slack).go()
            for wrong in again.wrong:
                found.add("bits", f"afterwards: {wrong}")
        if not found.wrong:
            result = (folder / "result").read_text() if (folder / "result").exists() else "none"
            if result != self._bits["keras" if script else "c"]:
                found.add("bits", f"the result is {result}")
        if not found.wrong:
            shutil.rmtree(folder)
        return cell, found


class Results:
    """What came of all jobs, also of those of earlier commands that the file has noted."""

    def __init__(self, file: Path | None) -> None:
        self.found: dict[Cell, list[Found]] = defaultdict(list)
        self._file = file
        if file is not None and file.exists():
            for line in file.read_text().splitlines():
                with contextlib.suppress(ValueError):  # of a line that was being written when the command was ended
                    noted = json.loads(line)
                    found = Found(**{**noted["found"], "failed": set(noted["found"]["failed"])})
                    self.found[Cell(**noted["cell"])].append(found)

    def missing(self, cells: Sequence[Cell], runs: int) -> list[Cell]:
        """The jobs that are left to do, run by run."""
        return [cell for run in range(runs) for cell in cells if len(self.found[cell]) <= run]

    def add(self, cell: Cell, found: Found) -> None:
        self.found[cell].append(found)
        if self._file is not None:
            noted = {"cell": dataclasses.asdict(cell), "found": {**dataclasses.asdict(found), "failed": sorted(found.failed)}}
            with self._file.open("a") as file:
                file.write(json.dumps(noted) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--of", choices=["c", "keras", "all"], default="c", help="programs in C, Keras, or both")
    parser.add_argument("--only", nargs="*", default=[], help="cells whose description has all of these words")
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--slack", type=float, default=1.0, help="all may take so many times as long as promised")
    parser.add_argument("--results", type=Path, help="the file in which each job is noted; those in it are not run again")
    parser.add_argument("--write", type=Path, help="the page that gets the tables")
    given = parser.parse_args()
    cells = [*(sensible_cells() if given.of != "keras" else []), *(keras_cells() if given.of != "c" else [])]
    cells = [cell for cell in cells if set(given.only) <= set(str(cell).split())]
    results = Results(given.results)
    jobs = results.missing(cells, given.runs)
    with tempfile.TemporaryDirectory(prefix="faults-") as top:
        began = time.monotonic()
        for number, (cell, found) in enumerate(Matrix(Path(top), given.slack).run(jobs, given.parallel), 1):
            results.add(cell, found)
            left = (time.monotonic() - began) / number * (len(jobs) - number) / 60
            took = "" if found.seconds is None else f" ({found.seconds:.2f} s)"
            print(f"[{number} of {len(jobs)}, {left:.0f} min left] {cell}: {'; '.join(found.wrong) or 'ok'}{took}", flush=True)
            if found.wrong:
                print(f"--- {found.said}", flush=True)
    every = [found for cell in cells for found in results.found[cell]]
    known = [found.seconds for found in every if found.seconds is not None]
    median = f", after {statistics.median(known):.2f} s (median) and {max(known):.2f} s (most)" if known else ""
    wrong = {cell for cell in cells if any(found.wrong for found in results.found[cell])}
    print(f"{len(cells) - len(wrong)} of {len(cells)} cells held in each of {given.runs} runs{median}")
    print(f"mpirun hung {sum(found.mpirun_hung for found in every)} times after all ranks had ended")
    if given.write:
        fault_table.write(given.write, {cell: found for cell, found in results.found.items() if found})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
