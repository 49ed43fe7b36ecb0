"""Image models of keras-cv-attention-models: attention in shifted windows, and convolutions with normalized layers."""

import tf_keras as keras
from client import report, rng, wrap
from keras_cv_attention_models import convnext, swin_transformer_v2

x = rng.uniform(size=(36, 32, 32, 3)).astype("float32")
y = rng.integers(0, 4, 36)
common = {"input_shape": (32, 32, 3), "num_classes": 4, "pretrained": None, "classifier_activation": None}
found = []
for model in (
    swin_transformer_v2.SwinTransformerV2([1, 1], (2, 2), embed_dim=8, window_size=4, **common),
    convnext.ConvNeXt([1, 1], [8, 16], layer_scale_init_value=1.0, drop_connect_rate=0, **common),
):
    model = wrap(model)
    model.compile(keras.optimizers.SGD(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"])
    found.append(model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history)
    found.append(model.predict(x, batch_size=16, verbose=0))
report(found=found)
