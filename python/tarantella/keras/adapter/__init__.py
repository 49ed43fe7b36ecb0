"""The one place that knows which Keras this is, and the only one that uses private names of Keras and TensorFlow.

`keras` is the module that the rest of the package imports from here: Keras 3, or `tf_keras` where `tf.keras` is that. What
differs between front ends and versions is answered in this package and nowhere else: `common` holds what both front ends
answer alike, `keras3` and `keras2` what only one of them does. `datasets` and `tensorflow` read private parts of TensorFlow.

A test names each private name and what it is needed for (tests/python/support/keras_contract.py). It passes with Keras 3.8.0,
3.10.0, 3.12.0, 3.13.2 and 3.15.1, and with tf_keras 2.18.0, 2.19.0, 2.20.1 and 2.21.0.
"""
# ruff: noqa: F403

from tarantella.keras.adapter.common.callbacks import *
from tarantella.keras.adapter.common.losses import *
from tarantella.keras.adapter.common.models import *
from tarantella.keras.adapter.common.optimizers import *
from tarantella.keras.adapter.front_end import LEGACY
from tarantella.keras.adapter.front_end import keras as keras

if LEGACY:
    from tarantella.keras.adapter.keras2.data import *
    from tarantella.keras.adapter.keras2.losses import *
    from tarantella.keras.adapter.keras2.models import *
    from tarantella.keras.adapter.keras2.optimizers import *
    from tarantella.keras.adapter.keras2.seeds import *
else:
    from tarantella.keras.adapter.keras3.data import *
    from tarantella.keras.adapter.keras3.layer_graph import *
    from tarantella.keras.adapter.keras3.losses import *
    from tarantella.keras.adapter.keras3.models import *
    from tarantella.keras.adapter.keras3.optimizers import *
    from tarantella.keras.adapter.keras3.seeds import *
