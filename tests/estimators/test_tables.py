"""MemoizedDPMixture reads tables of any columns, fills them in and gives them back."""

import functools

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from scipy.stats import poisson
from sklearn import clone
from sklearn.compose import make_column_selector
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skvt import (
    ColumnWarning,
    MemoizedDPGMM,
    MemoizedDPMixture,
    StructuredBernoulliMixture,
    load,
    save,
)
from skvt.components import (
    Bernoulli,
    Categorical,
    Gaussian,
    Hurdle,
    LatentGaussian,
    Multinomial,
    NegativeBinomial,
    Poisson,
    StudentT,
)

N_ROWS = 240
COLOURS = np.array(["red", "blue", "red"])


def table(seed=0, *, n_rows=N_ROWS, share=0.0):
    """Three clusters in five kinds of columns, and a share of missing values."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=n_rows)
    frame = pd.DataFrame(
        {
            "count": rng.poisson(np.array([1.0, 6.0, 20.0])[kind]),
            "colour": COLOURS[kind],
            "striped": rng.random(n_rows) < np.array([0.05, 0.5, 0.95])[kind],
            "size": rng.normal(np.array([-4.0, 0.0, 4.0])[kind]),
            "grade": pd.Categorical(np.array(list("abc"))[kind], categories=list("cbad")),
            "when": pd.date_range("2020-01-01", periods=n_rows),
        }
    ).astype({"count": "Int64", "striped": "boolean"})
    for j in range(5):
        frame.iloc[rng.random(n_rows) < share, j] = pd.NA
    return frame, kind


BLOCKS = [
    ("events", "poisson", ["count"]),
    ("names", Categorical(), ["colour", "grade"]),
    ("flags", "bernoulli", make_column_selector(dtype_include="boolean")),
    ("real", Gaussian("diag"), [False, False, False, True, False, False]),
]


def mixture(**parameters):
    # Births take less time if there is room for few components.
    usual = {"components": BLOCKS, "max_components": 4, "random_state": 0}
    return MemoizedDPMixture(**(usual | parameters))


@functools.cache
def fitted_table(share=0.0):
    """A table and a fit of it, which no test changes."""
    frame, _ = table(share=share)
    return frame, mixture().fit(frame)


# ---------------------------------------------------------------------------------- reading
def test_clusters_are_found_in_columns_of_any_kind_with_missing_values():
    frame, fitted = fitted_table(0.2)
    _, kind = table(share=0.2)
    assert fitted.n_components_ == 3
    known = frame["grade"].notna().to_numpy()
    labels = fitted.predict(frame)[known]
    # Each cluster has one label.
    assert pd.crosstab(labels, kind[known]).max(axis=1).sum() > 0.97 * known.sum()


def test_every_container_of_a_table_has_the_same_fit():
    frame, _ = table(share=0.1)
    frame = frame.drop(columns="when")
    # Categories without an order of their own are sorted, which is another order here.
    names = Categorical(categories=[["blue", "red"], list("cbad")])
    specs = [("events", "poisson"), ("names", names), ("flags", "bernoulli"),
             ("real", Gaussian("diag"))]  # fmt: skip
    by_name = [["count"], ["colour", "grade"], ["striped"], slice("size", "size")]
    by_position = [[0], [1, 4], 2, slice(3, 4)]

    def components(columns):
        return [(*spec, own) for spec, own in zip(specs, columns, strict=True)]

    still = {"n_components": 3, "moves": (), "max_iter": 5}
    expected = mixture(components=components(by_name), **still).fit(frame)
    assert list(expected.categories_["names"][1]) == list(frame["grade"].cat.categories)
    for held, columns in (
        (pl.from_pandas(frame), by_name),
        (pl.from_pandas(frame).to_arrow(), by_name),
        (frame.astype(object).to_numpy(), by_position),
    ):
        found = mixture(components=components(columns), **still).fit(held)
        assert found.elbo_ == expected.elbo_
        np.testing.assert_array_equal(found.predict(held), expected.predict(frame))


def test_auto_takes_columns_by_their_types():
    frame, _ = table()
    still = MemoizedDPMixture(max_iter=2, moves=())
    fitted = still.fit(frame.drop(columns="when"))
    assert [(name, type(spec), columns) for name, spec, columns in fitted.blocks_] == [
        ("numbers", Gaussian, ["size"]),
        ("counts", NegativeBinomial, ["count"]),
        ("categories", Categorical, ["colour", "grade"]),
        ("flags", Bernoulli, ["striped"]),
    ]
    assert list(fitted.categories_["categories"][1]) == list("cbad")
    words = sp.csr_array(np.random.default_rng(0).poisson(1.0, (30, 4)))
    assert type(still.fit(words).blocks_[0][1]) is Multinomial
    bits = np.random.default_rng(0).random((30, 2)) < 0.5
    assert type(still.fit(bits).blocks_[0][1]) is Bernoulli


def test_sparse_features_of_many_categories_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=300)
    frame = pd.DataFrame({
        "size": rng.normal(4.0 * kind), "town": 40.0 * kind + rng.integers(40, size=300),
        "kind": kind + 0.0,
    })  # fmt: skip
    frame.iloc[:40, 0], frame.iloc[30:60, 1] = np.nan, np.nan
    blocks = [("size", Gaussian("full"), ["size"]), ("names", Categorical(), ["town", "kind"])]
    fits = []
    # The two columns have 123 categories.
    for least in (60, 64):
        monkeypatch.setattr("skvt.models.mixture.components._discrete._MIN_LEVELS_IF_SPARSE", least)
        fits.append(mixture(components=blocks, n_components=6, max_components=6).fit(frame))
    sparse, dense = fits
    assert sparse.n_components_ == 3
    assert sparse.elbo_ == pytest.approx(dense.elbo_, rel=1e-12)
    pd.testing.assert_frame_equal(sparse.impute(frame), dense.impute(frame))
    for found in ("predict_proba", "score_samples"):
        np.testing.assert_allclose(
            getattr(sparse, found)(frame), getattr(dense, found)(frame), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("shape", ["full", "diag", "spherical", "tied", "low_rank"])
def test_a_table_of_one_gaussian_is_a_mixture_of_gaussians(shape):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(m, 1.0, size=(30, 3)) for m in (-5.0, 0.0, 5.0)])
    # Births are made of the same parts, whatever the covariances.
    own = {"max_components": 3} if shape == "full" else {"n_components": 3, "moves": ()}
    known = MemoizedDPGMM(covariance_type=shape, max_rank=1, random_state=0, **own).fit(X)
    spec = [("columns", Gaussian(shape, max_rank=1), slice(None))]
    found = mixture(components=spec, **own).fit(X)
    assert found.elbo_ == pytest.approx(known.elbo_, rel=1e-12)
    np.testing.assert_array_equal(found.predict(X), known.predict(X))
    pd.testing.assert_frame_equal(known.describe(), found.describe())
    means = known.describe().query("quantity == 'mean'")["estimate"]
    np.testing.assert_allclose(means, known.means_.ravel())
    np.testing.assert_allclose(known.block_relevance_, found.block_relevance_)


def test_a_table_of_binary_columns_is_a_mixture_of_bernoullis():
    rng = np.random.default_rng(0)
    bits = (rng.random((4, 10)) < 0.5)[rng.integers(4, size=80)] ^ (rng.random((80, 10)) < 0.1)
    known = StructuredBernoulliMixture(8, learning_method="memoized", init_params="k-means++",
                                       max_iter=100, random_state=0).fit(bits)  # fmt: skip
    found = mixture(components="auto", n_components=8, max_components=8).fit(bits)
    assert found.elbo_ == pytest.approx(known.elbo_, rel=1e-12)


def test_codes_and_memory_mapped_rows_are_not_copied(tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(4, size=50), rng.normal(size=(50, 2))])
    path = tmp_path / "rows.npy"
    np.save(path, X)
    mapped = np.load(path, mmap_mode="r")
    blocks = [("codes", "categorical", [0]), ("real", Gaussian("diag"), [1, 2])]
    fitted = mixture(components=blocks, max_iter=3).fit(mapped)
    assert fitted.elbo_ == mixture(components=blocks, max_iter=3).fit(X).elbo_
    assert np.shares_memory(fitted._read(mapped), mapped)
    # Other numbers are categories too, in ascending order.
    renamed = X.copy()
    renamed[:, 0] = np.array([-1.5, 2.0, 7.0, 100.0])[X[:, 0].astype(int)]
    assert mixture(components=blocks, max_iter=3).fit(renamed).elbo_ == fitted.elbo_


@pytest.mark.parametrize("levels", [[1, 2, "1", "unknown"], [(1,), (1, 2)], [1, 2.5], [1, 2]])
def test_levels_keep_their_types(levels):
    def same(found):
        return [(type(value), value) for value in found] == [(type(v), v) for v in levels]

    column = np.empty(4 * len(levels), object)
    column[:] = 4 * levels
    for frame in (pd.DataFrame({"a": column}), pl.DataFrame([pl.Series("a", column, pl.Object)])):
        fitted = mixture(components=[("own", Categorical(), ["a"])]).fit(frame)
        (categories,) = fitted.categories_["own"]
        assert same(categories.tolist())
        assert same(fitted.predict_column_proba(frame, "a")[1].tolist())
        assert same(dict.fromkeys(fitted.describe()["category"]))
        assert set(fitted.sample(9)[0]["a"]) <= set(levels)


def test_streams_take_categories_from_the_first_batch():
    frame, _ = table()
    parts = [frame.iloc[:120], frame.iloc[120:]]
    stream = mixture(n_components=3, moves=(), handle_unknown="error")
    for part in parts:
        stream.partial_fit(part)
    other = frame.iloc[:1].assign(colour="mauve")
    with pytest.raises(ValueError, match=r"Unknown category 'mauve' in column 'colour'.*'prior'"):
        stream.partial_fit(other)
    tolerant = mixture(n_components=3, moves=(), handle_unknown="missing", max_iter=5).fit(frame)
    hidden = frame.iloc[:1].assign(colour=None)
    np.testing.assert_array_equal(tolerant.predict_proba(other), tolerant.predict_proba(hidden))
    assert tolerant.score_samples(other) < tolerant.score_samples(frame.iloc[:1])


# --------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("components", "change", "message"),
    [
        ([("a", "poisson", ["size"])], {}, "Column 'size' must have counts.*counted"),
        ([("a", "gaussian", ["colour"])], {}, "'colour' has 'red'.*Categorical"),
        ([("a", "bernoulli", ["count"])], {}, "Column 'count' must be binary.*Categorical"),
        ([("a", "gaussian", ["when"])], {}, "'when' is of type datetime64"),
        ([("a", "gaussian", ["size"])], {"size": np.inf}, "infinity in column 'size'"),
        ([("a", "gaussian", ["size"])], {"size": 10**400}, "infinity in column 'size'"),
        ([("a", "gaussian", ["size"])], {"size": -1e200}, r"Got -1e\+200 in column 'size'"),
        ([("a", "multinomial", ["count"])], {"count": pd.NA}, "NaN in the columns of 'a'"),
        ([("a", "gaussian", ["volume"])], {}, "columns of 'a' are not in X"),
        ([("a", LatentGaussian(ordinal=True), ["size"])], {}, "Got True. For all columns of the"),
        ([("a", "gauss", ["size"])], {}, "'gaussian', 'categorical'.*Got 'gauss'"),
        ([("a", "gaussian", ["size"]), ("b", "poisson", ["size"])], {}, "'size' belongs to 'a'"),
        ([("a", "gaussian", ["size"]), ("a", "poisson", ["count"])], {}, "distinct strings"),
        ([("a__b", "gaussian", ["size"])], {}, "without '__'"),
        ([("a", "gaussian", [])], {}, "at least one column"),
        ([("a", Categorical(categories=[["red"], ["x"]]), ["colour"])], {}, "Got 2 lists"),
        ([("a", Categorical(categories=[["red", "red"]]), ["colour"])], {}, "must be distinct"),
        ([("a", Categorical(categories=[["red"]]), ["colour"])], {}, "Unknown category 'blue'"),
        ([("a", Categorical(), ["colour"])], {"colour": None}, "no categories, because all"),
        ([("a", Gaussian("diag", mean_prior=[1, 2]), ["size"])], {}, "component 'a': The 'mean_p"),
        ([("a", Poisson(rate_prior=[1, 2]), ["count"])], {}, "'rate_prior'.*\\(1,\\)"),
        ([("a", Bernoulli([-1, 1]), ["striped"])], {}, "'feature_prior'"),
        ([("a", Hurdle(Categorical()), ["size"])], {}, "real numbers or counts"),
        ([("a", Hurdle(Gaussian(missing="informative")), ["size"])], {}, "Set 'missing' of the Hu"),
        ([("a", Hurdle(Gaussian(), at=[0.0, 1.0]), ["size"])], {}, r"\(n_columns,\) = \(1,\)"),
        ([("a", Hurdle(Poisson(), at=-1), ["count"])], {}, "for counts it must be a whole number"),
        ([("a", Hurdle(Poisson(), at=0.5), ["count"])], {}, "for counts it must be a whole number"),
        ([("a", Poisson(exposure="count"), ["count"])], {}, "to no component. Got 'count'"),
        ([("a", NegativeBinomial(exposure="no"), ["count"])], {}, "columns of 'a' are not in X"),
        ([("a", Poisson(exposure="size"), ["count"])], {"size": 0.0},
         "exposure of 'a', column 'size'.*positive.*Got 0"),
        ([("a", NegativeBinomial(exposure="size"), ["count"])], {"size": np.nan},
         "exposure of 'a', column 'size'.*positive.*Got nan"),
        ([("a", Categorical([1.0] * 9), ["colour"])], {}, "'concentration_prior'.*\\(2,\\)"),
        ([("a", Categorical([1.0, 0.0]), ["colour"])], {}, "range \\(0, inf\\)"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_read_are_refused_by_name(components, change, message):
    frame, _ = table()
    estimator = mixture(components=components, handle_unknown="error")
    with pytest.raises(ValueError, match=message):
        estimator.fit(frame.assign(**change))
    assert not hasattr(estimator, "n_components_")


def test_other_things_than_components_and_hashable_values_are_refused():
    with pytest.raises(ValueError, match="cannot be sparse"):
        mixture(components=[("a", "categorical", [0])]).fit(sp.csr_array(np.eye(5)))
    with pytest.raises(ValueError, match=r"counts of words. For other .* X.toarray\(\)"):
        MemoizedDPMixture().fit(sp.csr_array(-np.eye(5)))
    objects = np.array([[{"a": 1}, "b"], [{}, "c"]], dtype=object)
    records = np.array([(1.0, 2)] * 9, [("size", float), ("eggs", int)])
    for components, X, said in (
        ([("a", MemoizedDPGMM(), ["size"])], table()[0], r"skvt\.components\.Gaussian"),
        ("auto", objects, "hashable"),
        ("auto", records, "ndarray: pass pandas"),
        ("auto", {"size": [1.0, 2.0]}, "dict: pass pandas"),
        ("auto", [{"size": 1.0}, {"size": 2.0}], "list: pass pandas"),
        ("auto", pl.LazyFrame({"size": [1.0]}), r"LazyFrame: pass X\.collect"),
    ):
        with pytest.raises(TypeError, match=said):
            MemoizedDPMixture(components=components).fit(X)


# ---------------------------------------------------------------------------------- parameters
def test_parameters_of_components_are_set_by_path():
    frame, _ = table()
    before = mixture(n_components=3, moves=())
    twin = clone(before).set_params(
        components__names__concentration_prior=0.5, components__events=Poisson(2.0)
    )
    assert twin.get_params()["components__names__concentration_prior"] == 0.5
    assert twin.get_params()["components__events__shape_prior"] == 2.0
    # The mixture that was cloned stays as it was.
    assert before.get_params()["components__names__concentration_prior"] == "auto"
    twin.set_params(components__events__shape_prior=3.0, components__flags__feature_prior=2.0)
    fitted = twin.fit(frame)
    assert fitted.priors_["events"]["shape_prior"] == 3.0
    np.testing.assert_array_equal(fitted.priors_["flags"]["feature_prior"], [[2.0, 2.0]])
    with pytest.raises(ValueError, match=r"'components__other'.*names"):
        twin.set_params(components__other=1)
    with pytest.raises(ValueError, match="auto"):
        MemoizedDPMixture().set_params(components__numbers__covariance_type="full")


def test_the_name_of_a_component_describes_all_columns_as_the_component_does(tmp_path):
    frame, _ = table()
    still = {"n_components": 3, "moves": (), "max_iter": 5, "random_state": 0}
    columns = frame[["count", "size"]].astype(float)
    named = MemoizedDPMixture(components="gaussian", **still).fit(columns)
    expected = MemoizedDPMixture(components=Gaussian(), **still).fit(columns)
    assert named.elbo_ == expected.elbo_ and named.blocks_[0][0] == "all"
    save(named, tmp_path / "mixture")
    np.testing.assert_array_equal(load(tmp_path / "mixture").predict(columns), named.labels_)
    # To set a parameter makes an object of the name, only in the clone.
    diagonal = clone(named).set_params(components__covariance_type="diag")
    assert diagonal.components.covariance_type == "diag" and named.components == "gaussian"
    colours = MemoizedDPMixture(components="categorical", given="count", **still)
    assert colours.fit(frame[["count", "colour", "grade"]]).blocks_[0][2] == ["colour", "grade"]
    with pytest.raises(ValueError, match=r"'components' parameter.*'gaussian'.*'gauss'"):
        MemoizedDPMixture(components="gauss").fit(columns)


def test_grids_and_pipelines_reach_the_components():
    frame, _ = table()
    grid = {"memoizeddpmixture__components__names__concentration_prior": [1.0, 50.0]}
    pipeline = make_pipeline(FunctionTransformer(), mixture(n_components=3, moves=(), max_iter=5))
    search = GridSearchCV(pipeline, grid, cv=2).fit(frame)
    scores = search.cv_results_["mean_test_score"]
    # A prior of fifty rows of each colour lowers the density.
    assert scores[0] > scores[1]


def exposures():
    """Counts of four rates, and the exposures in which they were counted."""
    rng = np.random.default_rng(0)
    years = rng.uniform(1.0, 2.0, 80)
    return pd.DataFrame({"n": rng.poisson(3.0 * years), "years": years, "kind": list("ab") * 40})


def events(**params):
    """Blocks of these rows, which several estimators may have."""
    kinds = Categorical(1.0)
    return [("n", Poisson(exposure="years", **params), ["n"]), ("kinds", kinds, ["kind"])]


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_component_changed_elsewhere_changes_no_fitted_estimator(method, tmp_path):
    frame, blocks = exposures(), events()
    fitted = MemoizedDPMixture(components=blocks, max_components=2, random_state=0)
    getattr(fitted, method)(frame)
    before = fitted.score_samples(frame), fitted.describe(), repr(fitted.blocks_)
    # Others change the components of the list, those of its user, and those that the fit shows.
    changed = {"components__n__exposure": None, "components__kinds__concentration_prior": 9.0}
    MemoizedDPMixture(components=blocks).set_params(**changed)
    fitted.blocks_[1][1].set_params(concentration_prior=7.0)
    np.testing.assert_equal(fitted.score_samples(frame), before[0])
    pd.testing.assert_frame_equal(fitted.describe(), before[1])
    assert repr(fitted.blocks_) == before[2]
    assert fitted.priors_["kinds"]["concentration_prior"] == 1.0
    save(fitted, tmp_path / "mixture")
    np.testing.assert_equal(load(tmp_path / "mixture").score_samples(frame), before[0])


@pytest.mark.parametrize("whom", ["A warm start", "partial_fit"])
@pytest.mark.parametrize("is_saved", [False, True])
def test_changes_within_components_are_refused_by_name(whom, is_saved, tmp_path):
    frame = exposures()
    fitted = MemoizedDPMixture(
        components=events(), max_components=2, warm_start=True, random_state=0
    )
    go_on = "fit" if whom == "A warm start" else "partial_fit"
    getattr(fitted, go_on)(frame)
    if is_saved:
        save(fitted, tmp_path / "mixture")
        fitted = load(tmp_path / "mixture")
    n_iter = fitted.n_iter_
    getattr(fitted, go_on)(frame)
    assert fitted.n_iter_ > n_iter
    fitted.set_params(components__kinds__concentration_prior=500.0)
    with pytest.raises(ValueError, match=f"{whom} .*components=.*concentration_prior=500.0"):
        getattr(fitted, go_on)(frame)
    fitted.set_params(components__kinds__concentration_prior=1.0)
    getattr(fitted, go_on)(frame)


def test_a_selector_of_columns_is_the_same_in_a_warm_start():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"price": rng.lognormal(size=40), "size": rng.normal(size=40)})
    amounts = Gaussian("diag", log=make_column_selector(pattern="price"))
    blocks = [("amounts", amounts, make_column_selector(dtype_include="number"))]
    fitted = MemoizedDPMixture(components=blocks, max_components=1, warm_start=True)
    assert fitted.fit(frame).fit(frame).n_components_ == 1


# ---------------------------------------------------------------------------------- imputation
def test_imputed_rows_come_back_as_they_came():
    frame, fitted = fitted_table(0.2)
    whole, _ = table()
    for held in (frame, pl.from_pandas(frame)):
        before = held.copy() if held is frame else held.clone()
        filled = fitted.impute(held)
        assert type(filled) is type(held) and list(filled.columns) == list(held.columns)
        assert held.equals(before)
        filled = filled if held is frame else filled.to_pandas()
        for name in frame.columns:
            there = frame[name].notna()
            assert filled[name].notna().all()
            assert (filled.loc[there, name].to_numpy() == frame.loc[there, name].to_numpy()).all()
        holes = frame["grade"].isna()
        assert (
            filled["grade"][holes].astype(str) == whole["grade"][holes].astype(str)
        ).mean() > 0.9
    assert str(fitted.impute(frame)["grade"].dtype) == "category"
    draws = fitted.impute(frame, n_draws=3, random_state=0)
    assert [str(draw["count"].dtype) for draw in draws] == ["Int64"] * 3
    assert not draws[0].equals(draws[1])
    again = fitted.impute(frame, n_draws=3, random_state=0)
    assert all(one.equals(other) for one, other in zip(draws, again, strict=True))


@pytest.mark.quick_cases("float32-float32", "Int16", "Boolean")
@pytest.mark.parametrize(
    ("own", "of_fractions"),
    [
        ("float32", "float32"), ("Float32", "Float32"), ("Int16", "Float64"),
        ("int8[pyarrow]", "double[pyarrow]"), (pl.Float32, pl.Float32), (pl.UInt8, pl.Float64),
        ("boolean", "Float64"), (pl.Boolean, pl.Float64),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.* rows have NaN only:UserWarning")
def test_imputed_columns_keep_their_types(own, of_fractions):
    if "pyarrow" in str(own):
        pytest.importorskip("pyarrow", reason="pandas needs it for such columns")
    values = [0.0, 1.0, None] * 10
    if isinstance(own, str):
        frame = pd.DataFrame({"a": pd.Series(values).astype(own)})
    else:
        frame = pl.DataFrame({"a": pl.Series(values).cast(own)})
    real, whole, counts = (
        mixture(components=[("own", spec, ["a"])], max_iter=2, moves=())
        for spec in ("gaussian", Categorical(), "poisson")
    )
    real.fit(frame)
    assert str(real.impute(frame)["a"].dtype) == str(of_fractions)  # the mean
    assert str(whole.fit(frame).impute(frame)["a"].dtype) == str(own)
    if "int" in str(own).lower():
        drawn = counts.fit(frame).impute(frame, n_draws=1, random_state=0)[0]
        assert str(drawn["a"].dtype) == str(own)


def test_mixtures_of_gaussians_and_bernoullis_impute():
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal([0.0, 3.0], [[1.0, 0.9], [0.9, 1.0]], size=300)
    held = X.copy()
    held[::3, 1] = np.nan
    fitted = MemoizedDPGMM(moves=(), random_state=0).fit(held)
    for container in (np.array, pd.DataFrame, lambda X: X.tolist()):
        filled = np.asarray(fitted.impute(container(held)))
        np.testing.assert_array_equal(filled[~np.isnan(held)], held[~np.isnan(held)])
        # The regression on the other column has the residual variance 0.19.
        assert np.mean((filled[::3, 1] - X[::3, 1]) ** 2) < 0.3
    bits = (rng.random((2, 12)) < 0.5)[rng.integers(2, size=200)] ^ (rng.random((200, 12)) < 0.05)
    held = bits.astype(float)
    held[rng.random(held.shape) < 0.1] = np.nan
    fitted = StructuredBernoulliMixture(10, random_state=0, max_iter=60).fit(held)
    filled = fitted.impute(held)
    assert np.mean(filled[np.isnan(held)] == bits[np.isnan(held)]) > 0.85
    sparse = fitted.impute(sp.csr_array(held))
    np.testing.assert_array_equal(sparse.toarray(), filled)


def test_draws_have_the_predictive_of_the_column():
    frame, fitted = fitted_table(0.2)
    rows = frame.iloc[:2].assign(grade=None, count=pd.NA)
    rows = rows.astype({"grade": frame["grade"].dtype, "count": "Int64"})
    probabilities, categories = fitted.predict_column_proba(rows, "grade")
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    draws = fitted.impute(rows, n_draws=60, random_state=1)
    for i in range(2):
        grades = pd.Series([draw["grade"].iloc[i] for draw in draws])
        shares = np.array([(grades == category).mean() for category in categories])
        error = 4.5 * np.sqrt(probabilities[i] * (1.0 - probabilities[i]) / 60) + 1e-9
        assert np.all(np.abs(shares - probabilities[i]) < error)
        counts = np.array([draw["count"].iloc[i] for draw in draws], float)
        mean = fitted.predict_column(rows, "count")[i]
        assert abs(counts.mean() - mean) < 4.5 * counts.std() / np.sqrt(60)


def test_draws_of_missing_values_know_the_rows_of_later_calls():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(40, 2))
    first[::2, 1] = np.nan
    later = rng.normal([0.0, 10.0], size=(2000, 2))
    mixture = MemoizedDPGMM(1, moves=(), covariance_type="full", max_iter=20, random_state=0)
    mixture.fit(first).partial_fit(later)
    draws = mixture.impute(first, n_draws=30, random_state=0)
    assert np.mean(draws, axis=0)[::2, 1].mean() == pytest.approx(10.0, abs=0.5)


def test_columns_given_the_others_chain_to_the_density_of_the_row():
    frame, _ = table()
    fitted = mixture(n_components=3, moves=(), handle_unknown="error").fit(frame)
    rest, total = frame.iloc[:20].copy(), 0.0
    for name in ("count", "colour", "striped", "size", "grade"):
        total = total + fitted.score_column(rest, name)
        rest[name] = rest[name].mask(np.ones(20, bool))
    np.testing.assert_allclose(total, fitted.score_samples(frame.iloc[:20]), rtol=1e-9)
    probabilities, categories = fitted.predict_column_proba(frame.iloc[:20], "grade")
    places = [list(categories).index(grade) for grade in frame["grade"].iloc[:20]]
    np.testing.assert_allclose(
        np.log(probabilities[np.arange(20), places]),
        fitted.score_column(frame.iloc[:20], "grade"), rtol=1e-9,
    )  # fmt: skip
    best = fitted.predict_column(frame.iloc[:20], "grade")
    np.testing.assert_array_equal(best, categories[probabilities.argmax(axis=1)])
    with pytest.raises(ValueError, match="score_column"):
        fitted.predict_column_proba(frame, "size")
    with pytest.raises(ValueError, match=r"one of .*'count'.*Got 'when'"):
        fitted.predict_column(frame, "when")


def test_draws_of_rows_look_like_the_table():
    frame, fitted = fitted_table()
    drawn, labels = fitted.sample(300, random_state=0)
    assert list(drawn.columns) == ["count", "colour", "striped", "size", "grade"]
    assert set(drawn["colour"]) <= {"red", "blue"} and drawn["striped"].dtype == bool
    np.testing.assert_array_equal(np.sort(labels), labels)
    auto = MemoizedDPMixture(max_iter=2, moves=())
    auto.fit(pl.from_pandas(frame.drop(columns="when")))
    assert isinstance(auto.sample(5, random_state=0)[0], pl.DataFrame)
    text = np.array([["a", 1.0], ["b", 2.0], ["a", 3.0]] * 5, dtype=object)
    assert set(auto.fit(text).sample(9)[0][:, 0]) <= {"a", "b"}


# Components, rows of three clusters about `away` (n, 12) that suit them, and parameters of each.
SUITED = {
    "full": (Gaussian("full"), lambda rng, away: away + rng.normal(size=away.shape), 90),
    "tied": (Gaussian("tied"), lambda rng, away: away + rng.normal(size=away.shape), 38),
    "low rank": (Gaussian("low_rank"), lambda rng, away: away + rng.normal(size=away.shape), 24),
    "t": (
        StudentT("full"),
        lambda rng, away: 3 * away + rng.standard_normal(away.shape) * scales(rng, len(away)),
        91,
    ),
    "hurdle": (
        Hurdle(Gaussian("diag")),
        lambda rng, away: (rng.random(away.shape) < 0.7) * (away + rng.normal(5, 1, away.shape)),
        36,
    ),
    "logarithms": (
        Gaussian("diag", log=slice(None)),
        lambda rng, away: np.exp(away + rng.normal(size=away.shape)),
        24,
    ),
    "poisson": (Poisson(), lambda rng, away: rng.poisson(np.exp(0.5 * away)), 12),
    "negative binomial": (
        NegativeBinomial(),
        lambda rng, away: rng.poisson(np.exp(0.7 * away) * rng.gamma(2.0, 0.5, away.shape)),
        24,
    ),
    "multinomial": (
        Multinomial(),
        lambda rng, away: rng.multinomial(60, (away + 1) / (away + 1).sum(axis=1, keepdims=True)),
        11,
    ),
    "bernoulli": (
        Bernoulli(),
        lambda rng, away: rng.random(away.shape) < np.where(away > 0, 0.95, 0.05),
        12,
    ),
    "categorical": (
        Categorical(),
        lambda rng, away: (away // 2 + rng.choice(3, away.shape, p=[0.9, 0.07, 0.03])) % 3,
        24,
    ),
    "ordinal": (
        LatentGaussian(list(range(4))),
        lambda rng, away: np.digitize(away[:, 4:8] + rng.normal(size=(len(away), 4)), [0, 2, 4]),
        14,
    ),
}


def scales(rng, n):
    return np.sqrt(3.0 / rng.chisquare(3.0, (n, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SUITED)
def test_a_model_of_samples_of_a_model_is_like_it(kind):
    component, draw, n_parameters = SUITED[kind]
    rng = np.random.default_rng(0)
    away = np.array([[0] * 6 + [5] * 6, [5] * 6 + [0] * 6, [0, 5] * 6])
    rows = draw(rng, away[rng.choice(3, 400, p=[0.5, 0.3, 0.2])])
    models = []
    for _ in range(2):
        rows = rows.astype(float)
        if kind != "multinomial":
            rows[rng.random(rows.shape) < 0.1] = np.nan
        blocks = [("all", component, slice(None))]
        models.append(MemoizedDPMixture(components=blocks, random_state=0).fit(rows))
        drawn, labels = models[0].sample(2_400, random_state=0)
        # The rows are drawn component by component.
        order = rng.permutation(2_400)
        rows, rest, labels = drawn[order[:400]], drawn[order[400:]], labels[order[:400]]
    first, second = models
    assert [(np.bincount(model.labels_) > 4).sum() for model in models] == [3, 3]
    assert adjusted_rand_score(labels, second.predict(rows)) > 0.9
    # A fit by maximum likelihood with P parameters loses about P / 2n.
    divergence = first.score(rest) - second.score(rest)
    assert 0.0 < divergence < 3 * n_parameters / 400


# ----------------------------------------------------------------- point masses and what is missing
def rows_with_a_mass(seed=0, n=300):
    """Three clusters, and a column of zeros and positive numbers that says little of them."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=n)
    X = rng.normal(size=(n, 3))
    X[:, :2] += np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])[kind]
    X[:, 2] = np.where(rng.random(n) < 0.4, 0.0, rng.gamma(4.0, size=n) + kind)
    return X, kind


def test_a_point_mass_is_no_cluster():
    X, kind = rows_with_a_mass()
    fitted = MemoizedDPMixture(max_components=4, random_state=0).fit(X)
    ((_, _, plain), (name, hurdle, columns)) = fitted.blocks_
    assert (plain, name, hurdle.at, columns) == ([0, 1], "hurdles", [0.0], [2])
    assert fitted.n_components_ == 3
    assert pd.crosstab(fitted.predict(X), kind).max(axis=1).sum() > 0.97 * len(X)
    shares = fitted.describe().query("quantity == 'share not 0'")["estimate"]
    np.testing.assert_allclose(shares, 0.6, atol=0.15)
    # Draws have as many zeros as the rows.
    drawn, _ = fitted.sample(2_000, random_state=0)
    assert abs((drawn[:, 2] == 0.0).mean() - (X[:, 2] == 0.0).mean()) < 0.04


def test_columns_of_a_block_keep_the_order_they_are_given_in():
    X = np.random.default_rng(0).normal(size=(50, 3))
    given = [("numbers", Gaussian(mean_prior=[2.0, 0.0]), [2, 0])]
    mixture = MemoizedDPMixture(components=given, max_iter=1, max_components=1).fit(X)
    ((_, _, columns),) = mixture.blocks_
    assert columns == [2, 0]


def test_a_value_of_a_rounded_column_is_no_point_mass():
    rng = np.random.default_rng(0)
    rounded = np.round(np.repeat([0.0, 9.0], 200)[:, None] + 1.4 * rng.normal(size=(400, 2)))
    assert (rounded == 0.0).mean(axis=0).min() > 0.1
    rounded[:, 1] = np.where(rng.random(400) < 0.4, 0.0, rounded[:, 1] + 20.0)
    still = MemoizedDPMixture(max_iter=1, moves=())
    ((_, _, plain), (_, hurdle, columns)) = still.fit(rounded).blocks_
    assert (plain, hurdle.at, columns) == ([0], [0.0], [1])
    hours = np.where(rng.random(400) < 0.4, 40.0, np.round(rng.normal(38.0, 12.0, 400)))
    # A fifth of the rows is too small a share of a rounded column.
    rounded[:, 0] = np.where(rng.random(400) < 0.2, 9.0, rounded[:, 0])
    dask_array = pytest.importorskip("dask.array")
    for rows in (X := np.column_stack([rounded, hours]), dask_array.from_array(X, chunks=(90, 3))):
        ((_, _, plain), (_, hurdle, columns)) = still.fit(rows).blocks_
        assert (plain, hurdle.at, columns) == ([0], [0.0, 40.0], [1, 2])


def test_a_few_rows_have_no_point_mass():
    # Each value of five rows is a fifth of them, but a stream may begin with as few.
    X, _ = rows_with_a_mass()
    ((_, _, plain),) = MemoizedDPMixture(random_state=0).partial_fit(X[:5]).blocks_
    assert plain == [0, 1, 2]


def test_point_masses_and_constants_do_not_depend_on_chunks():
    da = pytest.importorskip("dask.array")
    X, _ = rows_with_a_mass()
    X = np.column_stack([
        X[np.argsort(X[:, 2])], np.minimum(X[:, 0], 0.5), np.arange(300) % 5,
        np.where(np.arange(300) < 297, 0.0, np.arange(300)), np.full(300, np.nan), np.ones(300)
    ])  # fmt: skip
    settings = {"max_iter": 1, "moves": (), "n_batches": None, "random_state": 0}
    whole = MemoizedDPMixture(**settings)
    with pytest.warns(UserWarning):
        whole.fit(X)
        parts = MemoizedDPMixture(**settings).fit(da.from_array(X, chunks=(70, 8)))
    # Column 6 has no value, and column 7 is constant.
    for fitted in (whole, parts):
        (_, _, plain), (_, hurdle, columns) = fitted.blocks_
        assert (plain, columns, hurdle.at) == ([0, 1, 4], [2, 3, 5], [0.0, 0.5, 0.0])


def test_missing_values_may_tell_clusters_apart():
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=400)
    frame = pd.DataFrame(rng.normal(size=(400, 4)), columns=list("abcd"))
    frame["e"] = pd.array(rng.choice(["x", "y"], 400), dtype=object)
    shares = np.array([[0.1, 0.1, 0.8, 0.8, 0.8], [0.8, 0.8, 0.1, 0.1, 0.1]])
    frame = frame.mask(rng.random((400, 5)) < shares[kind])
    blocks = [("numbers", Gaussian("diag", missing="informative"), list("abcd")),
              ("words", Categorical(missing="informative"), ["e"])]  # fmt: skip
    fitted = mixture(components=blocks, handle_unknown="error").fit(frame)
    assert fitted.n_components_ == 2
    assert pd.crosstab(fitted.predict(frame), kind).max(axis=1).sum() > 0.9 * 400
    said = fitted.describe().query("quantity == 'share observed'")
    by_column = said.groupby("column")["estimate"].agg(["min", "max"])
    assert (by_column["min"] < 0.3).all() and (by_column["max"] > 0.7).all()
    ignored = mixture(components=blocks)
    ignored.set_params(components__numbers__missing="ignore", components__words__missing="ignore")
    with pytest.warns(UserWarning, match="2 of 400 rows have NaN only"):
        assert ignored.fit(frame).n_components_ == 1
    # The probabilities of the two categories and of none sum to one.
    fitted.set_params(components__numbers__missing="informative")
    chances = [
        np.exp(fitted.score_column(frame.assign(e=value), "e")) for value in ("x", "y", None)
    ]
    np.testing.assert_allclose(np.sum(chances, axis=0), 1.0)
    # The prediction does not depend on whether the value is there.
    np.testing.assert_array_equal(*(
        fitted.predict_column_proba(frame.assign(e=value), "e")[0] for value in ("x", None)
    ))  # fmt: skip
    assert not fitted.impute(frame).isna().any().any()
    drawn, _ = fitted.sample(500, random_state=0)
    np.testing.assert_allclose(drawn.isna().mean(), frame.isna().mean(), atol=0.1)


def visits(n_rows=300):
    """Counts of three kinds of rows in proportion to years, and the kinds."""
    rng = np.random.default_rng(0)
    kind, years = rng.integers(3, size=n_rows), rng.uniform(1.0, 8.0, n_rows)
    rates = np.array([[6.0, 0.2, 1.0], [0.2, 6.0, 1.0], [1.0, 1.0, 9.0]])[kind]
    counts = rng.poisson(years[:, None] * rates * rng.gamma(2.0, 0.5, (n_rows, 3)))
    return pd.DataFrame(counts, columns=["a", "b", "c"]).assign(years=years), kind


def test_clusters_of_dispersed_counts_in_proportion_to_an_exposure_are_found():
    frame, kind = visits()
    blocks = [("visits", NegativeBinomial(exposure="years"), ["a", "b", "c"])]
    settings = {"max_components": 4, "max_iter": 20, "random_state": 0}
    mixture = MemoizedDPMixture(components=blocks, **settings).fit(frame)
    assert mixture.n_components_ == 3
    assert adjusted_rand_score(kind, mixture.predict(frame)) > 0.8
    bounds = np.array(mixture.history_["elbo"])
    assert np.all(np.diff(bounds) > -1e-8 * abs(bounds[-1]))
    described = mixture.describe()
    assert set(described["quantity"]) == {"rate", "dispersion"}
    rates = described.query("quantity == 'rate' and column == 'c'")["estimate"]
    assert rates.max() == pytest.approx(9.0, rel=0.2)
    drawn, _ = mixture.sample(4)
    assert drawn.columns.tolist() == ["a", "b", "c", "years"]
    np.testing.assert_allclose(drawn["years"], frame["years"].mean())
    # A row without counts has twice the expected counts for twice the years.
    held = frame[:1].astype(float).assign(a=np.nan, b=np.nan, c=np.nan)
    one, two = (mixture.impute(held.assign(years=years)) for years in (2.0, 4.0))
    np.testing.assert_allclose(two, 2.0 * one)


# The answers are of 216 students to four dilemmas [Goodman74], and of seven pathologists to 118
# slides, from table 13.1 of Agresti, Categorical Data Analysis, 2002. There are patterns, how often
# each was given, and maxima of the log likelihood by numbers of classes, from the manual of poLCA.
CLASSES = {
    "dilemmas": (
        [f"{pattern:04b}" for pattern in range(16)],
        [42, 23, 6, 25, 6, 24, 7, 38, 1, 4, 1, 6, 2, 9, 2, 20],
        {1: -543.6498, 2: -504.4677},
    ),
    "slides": (
        "0000000 0000100 0100000 0100001 0100100 0100101 1000000 1010101 1100000 1100001 1100100 "
        "1100101 1100111 1101001 1101101 1101111 1110101 1110111 1111101 1111111".split(),
        [34, 2, 6, 1, 4, 5, 2, 1, 2, 1, 2, 7, 1, 1, 2, 3, 13, 5, 10, 16],
        {2: -317.2568, 3: -293.7050},
    ),
}


@pytest.mark.parametrize(("table", "prior"), [("dilemmas", 0.5), ("slides", 0.1)])
def test_latent_classes_come_near_the_published_maxima(table, prior):
    patterns, counts, maxima = CLASSES[table]
    answers = np.array([list(pattern) for pattern in patterns])
    indicators = np.stack([answers == "0", answers == "1"], axis=2).reshape(len(answers), -1)
    items = [("items", Categorical(concentration_prior=prior), slice(None))]
    for k, maximum in maxima.items():
        model = MemoizedDPMixture(k, components=items, moves=(), n_init=5, random_state=0)
        model.fit(answers, sample_weight=counts)
        # The likelihood is that of these classes alone, at their posterior means.
        logs = indicators @ np.log(model.posterior_.components.mean()["items"]).T
        logs += np.log(model.weights_ / model.weights_.sum())
        likelihood = np.array(counts) @ logsumexp(logs, axis=1)
        assert maximum - 0.015 * sum(counts) < likelihood < maximum + 5e-5


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_imputed_frames_share_no_memory_with_those_given(share):
    rng, blocks = np.random.default_rng(0), [("real", Gaussian("diag"), ["a", "b"])]
    values = rng.normal(size=(60, 2))
    frame = pd.DataFrame({"a": values[:, 0], "b": values[:, 1]})
    frame.loc[rng.random(60) < share, "a"] = np.nan
    filled = MemoizedDPMixture(components=blocks, max_iter=1).fit(frame).impute(frame)
    filled.loc[:, "b"] = 7.0
    np.testing.assert_array_equal(frame["b"], values[:, 1])


@pytest.mark.parametrize("copied", [np.array, pd.DataFrame, lambda rows: rows.astype(object)])
def test_a_table_may_be_used_again_after_each_call(copied):
    rng, stream = np.random.default_rng(0), mixture(components="auto", max_components=2)
    calls = [rng.normal(centre, 1.0, (50, 2)) for centre in (-50.0, 50.0)]
    # Data frames of pandas 2 share the memory of an array.
    table = copied(calls[0].copy())
    stream.partial_fit(table)
    (table.iloc if copied is pd.DataFrame else table)[:] = calls[1]
    weights = stream.partial_fit(table).predict_proba(copied(np.concatenate(calls))).sum(axis=0)
    np.testing.assert_allclose(weights, 50.0)


# ------------------------------------------------------------------- what densities are of
def test_counts_of_one_total_do_not_sum_to_one():
    """By enumeration: to the probability that independent Poissons have this total."""
    rng = np.random.default_rng(0)
    X = rng.multinomial(20, [0.5, 0.3, 0.2], size=3_000).astype(float)
    blocks = [("counts", Poisson(exposure="row_total"), slice(None))]
    fitted = mixture(n_components=1, components=blocks, moves=()).fit(X)
    rows = [(a, b, 20 - a - b) for a in range(21) for b in range(21 - a)]
    total = np.exp(fitted.score_samples(np.array(rows, float))).sum()
    assert total == pytest.approx(poisson.pmf(20, 20.0), rel=0.01)


def test_columns_in_logarithms_are_imputed_by_the_geometric_mean():
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(0.0, 1.2, size=(2_000, 2)))
    blocks = [("amounts", Gaussian("diag", log=[0, 1]), [0, 1])]
    fitted = mixture(n_components=1, components=blocks, moves=()).fit(X)
    holes = np.where([True, False], np.nan, X[:1_000])
    filled = fitted.impute(holes)[:, 0]
    mean = np.exp(np.log(X[:, 0]).mean())
    np.testing.assert_allclose(filled, mean, rtol=0.01)
    drawn = fitted.impute(holes, n_draws=1, random_state=0)[0][:, 0]
    assert drawn.mean() > 1.3 * filled[0]
    assert abs(np.log(drawn).mean() - np.log(filled[0])) < 4.5 * 1.2 / np.sqrt(1_000)
    dry = np.where(rng.random(X.shape) < 0.3, 0.0, X)
    blocks = [("rain", Hurdle(Gaussian("diag", log=[0, 1])), [0, 1])]
    fitted = mixture(n_components=1, components=blocks, moves=()).fit(dry)
    wet = dry[dry[:, 0] > 0.0, 0]
    mean = wet.size / 2_000 * np.exp(np.log(wet).mean())
    np.testing.assert_allclose(fitted.impute(holes)[:, 0], mean, rtol=0.01)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("size", r"^Column 'size' was read as numbers in fit, but has 'much'\. .*to_numeric\("),
        ("flag", r"^Column 'flag' was read as true or false in fit, but has 'much'\. .*\.map\("),
    ],
)
def test_the_remedy_for_text_in_new_rows_does_not_change_the_fit(column, said):
    draws = np.random.default_rng(0)
    frame = pd.DataFrame({"size": draws.normal(size=60), "flag": draws.random(60) < 0.3})
    fitted = MemoizedDPMixture(1, moves=(), random_state=0).fit(frame)
    new = frame.astype({column: object})
    new.loc[3, column] = "much"
    for method in (fitted.predict, fitted.partial_fit):
        with pytest.raises(ValueError, match=said):
            method(new)
    # A column that new rows lack counts as missing.
    lacks = frame.drop(columns=column)
    with pytest.raises(ValueError, match=r"X\.reindex\(columns=model\.feature_names_in_\)"):
        fitted.predict(lacks)
    fitted.predict(lacks.reindex(columns=fitted.feature_names_in_))
    # Before a fit, the remedy is another component.
    listed = MemoizedDPMixture(components=[("all", Gaussian(), [column])])
    with pytest.raises(ValueError, match=r"Use Categorical\(\) for this column"):
        listed.fit(new)


@pytest.fixture(scope="module")
def purchases():
    """Numbers of purchases from 1 on, and days since the last one, of two kinds of customers."""
    rng = np.random.default_rng(0)
    is_frequent = rng.random(400) < 0.4
    number = 1.0 + rng.poisson(np.where(is_frequent, 9.0, 0.4))
    return pd.DataFrame({"number": number, "days": rng.normal(np.where(is_frequent, 5, 50), 6.0)})


def test_counts_from_one_are_recognised(purchases):
    mixture = MemoizedDPMixture(random_state=0).fit(purchases)
    assert mixture.n_components_ == 2
    (_, spec, columns), *_ = [block for block in mixture.blocks_ if block[0] == "counts from one"]
    assert spec.at == 1 and list(columns) == ["number"]
    # Few ones among large numbers are no reason to leave the block of correlated numbers.
    large = purchases.assign(number=np.maximum(1.0, purchases["number"] ** 4 - 1.0) + 30.0)
    large.loc[0, "number"] = 1.0
    blocks = MemoizedDPMixture(random_state=0).fit(large).blocks_
    assert "counts from one" not in [name for name, *_ in blocks]


def test_a_hurdle_at_one_is_a_hurdle_at_zero_of_the_counts_minus_one(purchases):
    def fit(table, at):
        blocks = [
            ("number", Hurdle(Poisson(), at=at), ["number"]),
            ("days", Gaussian("diag"), ["days"]),
        ]
        return MemoizedDPMixture(components=blocks, random_state=0).fit(table)

    shifted = purchases.assign(number=purchases["number"] - 1.0)
    at_one, at_zero = fit(purchases, 1), fit(shifted, 0)
    assert at_one.elbo_ == at_zero.elbo_
    unknown = purchases.assign(number=np.nan)
    np.testing.assert_allclose(
        at_one.impute(unknown)["number"], at_zero.impute(unknown)["number"] + 1.0
    )
    draws, _ = at_one.sample(500)
    assert draws["number"].min() == 1.0
    # Smaller counts than the point mass are errors, in the fit and in later rows.
    zero = purchases.assign(number=purchases["number"].mask(purchases.index == 7, 0.0))
    message = r"'number' must have counts: 1, 2, 3, .*Got 0\. The parameter 'at'"
    for use in (lambda: fit(zero, 1), lambda: at_one.score_samples(zero)):
        with pytest.raises(ValueError, match=message):
            use()


def test_a_hurdle_at_one_refuses_zeros_that_sparse_rows_do_not_store():
    X = sp.csr_array([[1.0, 2.0], [1.0, 0.0], [3.0, 1.0]])
    mixture = MemoizedDPMixture(components=Hurdle(Poisson(), at=1))
    with pytest.raises(ValueError, match=r"Column 1 must have counts: 1, 2, 3, .*Got 0\."):
        mixture.fit(X)


def test_auto_treats_later_counts_below_its_point_mass_as_missing(purchases):
    mixture = MemoizedDPMixture(random_state=0).fit(purchases)
    zeros, unknown = (purchases.assign(number=value) for value in (0.0, np.nan))
    with pytest.warns(ColumnWarning, match="counts from 1 on, but has other numbers, such as 0"):
        scores = mixture.score_samples(zeros)
    np.testing.assert_array_equal(scores, mixture.score_samples(unknown))
    strict = MemoizedDPMixture(handle_unknown="error", random_state=0).fit(purchases)
    with pytest.raises(ValueError, match=r"'number' must have counts: 1, 2, 3"):
        strict.predict(zeros)
