"""Objects of a script as bytes: numbers, texts, arrays and containers; others as pickles, with TNT_HOROVOD_PICKLE=1."""

import pickle
from typing import Any

from tarantella import settings
from tarantella.collectives import objects
from tarantella.horovod.common.exceptions import HorovodInternalError

_OBJECT, _PICKLE, _ERROR = b"O", b"P", b"E"


def encode(obj: Any) -> tuple[bytes, Exception | None]:
    """The object for others, or why it has none, for them as well."""
    try:
        return _OBJECT + objects.to_bytes(obj), None
    except (TypeError, RecursionError) as error:
        if settings.horovod_pickle():
            return _PICKLE + pickle.dumps(obj), None
        text = f"{error}; or set TNT_HOROVOD_PICKLE=1 to send a pickle, if all who could change it may run code here"
        return _ERROR + text.encode(), TypeError(text)


def decode(data: bytes, origin: str) -> Any:
    """The object of which `encode` has made these bytes. origin: where they come from, for errors."""
    kind, content = data[:1], data[1:]
    if kind == _ERROR:
        raise HorovodInternalError(f"{origin} failed: {content.decode(errors='replace')}")
    if kind == _PICKLE and not settings.horovod_pickle():
        raise HorovodInternalError(f"{origin} sent a pickle: set TNT_HOROVOD_PICKLE=1 on all ranks")
    return pickle.loads(content) if kind == _PICKLE else objects.from_bytes(content)
