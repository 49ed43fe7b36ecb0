"""What `tarantella status` and a flight record are told of a `fit`: its steps and samples, and the buckets by name."""

from __future__ import annotations

import json

from support.launch import run_ranks

SCRIPT = """
    import json, os, sys, time
    import keras
    import numpy as np
    import tarantella as tnt
    from tarantella.flight import record

    memory = int(os.environ["TNT_INTERNAL_FLIGHT_RECORD"].partition(":")[0])
    model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, name="only")]))
    model.compile("sgd", "mse")
    slow = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(1.1))
    model.fit(np.ones((64, 4)), np.ones((64, 1)), batch_size=16, epochs=2, verbose=0, callbacks=[slow])
    told = record.read(memory)
    calls = [call for lane in told.lanes for call in lane.calls]
    if tnt.get_rank() == 1:  # another rank than 0 tells as much
        with open(sys.argv[1], "w") as file:
            json.dump({
                "rank": told.rank, "step": told.step, "samples": told.samples, "rate": told.samples_per_second,
                "names": sorted({call.name for call in calls}), "open": [str(call) for call in calls if call.is_open],
                "gradients": [str(call) for call in calls if call.name.startswith("gradients bucket 0")],
            }, file)
"""


def test_steps_samples_and_buckets_are_told(tmp_path):
    run_ranks(2, SCRIPT, tmp_path / "found.json").good()
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["rank"], found["step"], found["samples"]) == (1, 8, 128.0)
    assert 0 < found["rate"] <= 64 / 1.0  # one window of more than a second has ended, with four steps of 16 samples or fewer
    assert len(found["gradients"]) == 8 and set(found["gradients"]) == {"all_reduce sum of 5 float32"}
    assert found["open"] == []
