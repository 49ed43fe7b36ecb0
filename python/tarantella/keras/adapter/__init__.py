"""The one place that knows which Keras this is, and the only one that uses private names of Keras and TensorFlow.

`keras` is the module that the rest of the package imports from here: Keras 3, or `tf_keras` where `tf.keras` is that. What
differs between front ends and versions is answered in this package and nowhere else: `common` holds what both front ends
answer alike, `keras3` and `keras2` what only one of them does. `datasets` and `tensorflow` read private parts of TensorFlow.

A test names each private name and what it is needed for (tests/python/support/keras_contract.py). docs/versions.md lists the
versions with which it passes.
"""
# ruff: noqa: F403

from tarantella.keras.adapter.common.callbacks import *
from tarantella.keras.adapter.common.functions import *
from tarantella.keras.adapter.common.losses import *
from tarantella.keras.adapter.common.models import *
from tarantella.keras.adapter.common.optimizers import *
from tarantella.keras.adapter.common.python_state import *
from tarantella.keras.adapter.front_end import LEGACY
from tarantella.keras.adapter.front_end import keras as keras

if LEGACY:
    from tarantella.keras.adapter.common.attributes import *
    from tarantella.keras.adapter.keras2.data import *
    from tarantella.keras.adapter.keras2.losses import *
    from tarantella.keras.adapter.keras2.models import *
    from tarantella.keras.adapter.keras2.optimizers import *
    from tarantella.keras.adapter.keras2.seeds import *
else:
    from tarantella.keras.adapter.common.attributes import *
    from tarantella.keras.adapter.keras3.data import *
    from tarantella.keras.adapter.keras3.losses import *
    from tarantella.keras.adapter.keras3.models import *
    from tarantella.keras.adapter.keras3.optimizers import *
    from tarantella.keras.adapter.keras3.seeds import *
    from tarantella.keras.adapter.keras3.slots import *
