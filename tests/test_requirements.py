"""A model runs with the engines, moves and temperatures whose requirements it fulfils."""

import inspect
import re

import numpy as np
import pytest
import scipy.sparse as sp

from skvt.contracts import PROTOCOLS, Capability, ConjugateModel, PassInputs, check_requirements
from skvt.expfam import Normal
from skvt.inference import (
    CoordinateAscent,
    MemoizedInference,
    MovesBetweenPasses,
    Rows,
    State,
    StochasticInference,
    StructuredInference,
    Workers,
)
from skvt.models.factorial import FactorialMixture, Superposition
from skvt.models.gap_nmf import GaPNMF
from skvt.models.hdp import HDP, BirthOfTopics, DeleteTopic, MergeTopics, Sticks
from skvt.models.lda import LDA, LDAGivenTopics, SplitMerge
from skvt.models.mixture import (
    Bernoulli,
    KnownVarianceGaussian,
    KnownWeights,
    Mixture,
    MixtureGivenGlobals,
    SeparateSticks,
    StickBreaking,
)
from skvt.moves import Birth, Delete, Merge
from skvt.temperature import LocalTempering, RunningPolicy, VariationalTempering

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(1.0, size=(12, 5)).astype(float)
BITS = (RNG.random((12, 5)) < 0.5).astype(float)
REALS = RNG.normal(size=(12, 2))

BETAS = Bernoulli(np.ones((5, 2)), np.dtype(float))
KNOWN = KnownVarianceGaussian(
    Normal.from_standard(np.zeros(2), 9.0), np.zeros(2), 1.0, np.dtype(float)
)
TOPICS = LDA(np.full(3, 0.3), np.full(5, 0.3))
FACTORS = FactorialMixture(2, 2, 1.0, 1.0, np.full(2, 0.4), np.dtype(float))

# (model, rows) by a name
MODELS = {
    "LDA": (TOPICS, sp.csr_array(COUNTS)),
    "LDA, Gibbs": (LDAGivenTopics.from_lda(TOPICS, "gibbs", 1, 1), sp.csr_array(COUNTS)),
    "LDA, mean field": (LDAGivenTopics.from_lda(TOPICS, "mean_field", 1, 1), sp.csr_array(COUNTS)),
    "mixture": (Mixture(StickBreaking(1.0), BETAS, n_initial=2), BITS),
    "mixture, known": (Mixture(KnownWeights(np.full(2, 0.5)), KNOWN, n_initial=2), REALS),
    "mixture, drawn": (MixtureGivenGlobals(SeparateSticks(1.0), BETAS, n_initial=2), BITS),
    "factorial": (FACTORS, REALS),
    "NMF": (GaPNMF(3, 5), COUNTS),
    "HDP": (HDP(TOPICS, Sticks(1.0, 0.5), n_initial=2), sp.csr_array(COUNTS)),
}
DRAWN = {"LDA, Gibbs", "LDA, mean field", "mixture, drawn", "NMF"}
REMEMBERED = {"mixture", "mixture, known", "factorial", "HDP"}

# (function that makes the engine of a fit, models that the engine takes)
ENGINES = {
    "coordinate ascent": (CoordinateAscent, set(MODELS)),
    "stochastic": (lambda: StochasticInference(lambda t: 0.5), set(MODELS)),
    "structured": (lambda: StructuredInference(lambda t: 0.5, "ssvi-a"), DRAWN),
    "corrected": (lambda: StructuredInference(lambda t: 0.5, "ssvi"), DRAWN - {"NMF"}),
    "memoized": (MemoizedInference, REMEMBERED),
    "births": (lambda: MemoizedInference([Birth(5)]), {"mixture"}),
    "merges": (lambda: MemoizedInference([Merge()]), {"mixture"}),
    "deletes": (lambda: MemoizedInference([Delete()]), {"mixture"}),
    "births of topics": (lambda: MemoizedInference([BirthOfTopics(5)]), {"HDP"}),
    "merges of topics": (lambda: MemoizedInference([MergeTopics()]), {"HDP"}),
    "deletes of topics": (lambda: MemoizedInference([DeleteTopic()]), {"HDP"}),
    "superposition": (lambda: MemoizedInference([Superposition()]), {"factorial"}),
}
PAIRS = [(engine, model) for engine in ENGINES for model in MODELS]


@pytest.mark.parametrize("engine, name", PAIRS)
def test_each_model_runs_on_each_engine_or_is_refused_with_a_remedy(engine, name):
    (make, legal), (model, X) = ENGINES[engine], MODELS[name]
    made = make()
    if name not in legal:
        missing = next(r for r in made.requires if r.capability not in model.capabilities)
        subject, lacking = re.escape(missing.subject), type(model).__name__
        remedy = r"(Use .* instead|Leave it out of moves)\."
        expected = rf"^{subject} needs .*, which {lacking} does not have\. {remedy}$"
        with pytest.raises(ValueError, match=expected):
            check_requirements(model, made.requires)
        return
    check_requirements(model, made.requires)
    data, rng = Rows(X, np.ones(12), 6), np.random.default_rng(0)
    state = made.start(State(model.initial(data, rng)), data.total)
    if engine == "superposition":
        state.row_starts = np.full((12, 2), np.nan)
    with Workers() as workers:
        for _ in range(4):
            result = made.run_pass(model, state, PassInputs(data, RunningPolicy(), workers, rng))
            assert np.isfinite(result.totals.tempered - result.divergence)
    assert np.isfinite(made.finish(model, state) or 0.0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("policy", [VariationalTempering(), LocalTempering()])
def test_a_temperature_is_learned_if_the_model_has_a_normaliser(name, policy):
    model, legal = MODELS[name][0], {"LDA", "LDA, mean field", "mixture, known", "factorial"}
    assert [r.subject for r in policy.requires] == [type(policy).__name__]
    if name in legal:
        check_requirements(model, policy.requires)
        value, slope = model.tempered_log_partition(np.array([0.5, 1.0]))
        assert value[1] == pytest.approx(0.0, abs=1e-12) and np.all(np.isfinite(slope))
        return
    with pytest.raises(ValueError, match=r"normali|log partition.*Use LinearAnnealing\(\) instead"):
        check_requirements(model, policy.requires)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_methods_of_its_capabilities(name):
    model = MODELS[name][0]
    check_requirements(model, ())
    for capability in model.capabilities & set(PROTOCOLS):
        protocol = PROTOCOLS[capability]
        for member, of_protocol in inspect.getmembers(protocol, inspect.isfunction):
            if member.startswith("_"):
                continue
            found = inspect.signature(getattr(type(model), member)).parameters
            asked = inspect.signature(of_protocol).parameters
            assert list(found)[: len(asked)] == list(asked), (name, member)


def test_an_error_names_what_a_model_lacks():
    class Partial(ConjugateModel):
        capabilities = frozenset({Capability.TEMPERABLE})
        families, n_features, dtype = (), 1, float
        prior = initial = expectation = local_step = lambda self: None

    with pytest.raises(ValueError) as caught:
        check_requirements(Partial(), ())
    assert str(caught.value) == (
        "Partial lacks tempered_log_partition, which skvt.contracts.Temperable requires. Define "
        "what is missing; the base class skvt.contracts.ConjugateModel has what most models share."
    )
    del Partial.local_step
    with pytest.raises(
        ValueError, match=r"lacks local_step, which skvt\.contracts\.Model requires"
    ):
        check_requirements(Partial(), ())


@pytest.mark.parametrize("name", MODELS)
def test_moves_between_passes_need_topics(name):
    moves, model = MovesBetweenPasses([SplitMerge()], 4), MODELS[name][0]
    if Capability.TOPICS in model.capabilities:
        check_requirements(model, moves.requires)
        return
    with pytest.raises(ValueError, match=r"Split-merge needs topics.*Leave it out of moves\."):
        check_requirements(model, moves.requires)
