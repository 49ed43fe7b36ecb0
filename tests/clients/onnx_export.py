"""A trained model as an ONNX file by Keras' export, which is written once, and by tf2onnx from the plain model."""

import keras
import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx
from client import OUT, PLAIN, report, rng, wrap

import tarantella as tnt

x = rng.normal(size=(60, 8)).astype("float32")
model = wrap(keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]))
model.compile("sgd", "mse")
model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=2, verbose=0, shuffle=False)
model.export(str(OUT / "exported.onnx"), format="onnx", verbose=False)
if PLAIN or tnt.is_master_rank():
    run = tf.function(lambda rows: model(rows), input_signature=[tf.TensorSpec((None, 8), tf.float32, name="rows")])
    tf2onnx.convert.from_function(run, run.input_signature, output_path=str(OUT / "converted.onnx"))
if not PLAIN:
    tnt.barrier()
found = []
for name in ("exported", "converted"):
    session = onnxruntime.InferenceSession(str(OUT / f"{name}.onnx"))
    found.append(session.run(None, {session.get_inputs()[0].name: x})[0])
assert np.allclose(found, model.predict(x, verbose=0), atol=1e-5)
report(found=found)
