"""Models of transformers with the losses that they compute in their call: a classifier, and a causal language model."""

import numpy as np
import tf_keras as keras
from client import OUT, PLAIN, report, rng, wrap
from transformers import BertConfig, GPT2Config, TFBertForSequenceClassification, TFGPT2LMHeadModel

import tarantella as tnt

sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 12}
tokens, labels = rng.integers(1, 40, (40, 12)).astype("int32"), rng.integers(0, 2, 40)
mask = (tokens > 3).astype("int32")

model = wrap(TFBertForSequenceClassification(BertConfig(**sizes, **quiet)))
model.compile(keras.optimizers.SGD(0.05), metrics=["accuracy"])
x = {"input_ids": tokens, "attention_mask": mask}
history = model.fit(x, labels, batch_size=16, epochs=2, verbose=0, shuffle=False).history
model.save_pretrained(OUT / "bert")
if not PLAIN:
    tnt.barrier()
loaded = wrap(TFBertForSequenceClassification.from_pretrained(OUT / "bert"))
loaded.compile(keras.optimizers.SGD(0.05))
found = [history, loaded.predict(x, batch_size=16, verbose=0).logits]

options = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
writer = wrap(TFGPT2LMHeadModel(GPT2Config(40, 12, 16, 1, 2, **options)))
writer.compile(keras.optimizers.SGD(0.05))
data = {"input_ids": tokens, "attention_mask": mask, "labels": np.where(mask, tokens, -100)}  # some words do not count
found.append(writer.fit(data, batch_size=16, epochs=2, verbose=0, shuffle=False).history)
report(found=found, weights=writer.get_weights())
