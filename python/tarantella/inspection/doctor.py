"""`tarantella doctor`: checks whether training would work on this machine, or on the hosts of a job."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tarantella import variables
from tarantella.inspection.checks import NOTE, OK, PROBLEM, Finding, findings
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.arguments import Parser
from tarantella.launcher.command_line.hosts import Host, read_hostfile, read_hosts
from tarantella.launcher.start.mpirun import find_mpirun, mpirun_command
from tarantella.launcher.start.own_program import own_program

SECONDS = 60
"""How long a job that tests something may take, or a host to answer."""
CLOCK_SECONDS = 5.0
"""Hosts' clocks differ if they do by more than this. mpirun starts on one host somewhat later than on another."""
SIGNS = {OK: "ok  ", NOTE: "note", PROBLEM: "FAIL"}
SHOWN_OF_HOSTS = ("tensorflow", "keras", "GPUs", "AMD", "Intel", "cores", "memory")
SAME_ON_ALL_HOSTS = ("Tarantella", "tensorflow", "keras", "tf_keras", "parts", "MPI", "GPUs", "AMD", "NCCL")


def doctor(argv: Sequence[str]) -> int:
    """Returns what the process should exit with: 1 if training would fail. Raises UsageError; SystemExit for --help."""
    parser = Parser(
        prog="tarantella doctor",
        usage="tarantella doctor [--hostfile FILE | --hosts LIST] [--mpirun COMMAND] [--json]",
        description="Lists what this machine has (versions, MPI, GPUs, cores, memory, limits, settings). Starts two ranks that "
        "compute a sum over shared memory and over MPI. Gives a remedy for each problem. With hosts: checks each of them, and "
        "names those that differ. Exit code 1: training would fail.",
        allow_abbrev=False,
    )
    parser.add_argument("--hostfile", metavar="FILE", help="check the hosts that FILE names, with mpirun, as for a job")
    parser.add_argument("--hosts", metavar="LIST", help="the same as --hostfile, as a list: a,b")
    parser.add_argument(
        "--mpirun", metavar="COMMAND", default="mpirun", help="command that starts programs on hosts (default: mpirun)"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON, one line for each host")
    given = parser.parse_args(list(argv))
    if given.hostfile is not None and given.hosts is not None:
        raise UsageError("--hostfile and --hosts: give one of them")
    if given.hostfile is None and given.hosts is None:
        return _here(given.json)
    hosts = read_hostfile(given.hostfile) if given.hostfile is not None else read_hosts(given.hosts)
    return _on(hosts, given.mpirun.split(), given.json)


def main(argv: Sequence[str]) -> int:
    """The program that mpirun starts on each host."""
    print(json.dumps(_facts(findings())), flush=True)
    return 0


def _facts(found: Iterable[Finding]) -> dict[str, Any]:
    return {"host": socket.gethostname(), "time": time.time(), "findings": [asdict(one) for one in found]}


def _here(as_json: bool) -> int:
    found = []
    for one in _all_here():
        found.append(one)
        if not as_json:
            _show(one)
    problems = sum(one.state == PROBLEM for one in found)
    if as_json:
        print(json.dumps(_facts(found)))
    else:
        print(f"{problems} problem{'s' * (problems > 1)}: see FAIL" if problems else "Training works here.")
    return int(problems > 0)


def _all_here() -> Iterator[Finding]:
    mpi = False
    for found in findings():
        mpi |= found.subject == "MPI" and found.state == OK
        yield found
    yield _tested("2 ranks, shared memory", ["-n", "2"], PROBLEM)
    if mpi:
        yield _tested("2 ranks, MPI", ["--hosts", "localhost:2", "--mpirun", "mpirun", "-x", "TNT_TRANSPORT=mpi"], NOTE)


def _show(found: Finding) -> None:
    print(f"{SIGNS[found.state]}  {found.subject:<23} {found.text}", flush=True)
    if found.remedy:
        print(f"{'':29} -> {found.remedy}", flush=True)


def _tested(subject: str, options: Sequence[str], state: str) -> Finding:
    """A job that computes sums. state: if it fails."""
    command = own_program("cli", *options, "--timeout", "30", "--", *own_program("inspection.self_test")[1:])
    alone = {name: value for name, value in os.environ.items() if name not in variables.OF_LAUNCHER}
    done = _output(command, alone)
    remedy = "run `tarantella -n 2 -- SCRIPT` for all that it says"
    if isinstance(done, str):
        return Finding(subject, state, done, remedy)
    line = next((line for line in done.stdout.splitlines() if line.startswith('{"transport"')), None)
    if done.returncode != 0 or line is None:
        said = [line for line in done.stderr.splitlines() if line.startswith("tarantella: ")] or done.stderr.splitlines()
        return Finding(subject, state, said[-1] if said else f"the job ended with code {done.returncode}", remedy)
    told = json.loads(line)
    speed = told["bytes_per_second"] / 1e9
    return Finding(subject, OK, f"sums are right; {speed:.1f} GB/s over {told['transport']} (bus bandwidth of 16 MiB)")


def _output(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str] | str:
    """The output of a program, or why there is none."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=SECONDS,
            check=False, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{command[0]} has not ended after {SECONDS} s"
    except OSError as error:
        return f"{command[0]} cannot be started: {error.strerror}"


def _on(hosts: Sequence[Host], mpirun: Sequence[str], as_json: bool) -> int:
    each = tuple(Host(host.name, 1) for host in hosts)
    command = mpirun_command(find_mpirun(mpirun), each, own_program("inspection.doctor"), os.environ, root=os.geteuid() == 0)
    done = _output(command, os.environ)
    if isinstance(done, str):
        raise UsageError(f"{done}: a host may be down, or ask for a password")
    answers = list(answers_in(done.stdout))
    if done.returncode != 0 or len(answers) < len(each):
        said = [line for line in done.stderr.splitlines() if any(map(str.isalpha, line))] or ["it says nothing"]
        raise UsageError(f"{len(answers)} of {len(each)} hosts have answered; {mpirun[0]}: {said[0]}")
    problems = list(_problems_of(answers))
    for found in answers if as_json else []:
        print(json.dumps(found))
    if not as_json:
        for answer in answers:
            texts = {one["subject"]: one["text"] for one in answer["findings"]}
            shown = ", ".join(f"{name} {texts[name]}" for name in SHOWN_OF_HOSTS if name in texts)
            print(f"{answer['host']}: {shown}")
        print("\n".join(problems) if problems else f"{len(answers)} hosts are alike, and training works on each of them.")
    return int(bool(problems))


def answers_in(text: str) -> Iterator[dict[str, Any]]:
    """The hosts' answers in the output of mpirun, which may print two of them before the end of the first one's line."""
    decoder = json.JSONDecoder()
    at = text.find('{"host"')
    while at >= 0:
        try:
            answer, end = decoder.raw_decode(text, at)
        except ValueError:
            end = at + 1
        else:
            yield answer
        at = text.find('{"host"', end)


def _problems_of(answers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    first = answers[0]
    for answer in answers:
        for one in answer["findings"]:
            if one["state"] == PROBLEM:
                yield f"FAIL  {answer['host']}: {one['subject']}: {one['text']}" + f" -> {one['remedy']}" * bool(one["remedy"])
    for subject in SAME_ON_ALL_HOSTS:
        texts = [_text(answer, subject) for answer in answers]
        for answer, text in zip(answers, texts, strict=True):
            if text != texts[0]:
                yield f"FAIL  {subject}: {first['host']} has {texts[0] or 'none'}, and {answer['host']} has {text or 'none'}"
    apart = max(answer["time"] for answer in answers) - min(answer["time"] for answer in answers)
    if apart > CLOCK_SECONDS:
        yield f"FAIL  clocks: they differ by {apart:.0f} s -> run an NTP client on all hosts"


def _text(answer: Mapping[str, Any], subject: str) -> str:
    texts = [str(one["text"]) for one in answer["findings"] if one["subject"] == subject]
    return "; ".join(texts)
