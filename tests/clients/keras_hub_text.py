"""A text classifier whose class prepares words in its own fit, evaluate and predict; saved, loaded and trained on."""

import keras
import keras_hub
from client import OUT, PLAIN, report, rng, wrap

import tarantella as tnt

WORDS = ["this", "film", "was", "fine", "dull", "grand", "weak", "plot", "cast", "loved", "left"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
texts = [" ".join(rng.choice(WORDS, rng.integers(3, 11))) for _ in range(52)]
labels = [int("fine" in text) for text in texts]

models = keras_hub.models
tokenizer = models.BertTokenizer(vocabulary=SPECIAL + WORDS, lowercase=True)
preprocessor = models.BertTextClassifierPreprocessor(tokenizer, sequence_length=12)
sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32, "max_sequence_length": 12}
backbone = models.BertBackbone(vocabulary_size=len(SPECIAL + WORDS), dropout=0.0, **sizes)
model = wrap(models.BertTextClassifier(backbone, num_classes=2, preprocessor=preprocessor, dropout=0.0))
model.compile(
    optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
data = (texts[:20], labels[:20])
first = model.fit(texts, labels, batch_size=16, epochs=2, verbose=0, shuffle=False, validation_data=data).history
model.save(OUT / "model.keras")
loaded = (keras.models if PLAIN else tnt.models).load_model(OUT / "model.keras")
more = loaded.fit(texts, labels, batch_size=16, verbose=0, shuffle=False).history
outputs = loaded.predict(texts, batch_size=16, verbose=0)
report(first=first, more=more, outputs=outputs, evaluated=loaded.evaluate(texts, labels, batch_size=16, verbose=0))
