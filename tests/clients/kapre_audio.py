"""A network on the mel spectrogram that a layer of kapre makes from sound."""

import keras
from client import report, rng, wrap
from kapre.composed import get_melspectrogram_layer

x = rng.normal(size=(40, 1600, 1)).astype("float32")
y = rng.integers(0, 3, 40)
options = {"n_fft": 128, "hop_length": 64, "sample_rate": 8000, "n_mels": 12, "return_decibel": True}
sound = get_melspectrogram_layer(input_shape=(1600, 1), **options)
layers = [sound, keras.layers.Conv2D(4, 3, 2, activation="relu"), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3)]
model = wrap(keras.Sequential(layers))
model.compile(keras.optimizers.SGD(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history
report(history=history, outputs=model.predict(x, batch_size=16, verbose=0))
