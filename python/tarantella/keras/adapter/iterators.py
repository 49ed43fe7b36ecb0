"""Iterators over datasets are destroyed by a thread of their own.

An iterator's destructor stops the thread that tunes its pipeline. TensorFlow wakes that thread before it sets the flag that
ends it, so the thread may go back to sleep. Its periods grow to a minute. The destructor waits for the thread, and all ranks
wait for the one that runs the destructor. The pipeline and its buffers, which take the memory, are freed before that wait.

Iterators that are left when the interpreter ends are never destroyed. A destructor waits for the Python code that its pipeline
runs, such as a generator, and an interpreter that is ending runs no Python code in other threads.

If a dataset has a cache in a file, its iterators are destroyed at once. The destructor deletes an unfinished file, and a late
destructor would delete what the next iterator has written.
"""

import atexit
import ctypes
import queue
import threading
import weakref
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter import datasets

_ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
atexit.register(ctypes.pythonapi.Py_IncRef, ctypes.py_object(_ended))  # the queue keeps what is in it for ever
_thread: threading.Thread | None = None


def iterator_of(dataset: tf.data.Dataset) -> Any:
    """A new iterator over the dataset. Its user does not wait for its end, unless there is a cache in a file."""
    iterator = iter(dataset)
    if not any(map(datasets.is_cached_in_file, datasets.everything(dataset))):
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
