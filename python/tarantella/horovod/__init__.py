"""Horovod's names for TensorFlow and Keras, by its public documentation, on top of Tarantella (docs/horovod.md).

`common` has what needs no TensorFlow, `tensorflow` the collectives, the tape and the optimizer, `tensorflow.keras` the
callbacks; `keras` is another name for that. With TNT_HOROVOD=1 the name ``horovod`` stands for this package
(`horovod_name.py`).
"""

__version__ = "0.28.1"
"""The version of Horovod whose documentation this follows."""
