"""A trained model as a LiteRT file, which is written once and computes what the model does."""

import keras
import numpy as np
from ai_edge_litert.interpreter import Interpreter
from client import OUT, PLAIN, report, rng, wrap

import tarantella as tnt

x = rng.normal(size=(60, 8)).astype("float32")
model = wrap(keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]))
model.compile("sgd", "mse")
model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=2, verbose=0, shuffle=False)
path = str(OUT / "model.tflite")
model.export(path, format="litert", verbose=False)
if not PLAIN:
    tnt.barrier()
interpreter = Interpreter(path)
interpreter.allocate_tensors()
interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x[:1])
interpreter.invoke()
found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
assert np.allclose(found, model.predict(x[:1], verbose=0), atol=1e-5)
report(found=found)
