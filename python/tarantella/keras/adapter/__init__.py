"""The one place that knows which Keras this is: what differs between front ends and versions is answered here and nowhere else.

`keras` is the module that the rest imports from here: Keras 3, or `tf_keras` where `tf.keras` is that.
"""

from tarantella.keras.adapter.common import *  # noqa: F403
from tarantella.keras.adapter.front_end import LEGACY
from tarantella.keras.adapter.front_end import keras as keras

if LEGACY:
    from tarantella.keras.adapter.keras2 import *  # noqa: F403
else:
    from tarantella.keras.adapter.keras3 import *  # noqa: F403
