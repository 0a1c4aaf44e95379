"""Docstrings of public names are complete, and their examples and defaults are true."""

import ast
import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

import skvt

ROOT = Path(__file__).parents[1]

# The checks of numpydoc that this project does not follow, with the reason.
LEFT_OUT = {
    "GL01",  # the summary begins on the line of the quotes
    "ES01",  # a summary may say all there is
    "SA01",  # not everything has a neighbour
    "EX01",  # examples stand with the class, not with each of its methods
    "SS05",  # not each word that ends in s is a verb
    "RT02",  # what is returned may have a name, as in scikit-learn
}


def documented_names():
    """The functions and classes of the page api.rst."""
    page = (ROOT / "doc" / "api.rst").read_text(encoding="utf-8")
    return re.findall(r"^ +(skvt[\w.]*)$", page, flags=re.MULTILINE)


def named(name):
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def members(name):
    """Dotted names of the public members of a class that are defined in skvt.

    Those that override the member of another public class need no more than a summary.
    """
    cls = named(name)
    for attribute, value in inspect.getmembers(cls):
        function = getattr(value, "fget", value)
        ours = (getattr(function, "__module__", None) or "").startswith("skvt")
        defining = [base for base in cls.__mro__ if attribute in vars(base)]
        overrides = any(not base.__name__.startswith("_") for base in defining[1:])
        if ours and not attribute.startswith("_") and not overrides:
            yield f"{name}.{attribute}"


def complaints(name):
    return [
        f"{name}: {code} {message}"
        for code, message in validate(name)["errors"]
        if code not in LEFT_OUT
    ]


@pytest.mark.parametrize("name", documented_names())
def test_a_docstring_passes_the_checks_of_numpydoc(name):
    names = [name, *members(name)] if inspect.isclass(named(name)) else [name]
    found = [complaint for each in names for complaint in complaints(each)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", documented_names())
def test_a_public_name_has_examples_that_run(name):
    (test,) = doctest.DocTestFinder(recurse=False).find(named(name), name)
    assert test.examples and doctest.DocTestRunner().run(test).failed == 0


def defaults_in(signature):
    """{parameter: default} of a signature."""
    return {
        parameter.name: parameter.default
        for parameter in signature.parameters.values()
        if parameter.default is not parameter.empty
    }


def defaults_said(doc, owner):
    """{parameter: default} as the lines of numpydoc say.

    "default=x"; "optional" for None; "see :meth:`plot`" for those of the ``owner``'s method.
    """
    said = {}
    for line, kind, _ in NumpyDocString(doc)["Parameters"]:
        names = re.split(r"\s*,\s*", line)
        given, see = re.search(r"\bdefault=(.+)$", kind), re.match(r"see :meth:`(\w+)`$", kind)
        if see:
            there = defaults_in(inspect.signature(getattr(owner, see[1])))
            said |= {name: there[name] for name in names if name in there}
        elif given or kind.endswith("optional"):
            said |= dict.fromkeys(names, ast.literal_eval(given[1]) if given else None)
    return said


def wrong_defaults(name):
    """Parameters whose documented default is missing, superfluous or another one."""
    value = resolve_name(name)
    doc = inspect.getdoc(value) or ""
    if not callable(value) or "Parameters\n---" not in doc:
        return []
    owner = resolve_name(name.rpartition(".")[0])
    said, true = defaults_said(doc, owner), defaults_in(inspect.signature(value))
    return [
        f"{name}({each}={true.get(each, '...')!r}) is documented as {said.get(each, '...')!r}"
        for each in sorted(said.keys() | true.keys())
        if each not in said or each not in true or repr(said[each]) != repr(true[each])
    ]


@pytest.mark.parametrize("name", documented_names())
def test_a_docstring_states_the_defaults_of_the_signature(name):
    # Ignored parameters, such as y, need no default.
    names = [name, *members(name)] if inspect.isclass(named(name)) else [name]
    found = [wrong for each in names for wrong in wrong_defaults(each) if "(y=None)" not in wrong]
    assert not found, "\n" + "\n".join(found)


ESTIMATORS = {name for name in skvt.__all__ if hasattr(getattr(skvt, name), "fit")}


# Estimators describe these differently, because they mean different things there.
OTHER_SENTENCES = {
    "batch_size", "components_", "covariances_", "exp_dirichlet_component_", "mean_change_tol",
    "means_", "n_components", "n_polish", "tol", "weight_concentration_prior",
    "weight_concentration_prior_type", "weights_",
}  # fmt: skip
# The types of these differ: they have other choices, or values that only some models find.
OTHER_TYPES = {
    "average", "batch_size", "components_", "covariances_", "exp_dirichlet_component_",
    "global_step", "learning_method", "learning_offset", "local_step", "max_iter", "moves",
    "noise_variance", "posterior_", "prior_variance", "tol", "topic_word_prior",
    "weight_concentration_", "weight_concentration_prior", "weights_",
}  # fmt: skip


def test_estimators_describe_the_same_parameters_and_attributes_in_the_same_words():
    sentences, types = {}, {}
    for estimator in ESTIMATORS:
        doc = NumpyDocString(inspect.getdoc(getattr(skvt, estimator)))
        for names, kind, lines in doc["Parameters"] + doc["Attributes"]:
            sentence = re.split(r"(?<=\.) ", " ".join(lines))[0]
            for name in re.split(r"\s*,\s*", names):
                sentences.setdefault(name, set()).add(sentence)
                types.setdefault(name, set()).add(re.sub(r",? *default=.*$", "", kind))
    for found, others in ((sentences, OTHER_SENTENCES), (types, OTHER_TYPES)):
        assert {name for name, variants in found.items() if len(variants) > 1} == others


def test_docstrings_of_mixtures_explain_each_clustering():
    X = [[0.0], [0.1], [9.0], [9.1]] * 5
    mixture = skvt.CAVIGaussianMixture(2, random_state=0).fit(X)
    for name in mixture.clusterings_:
        for estimator in ("CAVIGaussianMixture", "MemoizedDPGMM", "MemoizedDPMixture"):
            assert f'"{name}"' in inspect.getdoc(getattr(skvt, estimator)), (estimator, name)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_the_docstring_names_each_result_of_a_fit(name):
    # The base class defines this attribute, but this mixture takes no labels of rows.
    others = {"component_classes_"} if name == "StructuredBernoulliMixture" else set()
    results = {each for each in dir(getattr(skvt, name)) if re.fullmatch("[a-z].*_", each)}
    doc = NumpyDocString(inspect.getdoc(getattr(skvt, name)))
    named = {each for names, *_ in doc["Attributes"] for each in re.split(r"\s*,\s*", names)}
    assert results - others <= named


def test_a_parameter_of_all_fits_has_one_default():
    shared = ("evaluate_every", "n_init", "n_jobs", "random_state", "total_samples", "verbose",
              "warm_start")  # fmt: skip
    for name in shared:
        signatures = (inspect.signature(getattr(skvt, estimator)) for estimator in ESTIMATORS)
        defaults = [defaults_in(signature) for signature in signatures]
        assert len({repr(each[name]) for each in defaults if name in each}) == 1, name


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_signature_shows_names_and_defaults_without_types(name):
    # Types stand in the docstring, because some of them print as addresses.
    assert ": " not in str(inspect.signature(getattr(skvt, name)))
