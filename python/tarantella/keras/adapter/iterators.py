"""Iterators over datasets are destroyed by a thread of their own.

An iterator's destructor stops the thread that tunes its pipeline. TensorFlow wakes that thread before it says what for, so the
thread may sleep on. It looks ever more rarely, in the end once a minute. Whoever destroys the iterator waits as long, and all
ranks wait for the one that does. What takes memory, the pipeline with its buffers, is freed at once.
"""

import queue
import threading
import weakref
from typing import Any

import tensorflow as tf

_ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
_thread: threading.Thread | None = None


def iterator_of(dataset: tf.data.Dataset) -> Any:
    """A new iterator over the dataset. Its user does not wait for its end."""
    iterator = iter(dataset)
    _start()
    weakref.finalize(iterator, _ended.put, iterator._iterator_resource).atexit = False
    return iterator


def _start() -> None:
    global _thread
    if _thread is None or not _thread.is_alive():  # as in a process that was forked
        _thread = threading.Thread(target=_destroy, name="tnt-ended-iterators", daemon=True)
        _thread.start()


def _destroy() -> None:
    while True:
        _ended.get()  # the last reference: nobody keeps what this returns
