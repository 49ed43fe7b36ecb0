"""What only legacy Keras (`tf_keras`) answers so: its private parts are touched here and nowhere else."""

from tarantella.errors import UnsupportedError

raise UnsupportedError("models of legacy Keras are not available yet: unset TF_USE_LEGACY_KERAS to use Keras 3")
