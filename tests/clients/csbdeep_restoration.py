"""A network of CSBDeep, which owns its training: data from a generator, callbacks, the best weights on disk and back."""

import numpy as np
from client import OUT, report, rng, wrap
from csbdeep.models import CARE, Config

x = rng.normal(size=(44, 16, 16, 1)).astype("float32")
y = (x + np.roll(x, 1, 1)) / 2
options = {"unet_n_depth": 1, "unet_n_first": 4, "unet_kern_size": 3, "train_batch_size": 8, "train_reduce_lr": None}
config = Config("YXC", 1, 1, train_epochs=2, train_steps_per_epoch=4, train_tensorboard=False, **options)
model = CARE(config, "restoration", basedir=str(OUT))
model.prepare_for_training()
model.keras_model = wrap(model.keras_model)
model.keras_model.compile("sgd", "mse", metrics=["mae"])
history = model.train(x[:36], y[:36], validation_data=(x[36:], y[36:])).history
assert (OUT / "restoration" / "weights_last.h5").exists() or list((OUT / "restoration").glob("weights_last*"))
report(history=history, restored=model.predict(x[0], "YXC", normalizer=None))
