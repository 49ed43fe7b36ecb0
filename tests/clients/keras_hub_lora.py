"""A causal language model: all weights are trained, then two of low rank in each attention alone, then it makes text."""

import keras
import keras_hub
from client import PLAIN, report, rng, wrap

models = keras_hub.models
sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32, "max_sequence_length": 12}
backbone = models.GPT2Backbone(vocabulary_size=32, dropout=0.0, **sizes)
model = wrap(models.GPT2CausalLM(backbone, preprocessor=None))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
tokens = rng.integers(1, 32, (40, 13))
x = {"token_ids": tokens[:, :-1], "padding_mask": (tokens[:, :-1] > 0)}
y = tokens[:, 1:]
model.compile(optimizer=keras.optimizers.SGD(0.05), loss=loss)
whole = model.fit(x, y, batch_size=16, verbose=0, shuffle=False).history
model.backbone.enable_lora(2)
for layer in model.backbone._flatten_layers():  # its first values are random, and the plain run must have the same
    if getattr(layer, "lora_enabled", False):
        layer.lora_kernel_a.assign(keras.random.normal(layer.lora_kernel_a.shape, seed=1))
model.compile(optimizer=keras.optimizers.SGD(0.05), loss=loss)
of_low_rank = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history
outputs = model.predict(x, batch_size=16, verbose=0)
report(
    whole=whole, of_low_rank=of_low_rank, outputs=outputs, trained=len((model if PLAIN else model.model).trainable_variables)
)
