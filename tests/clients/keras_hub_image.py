"""An image classifier whose class resizes and scales images in its own fit, evaluate, predict and train_on_batch."""

import keras
import keras_hub
from client import report, rng, wrap

models = keras_hub.models
converter = keras_hub.layers.ViTImageConverter(image_size=(16, 16), scale=1 / 255)
preprocessor = models.ViTImageClassifierPreprocessor(converter)
sizes = {"patch_size": 4, "num_layers": 1, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 32}
backbone = models.ViTBackbone(image_shape=(16, 16, 3), dropout_rate=0.0, attention_dropout=0.0, **sizes)
model = wrap(models.ViTImageClassifier(backbone, num_classes=3, preprocessor=preprocessor))
model.compile(optimizer=keras.optimizers.SGD(0.05), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, y = rng.integers(0, 255, (40, 20, 20, 3)).astype("float32"), rng.integers(0, 3, 40)
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history
on_batch = model.train_on_batch(x[:8], y[:8])
report(history=history, on_batch=on_batch, outputs=model.predict(x, batch_size=16, verbose=0))
