"""Runs the steps of packaging/Containerfile in a fresh Debian, without a container program: `tools/container`.

`tools/container packaging/apptainer.def` runs those of Apptainer's file. Each stage is a folder that debootstrap fills, and
each RUN is a chroot into it. So what the files say is tried where there is neither podman nor Apptainer. It needs root,
debootstrap and a network.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from release.environments import ROOT

FILE = ROOT / "packaging/Containerfile"
DEFINITION = ROOT / "packaging/apptainer.def"
RELEASES = {"debian:12": "bookworm"}
OF_THIS_MACHINE = ("etc/resolv.conf", "etc/hosts", "etc/apt/apt.conf.d", "etc/pip.conf", "etc/ssl/certs")
"""The ways to the network, which a container program would give the steps, too."""


def main() -> int:
    parser = argparse.ArgumentParser("tools/container", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build/container", help="for the file systems (default: %(default)s)"
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=FILE,
        help="a Containerfile, or a .def of Apptainer (default: packaging/Containerfile)",
    )
    given = parser.parse_args()
    folder, file = given.folder.absolute(), given.file.resolve()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("tools/container: needs root, and debootstrap (Debian: debootstrap)", file=sys.stderr)
        return 2
    try:
        build(definition_steps(file.read_text()) if file.suffix == ".def" else steps(file.read_text()), folder)
    except subprocess.CalledProcessError as error:
        print(f"tools/container: failed: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    print(f"tools/container: all steps of {file.relative_to(ROOT)} have run, in {folder}")
    return 0


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Instruction and arguments of each step of a Containerfile."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in _lines("\n".join(lines)):
        instruction, _, arguments = line.partition(" ")
        yield instruction.upper(), arguments.strip()


def _lines(text: str) -> list[str]:
    """The lines that are not empty, each with its continuations."""
    return [line.strip() for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]


def definition_steps(text: str) -> Iterator[tuple[str, str]]:
    """The same of a definition file of Apptainer. SETUP is a script on this machine."""
    for stage in re.split(r"^(?=Bootstrap:)", text, flags=re.MULTILINE)[1:]:
        header, *sections = re.split(r"^%", stage, flags=re.MULTILINE)
        of_stage = dict(line.split(": ", 1) for line in header.splitlines() if ": " in line)
        yield "FROM", f"{of_stage['From']} AS {of_stage['Stage']}"
        tests = []
        for section in sections:
            title, _, script = section.partition("\n")
            name, *words = title.split()
            script = textwrap.dedent(script).strip()
            if name == "setup":
                yield "SETUP", script
            elif name == "files":
                for line in script.splitlines():
                    yield "COPY", f"--from={words[1]} {line}"
            elif name == "post":
                for line in _lines(script):  # each by itself, as a package may replace what this machine lends each step
                    yield "RUN", line
            elif name == "environment":
                for line in script.splitlines():
                    yield "ENV", line.removeprefix("export ")
            elif name == "test":
                tests += _lines(script)
            elif name != "runscript":
                raise ValueError(f"{DEFINITION}: %{name} is not known here")
        for test in tests:  # Apptainer runs it when all else has been done
            yield "RUN", test


def build(steps_of_file: Iterable[tuple[str, str]], folder: Path) -> None:
    """Runs all steps. Raises CalledProcessError."""
    stages: dict[str, Path] = {}
    root, environment = folder, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    for instruction, arguments in steps_of_file:
        print(f"tools/container: {instruction} {arguments}", flush=True)
        if instruction == "FROM":
            image, *name = re.split(r"\s+AS\s+", arguments, flags=re.IGNORECASE)
            root = stages[name[0] if name else ""] = folder / f"stage{len(stages)}"
            _unpack(image, folder, root)
        elif instruction == "RUN":
            _run(root, arguments, environment)
        elif instruction == "SETUP":
            words = ["sh", "-e", "-c", arguments]
            subprocess.run(words, check=True, cwd=ROOT, env={**os.environ, "APPTAINER_ROOTFS": str(root)})
        elif instruction == "COPY":
            _copy(arguments, stages, root)
        elif instruction == "ENV":
            environment |= dict([arguments.split("=", 1)])
        elif instruction != "CMD":
            raise ValueError(f"{instruction} is not known here")


def _unpack(image: str, folder: Path, root: Path) -> None:
    base = folder / RELEASES[image]
    if not (base / "bin").exists():
        base.mkdir(parents=True, exist_ok=True)
        subprocess.run(["debootstrap", "--variant=minbase", RELEASES[image], base], check=True, stdout=subprocess.DEVNULL)
    if root.exists():
        shutil.rmtree(root)
    subprocess.run(["cp", "-a", base, root], check=True)


def _run(root: Path, command: str, environment: Mapping[str, str]) -> None:
    """With /proc, in namespaces of its own, so that nothing of it stays mounted and no process stays."""
    for name in OF_THIS_MACHINE:  # before each step: packages make their own
        if Path("/", name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-aLT", "--remove-destination", f"/{name}", root / name], check=True)
    inside = f'mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && exec chroot {root} /bin/sh -c "$0"'
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", inside, command]
    inherited = {name: value for name, value in os.environ.items() if name != "PIP_FIND_LINKS" and not name.startswith("TNT_")}
    subprocess.run(words, check=True, env={**inherited, "DEBIAN_FRONTEND": "noninteractive", **environment})


def _copy(arguments: str, stages: Mapping[str, Path], root: Path) -> None:
    """`SOURCE TARGET` of this checkout, without what git ignores, or `--from=STAGE SOURCE TARGET`."""
    *options, source, target = arguments.split()
    to = root / target.lstrip("/")
    to.mkdir(parents=True, exist_ok=True)
    if options:
        stage = stages[options[0].removeprefix("--from=")]
        subprocess.run(["cp", "-aT", stage / source.lstrip("/"), to], check=True)
        return
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-c", "--null", "-T", "-", "-f", to / ".tar"], cwd=ROOT, check=True, input=listed)
    subprocess.run(["tar", "-x", "-f", ".tar"], cwd=to, check=True)
    (to / ".tar").unlink()


if __name__ == "__main__":
    sys.exit(main())
