"""The trials of one model: what is tried on a batch of the user's, and what follows from what all ranks find."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from tarantella import runtime
from tarantella.collectives.objects import all_gather_object
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.step import moving_statistics
from tarantella.keras.step.losses import LossKinds
from tarantella.keras.step.unwrapped_models import internal_call
from tarantella.keras.trial import (
    joined,
    kept_state,
    losses,
    metrics,
    outputs,
    own_step,
    verdict,
    zeros,
)
from tarantella.keras.trial.by_sums import BySums, common_places
from tarantella.keras.trial.comparison import Kind, NotComparable
from tarantella.keras.trial.declared import is_declared
from tarantella.keras.trial.own_step import OwnStep
from tarantella.keras.trial.parts import SAMPLES, Parts, made_up_batch, other_parts, parts_of, with_borrowed
from tarantella.keras.trial.record import Record
from tarantella.keras.trial.run import PartsFail, Runs, Tried, first_line
from tarantella.keras.trial.state import leaving_no_trace, losses_of, owners_of, state_of
from tarantella.keras.trial.verdict import Answer, Findings

_OUTPUTS = {"train_step": "training", "test_step": "evaluation", "predict_step": "prediction"}


class Trials:
    """The trials of a compiled model.

    Args:
        kinds: what is found of its losses is noted there.
        reproducible: whether batches are computed in shards.
        answer: the user's choice about coupled samples.

    Attributes:
        loss_draws: how often losses drew random numbers in trials.
    """

    def __init__(self, model: Any, kinds: LossKinds, reproducible: bool, answer: Answer) -> None:
        self.loss_draws = 0
        self._model, self._kinds = model, kinds
        self._reproducible = reproducible
        self._answer = answer
        self._tried_steps: set[str] = set()
        self._coupled_losses: dict[int, str] = {}  # by place
        self._messages: dict[str, list[str]] = {subject: [] for subject in verdict.COUPLED}
        self._warned: set[str] = set()
        self._proven_metrics: set[int] = set()  # by id: their states are sums

    def has_tried(self, steps: Sequence[str]) -> bool:
        """Whether all these steps were tried."""
        return self._tried_steps.issuperset(steps)

    def run(self, batch: Any, spec: Any, steps: Sequence[str], is_divided: bool, batch_size: int, again: bool = False) -> None:
        """Tries these steps on a batch, those that were tried before only if it is to be `again`. Collective.

        Args:
            batch: this rank's part of a batch, as the steps get it.
            spec: of such batches.
            steps: names of methods of the model, such as ``"train_step"``.
            is_divided: whether ranks have parts of the same batch.
            batch_size: of all ranks together.

        Raises:
            UnsupportedError: samples are coupled in a way that ranks cannot compute, or a metric is no sum.
        """
        new = [step for step in steps if again or step not in self._tried_steps]
        own, parts = Findings(tried=dict.fromkeys(new, True)), None
        try:
            parts = parts_of(with_borrowed(batch))
        except NotComparable as error:
            own.not_tried["the model"] = str(error)
        with self._trying() as tried:
            if parts is not None:
                own = self._findings(tried, new, parts, spec)
                if own.leave_doubts and parts.samples > 2:
                    own = verdict.both_trials(own, self._findings(tried, new, other_parts(parts), spec))
                if switches := zeros.zeros_of(self._model):
                    switched_on = zeros.switched_on(tried, switches)
                    own = verdict.both_trials(own, self._findings(switched_on, new, parts, spec))
            found = verdict.agreed(own)
            if is_divided:
                self._try_sums(tried, found, parts)
        self._take(found, is_divided, batch_size)
        self._tried_steps.update(new)  # what was refused is tried again, and refused again

    def run_on_whole(self, batch: Any, steps: Sequence[str]) -> None:
        """Tries the losses of these steps on a batch that cannot be cut. Collective."""
        new = [step for step in steps if step not in self._tried_steps]
        own = Findings(tried=dict.fromkeys(new, True))
        with self._trying() as tried:
            for step in new:
                try:
                    joined.try_losses(tried, step, batch, own)
                except Exception as error:  # a model may refuse to be run eagerly in any way
                    own.not_tried["the model"] = first_line(error)
        self._take(verdict.agreed(own), False, 0)
        self._tried_steps.update(new)

    def run_on_made_up(self, batch_spec: Any, steps: Sequence[str], is_divided: bool) -> None:
        """The same on samples that are made up from the spec of a batch. Collective."""
        try:
            batch = made_up_batch(batch_spec)
        except NotComparable as error:
            self._tried_steps.update(steps)
            self._warn("the model", str(error))
        else:
            self.run(batch, batch_spec, steps, is_divided, SAMPLES)

    @contextmanager
    def _trying(self) -> Iterator[Tried]:
        """The context of runs, of which nothing is left."""
        with internal_call(), leaving_no_trace(state_of(self._model), owners_of(self._model)) as restore:
            yield Tried(self._model, self._kinds, restore, moving_statistics.kept(self._model))

    # ------------------------------------------------------------------------------------------------ on this rank

    def _findings(self, tried: Tried, steps: Sequence[str], parts: Parts, spec: Any) -> Findings:
        found = Findings(tried=dict.fromkeys(steps, True))
        for step in steps:
            self._try(tried, step, parts, spec, found)
        return found

    def _try(self, tried: Tried, step: str, parts: Parts, spec: Any, found: Findings) -> None:
        is_own = step != "predict_step" and adapter.has_own(self._model, step, "compute_loss")
        what = step if is_own else "the model's output" if step == "predict_step" else "the model"
        records: tuple[Record, list[Record]] | None = None
        tried.restore()
        before = kept_state.values(tried.kept)
        try:
            if is_own and any(is_declared(getattr(self._model, name)) for name in (step, "compute_loss")):
                return
            if is_own:
                records = self._own_step(tried, step, parts, found)
            else:
                records = self._kerass_step(tried, step, parts, spec, found)
        except PartsFail as error:
            found.not_tried[f"!{what}"] = str(error)
        except context.GathersInTrial as error:
            found.gathers[what] = str(error)
        except (context.RefusedInTrial, NotComparable) as error:
            found.not_tried[what] = str(error)
        except Exception as error:  # a model may refuse to be run eagerly, or on few samples, in any way
            found.not_tried[what] = first_line(error)
        if records is not None:
            whole, part_records = records
            kept = kept_state.kinds(before, whole.kept, [part.kept for part in part_records], parts.weights)
            found.kept.update(((step, place), kind.name) for place, kind in kept.items())
        if records is not None and step != "predict_step":
            metric_findings = metrics.findings(metrics.user_metrics(self._model), *records, parts.samples)
            for place, finding in metric_findings.items():
                found.metrics[place] = max(found.metrics.get(place, (*finding,)), (*finding,))

    def _kerass_step(self, tried: Tried, step: str, parts: Parts, spec: Any, found: Findings) -> tuple[Record, list[Record]]:
        """A step of Keras' own: its outputs, then its losses."""
        if adapter.computes_in_16_bits(self._model):
            raise NotComparable("it computes in 16 bits")
        new_runs = functools.partial(Runs, tried, step, spec)
        runs = new_runs()
        whole, records = runs.records(parts)
        kind, apart = outputs.kind_of(parts, whole, records, lambda: runs.whole(parts.whole))
        if kind is Kind.COUPLED:
            found.coupled[step] = outputs.sentence(self._model, parts, apart, _OUTPUTS[step], new_runs)
        else:
            self._note_losses(step, parts, whole, records, found, lambda: runs.whole(parts.whole))
        if step != "predict_step" and not is_declared(self._model.compute_metrics):
            finding = OwnStep(tried, step, parts, self._reproducible).finding_of_metrics(whole, records)
            if finding is not None:
                found.steps[step] = self._as_found(finding)
        return whole, records

    def _own_step(self, tried: Tried, step: str, parts: Parts, found: Findings) -> tuple[Record, list[Record]] | None:
        trial = OwnStep(tried, step, parts, self._reproducible)
        error: Exception | None = None
        finding = own_step.Finding()
        try:
            finding = trial.finding()
        except NotComparable as caught:
            error = caught
        if trial.records is not None:
            self._note_losses(step, parts, *trial.records, found, trial.again)
        given = losses_of(self._model)
        coupled = {id(given[place]) for place, (kind, _) in found.losses.items() if Kind[kind] is Kind.COUPLED}
        if coupled:  # it is gathered, or refused by itself
            finding, error = replace(finding, gradients=trial.kind_without(coupled), variable="", percent=0.0), None
        found.steps[step] = self._as_found(finding)
        if error is not None:
            raise error
        return trial.records

    def _as_found(self, finding: own_step.Finding) -> dict[str, Any]:
        """The finding of a step in words and places, which are the same on all ranks."""
        places = {id(metric): place for place, metric in enumerate(self._model.metrics)}
        updates = {(places[metric], call): kind.name for (metric, call), kind in finding.updates.items() if metric in places}
        logs = {place: kind.name for place, kind in finding.logs.items()}
        return {**asdict(finding), "gradients": finding.gradients.name, "updates": updates, "logs": logs}

    def _note_losses(
        self,
        step: str,
        parts: Parts,
        whole: Record,
        records: Sequence[Record],
        found: Findings,
        again: Callable[[], Record],
    ) -> None:
        given = losses_of(self._model)
        for place, (kind, said) in losses.compiled_kinds(given, parts, whole, records, again).items():
            if kind is Kind.COUPLED and not losses.are_given_alike(given[place], parts, whole, records):
                continue  # what the step gives it couples samples, and shows in the step
            if not is_declared(given[place]):
                found.losses[place], found.step_of_loss[place] = (kind.name, said), step
                size, *sizes = (int(record.loss_bytes[id(given[place])]) for record in (whole, *records))
                found.bytes_of_losses[place] = size // parts.samples if sum(sizes) == size or size < 0 else verdict.NO_ROWS
        found.loss_draws += whole.loss_draws
        if adapter.has_own(self._model, step, "compute_loss"):
            return
        places = {id(layer): place for place, layer in enumerate(adapter.layers_of(self._model))}
        for (layer, call), (kind, said) in losses.added_kinds(parts, whole, records).items():
            found.added[step, places[layer], call] = kind.name, said

    # ------------------------------------------------------------------------------------------------- on all ranks

    def _try_sums(self, tried: Tried, found: Findings, parts: Parts | None) -> None:
        """Finds out whether what couples samples is made of sums over them; then it does so no more. Collective."""
        by_sums = BySums(tried)
        subjects = by_sums.subjects(found)
        if not subjects or self._answer.accept_approximate:
            return
        own = [None if parts is None else by_sums.try_out(subject, parts) for subject in subjects]
        for subject, *rank_places in zip(subjects, *all_gather_object(own), strict=True):
            places = common_places(rank_places)
            if places is not None:
                by_sums.settle(subject, places)
                found.forget_coupling(*subject)
                runtime.logger.info("%s is made of sums over samples: ranks add up each of them", by_sums.described(subject))

    def _take(self, found: Findings, is_divided: bool, batch_size: int) -> None:
        self.loss_draws += found.loss_draws
        for what, reason in found.not_tried.items():
            self._warn(what, reason)
        for what, reason in found.gathers.items():
            runtime.logger.info("%s is not tried on parts of a batch: %s", what, reason)
        self._take_metrics(found, is_divided and self._kinds.may_use_sums)
        self._take_losses(found)
        self._take_added(found)
        for step, finding in found.steps.items():
            self._take_step(step, finding)
        self._messages["output"] = list(found.coupled.values())
        kept = kept_state.settled(self._model, self._kinds, found.kept)
        self._messages["kept"] = [kept.pop("train_step")] if "train_step" in kept else []
        if is_divided:
            for sentence in kept.values():
                self._warn(f"!{sentence}", f"{sentence}. {verdict.KEPT_IN_INFERENCE}")
            self._gather_losses(found, batch_size)
            for subject, said in self._messages.items():
                if said:
                    verdict.refuse(subject, said, self._answer, self._warned)

    def _warn(self, what: str, reason: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            if what.startswith("!"):
                runtime.logger.warning("%s", reason)
            else:
                verdict.warn_not_tried(what, reason)

    def _take_metrics(self, found: Findings, can_gather: bool) -> None:
        user_metrics = metrics.user_metrics(self._model)
        for place, finding in found.metrics.items():
            metric, (problem, couples, not_tried, is_proven, has_rows) = user_metrics[place], finding
            if problem and not can_gather:
                raise UnsupportedError(
                    f"the metric {metric.name!r} ({type(metric).__name__}) cannot be computed on several ranks: {problem}. Let "
                    "update_state add to sums and counts that begin at zero, and compute the number in result()"
                )
            if not_tried:
                self._warn(f"the metric {metric.name!r}", not_tried)
            elif is_proven:
                self._proven_metrics.add(id(metric))
            elif not couples and not problem and id(metric) not in self._proven_metrics:
                problem = "not all of its states change on the first batch" * (can_gather and has_rows)
                if not problem:
                    self._warn(f"!{metric.name}", verdict.UNPROVEN.format(metric.name))
            if (couples or problem) and id(metric) not in self._kinds.gathered_metrics:
                self._kinds.gathered_metrics.add(id(metric))
                why = problem or "it couples the samples of a batch, or keeps more than its variables"
                runtime.logger.info("the metric %r is computed from the samples of all ranks: %s", metric.name, why)

    def _take_losses(self, found: Findings) -> None:
        given = losses_of(self._model)
        for place, (name, said) in found.losses.items():
            loss, kind = given[place], Kind[name]
            described = losses.described(self._model, loss)
            if kind is Kind.SUM and id(loss) not in self._kinds.summed:
                self._kinds.summed.add(id(loss))
                runtime.logger.info("%s is a sum over samples: ranks add up their parts", described)
            if kind is Kind.UNKNOWN and not adapter.is_builtin_loss(loss):
                self._warn(described, "it is zero or not finite")
            if kind is Kind.COUPLED and id(loss) not in self._kinds.gathered:
                self._coupled_losses[place] = f"{described} couples the samples of a batch: {said}"

    def _gather_losses(self, found: Findings, batch_size: int) -> None:
        """Losses that couple samples are computed from those of all ranks, where that is possible."""
        given, refused = losses_of(self._model), []
        for place, said in self._coupled_losses.items():
            if self._answer.accept_approximate or self._reproducible or found.bytes_of_losses.get(place, 0) < 0:
                refused.append(said)
                continue
            self._kinds.gathered.add(id(given[place]))
            if not self._answer.across_ranks and said not in self._warned:
                self._warned.add(said)
                runtime.logger.warning(
                    "%s. Each rank computes it from the outputs of all ranks, which exchange %d bytes for it in a step: "
                    "tnt.Model(model, across_ranks=True) does so without this message, and accept_approximate=True trains the "
                    "mean of the ranks' losses",
                    said,
                    found.bytes_of_losses.get(place, 0) * batch_size,
                )
        self._messages["loss"] = refused

    def _take_added(self, found: Findings) -> None:
        layers = adapter.layers_of(self._model)
        said: dict[int, str] = {}
        for (step, place, call), (name, compared) in found.added.items():
            layer, kind = layers[place], Kind[name]
            key = step == "train_step", id(layer), call
            if kind is Kind.SUM and key not in self._kinds.summed_added:
                self._kinds.summed_added.add(key)
                runtime.logger.info(
                    "the loss that the layer %r adds is a sum over samples: ranks add up their parts", layer.name
                )
            elif kind is Kind.UNKNOWN:
                self._warn(f"the loss that the layer {layer.name!r} adds by add_loss", "it is zero or not finite")
            elif kind is Kind.COUPLED:
                said.setdefault(
                    place, f"the loss that the layer {layer.name!r} adds by add_loss couples the samples of a batch: {compared}"
                )
        self._messages["added"] = list(said.values())

    def _take_step(self, step: str, found: dict[str, Any]) -> None:
        kinds, metrics_of_model = self._kinds, self._model.metrics
        summed = Kind.SUM.name
        kinds.summed_updates.update(
            (step, id(metrics_of_model[place]), call) for (place, call), kind in found["updates"].items() if kind == summed
        )
        kinds.summed_logs.update((step, place) for place, kind in found["logs"].items() if kind == summed)
        if found["gradients"] == summed and not kinds.summed_gradients:
            kinds.summed_gradients = True
            runtime.logger.info("the gradients of train_step are sums over samples: ranks add up theirs")
        if found["in_tapes"]:
            if not kinds.reduced_at_tape:
                runtime.logger.info("train_step computes with its gradients: its tapes give those of the whole batch")
            kinds.reduced_at_tape, kinds.noise_in_gradients = True, found["noise_later"]
            self._refuse_with_gradients()
        coupled = Kind.COUPLED.name
        if found["names"] and found["gradients"] != coupled and step not in self._warned:
            self._warned.add(step)
            runtime.logger.warning(
                "%s: %s: neither a mean nor a sum over samples: the ranks' own numbers are shown as their mean, weighted by "
                "samples",
                step,
                " and ".join(found["names"]),
            )
        if found["gradients"] == coupled:
            what = f"the training step of {type(self._model).__name__} couples the samples of a batch"
            self._messages["step"] = [
                f"{what}: on samples of the first batch the gradient of {found['variable']} differs by "
                f"{found['percent']:.2g} % from the mean of those of two parts of them, weighted by samples, and is not their "
                "sum either"
                if found["variable"]
                else f"{what}, not only by the loss given to compile"
            ]

    def _refuse_with_gradients(self) -> None:
        said = f"the training step of {type(self._model).__name__} computes with its gradients before its optimizer gets them"
        if self._reproducible:
            raise UnsupportedError(
                f"reproducible: {said}, and those of one shard are not those of the batch: let the optimizer clip them "
                "(clipnorm, clipvalue, global_clipnorm), or train without reproducible"
            )
        if own_step.accumulates(self._model):
            raise UnsupportedError(
                f"{said}, and the optimizer adds them up over several steps: let the optimizer clip them (clipnorm, clipvalue, "
                "global_clipnorm), or use no gradient_accumulation_steps"
            )
