"""The Keras in use: Keras 3 or, with TF_USE_LEGACY_KERAS, `tf_keras`. It is the one that `tf.keras` is, chosen once."""

from tarantella import versions
from tarantella.environment import legacy_keras
from tarantella.errors import UnsupportedError

LEGACY = legacy_keras()

if LEGACY:
    try:
        import tf_keras as keras
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"TF_USE_LEGACY_KERAS is set, and legacy Keras cannot be imported ({error}): pip install 'tarantella[legacy]', "
            "or unset the variable to use Keras 3"
        ) from error
    if not keras.__version__.startswith("2."):
        raise UnsupportedError(f"tf_keras {keras.__version__} is not supported: use version 2 (pip install 'tf_keras<3')")
    versions.check("tf_keras", keras.__version__)
else:
    import keras

    if versions.number(keras.__version__) >= (4, 0):
        raise UnsupportedError(f"Keras {keras.__version__} is not supported: {versions.supported('keras').install}")
    versions.check("keras", keras.__version__)
    if keras.backend.backend() != "tensorflow":
        raise UnsupportedError(
            f"Keras runs on {keras.backend.backend()}: Tarantella needs its TensorFlow backend (KERAS_BACKEND=tensorflow)"
        )

__all__ = ["LEGACY", "keras"]
