"""Scripts of the predecessor: its signature of `tnt.Model`, its files, its attributes and names, with either Keras."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS

SCRIPT = RANKS / "compat/predecessor_models.py"


@pytest.fixture(scope="module", params=[(2, "0"), (3, "0"), (2, "1")], ids=["2", "3", "legacy-2"])
def found(request):
    size, legacy = request.param
    if legacy == "1" and importlib.util.find_spec("tf_keras") is None:
        pytest.skip("tf_keras is not installed: pip install --no-deps tf_keras")
    findings = Findings(size, SCRIPT, env={"TF_USE_LEGACY_KERAS": legacy})
    findings.size, findings.legacy = size, legacy == "1"
    return findings


def test_strategies_that_train(found):
    for ways in found["strategies_that_train"]:
        assert set(ways) == {"plain", "by position", "by name", "all"}
        for weights in ways.values():
            np.testing.assert_allclose(weights, ways["plain"], atol=1e-5)


def test_what_is_refused(found):
    for errors in found["what_is_refused"]:
        for name in ("stages of a pipeline", "stages of all", "two parts", "one part"):
            if found.legacy:
                assert errors[name][0] == "UnsupportedError"
                assert errors[name][1].startswith("pipelines need Keras 3")
            elif name == "two parts" and found.size == 3:
                assert errors[name] == ["UnsupportedError", "2 stages on 3 ranks: start 2 ranks, or use pipeline_stages=3"]
            else:
                assert errors[name] == []
        for name, shown in (("no stages", "0"), ("a type for stages", "'bfloat16'")):
            assert errors[name] == ["InvalidArgumentError", f"num_pipeline_stages is {shown}: use a positive integer"]
        assert errors["a fourth"][0] == "TypeError"
        assert "positional" in errors["a fourth"][1]


def test_a_pipeline_of_one_part_on_one_rank():
    only = ["strategies_that_train", "what_is_refused"]
    alone = Findings(1, SCRIPT, only=only, env={"TF_USE_LEGACY_KERAS": "0"})
    (ways,), (errors,) = alone["strategies_that_train"], alone["what_is_refused"]
    assert ways["one part"] == ways["plain"]
    assert errors["stages of a pipeline"] == []
    assert errors["two parts"][0] == "InvalidArgumentError"
    assert errors["two parts"][1].startswith("2 stages on 1 ranks: with schedule='1f1b' each rank has one stage. Start 2 ranks")


def test_options_in_a_copy(found):
    assert found["options_in_a_copy"] == [[[4, 4], True]] * found.size


def test_attributes(found):
    ranks = list(range(found.size))
    assert found["attributes"] == [[ranks, rank, False, True, 17, "AttributeError"] for rank in ranks]


def test_a_file_may_be_deleted_when_a_rank_has_loaded_it(found):
    assert found["loaded_and_deleted"] == [[rank, True, True] for rank in range(found.size)]


def test_one_rank_cannot_read(found):
    last = found.size - 1
    for rank, errors in enumerate(found["one_rank_cannot_read"]):
        for kind, text in errors:
            assert "nowhere" in text
            assert kind != "TarantellaError" if rank == last else kind == "TarantellaError"
            assert rank == last or text.startswith(f"rank {last} failed: ")


def test_errors_name_the_file(found):
    for errors, left in found["errors_name_the_file"]:
        assert len(errors) == (2 if found.legacy else 4)
        for _, text, place in errors:
            assert place in text
            assert "/." not in text
        assert left == []


def test_nothing_is_overwritten_unasked(found):
    for *errors, kept, still in found["nothing_is_overwritten"]:
        for kind, text in errors:
            assert kind == "FileExistsError"
            assert text.endswith("is there already, and overwrite=False: choose another name")
        assert (kept, still) == (True, False)


def test_a_folder_has_no_state_of_the_optimizer(found):
    for of_rank in found["saved_model_folder"]:
        if found.legacy:
            steps, (of_folder, of_file), warnings = of_rank
            assert steps == [[0, 0], [4, 4]], "as Keras has it"
            assert len(of_folder) == 1
            assert "the optimizer begins anew" in of_folder[0]
            assert of_file == []
            assert warnings == 1


def test_names(found):
    for of_rank in found["names"]:
        assert of_rank["zero"] == [True, 0.0, 2]
        assert of_rank["utilities"][0] == "AttributeError"
        assert "pipelines" in of_rank["utilities"][1]
        assert of_rank["yaml"][0] == "RuntimeError"
        assert "model_from_json" in of_rank["yaml"][1]
        assert of_rank["gpus"] == [
            "InvalidArgumentError",
            "setup_gpus: ngpus is 99, and this process sees 0: leave it out for all",
        ]


def test_an_optimizer_with_a_name_and_a_group(found):
    mean = sum(range(found.size)) / found.size
    for same, name, value, (kind, text) in found["optimizer"]:
        assert (same, name) == (True, "mine")
        assert value == pytest.approx(1 - 0.1 * mean)
        assert kind == "UnsupportedError"
        assert "leave group out" in text


def test_base_logger_is_refused_by_name(found):
    for errors in found["base_logger"]:
        assert len(errors) == (2 if found.legacy else 0)
        for kind, text in errors:
            assert kind == "ValueError"
            assert "BaseLogger" in text
