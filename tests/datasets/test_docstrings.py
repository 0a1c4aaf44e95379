import hashlib
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from skvt.datasets import DOCSTRING_STOP_WORDS, load_docstrings
from skvt.datasets._docstrings import _paragraphs


@pytest.fixture(scope="module")
def corpus():
    return load_docstrings(return_names=True)


def test_the_corpus_is_large_and_covers_all_packages(corpus):
    assert len(corpus.data) == len(corpus.target) == len(corpus.names)
    assert corpus.target_names == ["numpy", "scipy", "sklearn"]
    assert np.bincount(corpus.target).min() > 500
    assert sum(len(text.split()) for text in corpus.data) > 300_000
    for name, target in zip(corpus.names, corpus.target, strict=True):
        assert name.split(".")[0] == corpus.target_names[target]
    for package in corpus.target_names:
        assert f"{package} {sys.modules[package].__version__}" in corpus.DESCR


def test_documents_are_distinct_and_long_enough(corpus):
    assert len(set(corpus.data)) == len(corpus.data)
    assert min(len(re.findall(r"[A-Za-z]\w+", text)) for text in corpus.data) >= 20


def test_no_private_or_test_object_is_read(corpus):
    parts = {part for name in corpus.names for part in name.split(".")}
    assert not [part for part in parts if part.startswith("_")]
    assert not parts & {"tests", "testing", "externals", "conftest"}


def test_well_known_objects_are_there(corpus):
    expected = {
        "numpy.einsum",
        "numpy.exp",  # a ufunc, which says nothing about its module
        "numpy.random.Generator.choice",
        "scipy.optimize.linear_sum_assignment",
        "scipy.special.digamma",
        "scipy.stats.norm",  # an instance with a docstring of its own
        "sklearn.cluster.KMeans",
        "sklearn.decomposition.LatentDirichletAllocation.transform",
    }
    # digamma is an alias of psi: the first name in sorted order stands for both
    assert expected <= set(corpus.names)
    document = dict(zip(corpus.names, corpus.data, strict=True))["sklearn.cluster.KMeans"]
    assert "inertia" in document and "centroids" in document


def test_no_markup_code_or_formula_is_left(corpus):
    text = "\n".join(corpus.data)
    for pattern in (r">>>", r"`", r"\\frac", r":(math|func|class|ref|term):", r"-{4,}", r"={4,}"):
        assert not re.findall(pattern, text), pattern
    assert not re.search(r"\.\. (versionadded|deprecated|math|code-block|plot)::", text)
    assert not re.search(r"https?://\w", text)
    assert "  " not in text


def test_shared_paragraphs_are_taken_off(corpus):
    text = " ".join(corpus.data)
    assert "As an instance of the rv_continuous class" not in text  # nor for t and f


FUNCTION = """
def function_{0}():
    '''Purpose {0}.

    Shared by eleven: see function_{0} in the book of widgets.

    {1}
    '''
"""
THING = """
class Thing(dict):
    'A thing.'

    @property
    def colour(self):
        'Its colour.'
"""


@pytest.fixture
def small_package(tmp_path, monkeypatch):
    """A package with eleven functions, a private module, a broken one and a re-export."""
    functions = [FUNCTION.format(c, "Shared by ten.") for c in "abcdefghij"]
    functions.append(FUNCTION.format("k", "Alone."))
    files = {
        "__init__.py": "\n".join([*functions, "from skvt_small.public import Thing"]),
        "public.py": THING,
        "_private.py": "'Never read.'",
        "tests.py": "raise RuntimeError('never imported')",
        "broken.py": "'Never read, either.'\nimport no_such_module_at_all",
        "script.py": "'Nor this.'\nraise SystemExit(1)",
        "noisy.py": "'Warns.'\nimport warnings\nwarnings.warn('boo', DeprecationWarning)",
    }
    folder = tmp_path / "skvt_small"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield "skvt_small"
    for name in [name for name in sys.modules if name.split(".")[0] == "skvt_small"]:
        del sys.modules[name]


def test_any_package_can_be_read(small_package):
    corpus = load_docstrings(packages=(small_package,), min_words=1, return_names=True)
    documents = dict(zip(corpus.names, corpus.data, strict=True))
    # a paragraph of eleven goes, one of ten stays; dict's own methods are not the package's
    assert documents == {
        **{f"skvt_small.function_{c}": f"Purpose {c}. Shared by ten." for c in "abcdefghij"},
        "skvt_small.function_k": "Purpose k. Alone.",
        "skvt_small.noisy": "Warns.",
        "skvt_small.Thing": "A thing.",  # the first and shortest name of a re-export
        "skvt_small.Thing.colour": "Its colour.",
    }
    assert corpus.names == sorted(corpus.names)
    assert "version unknown" in corpus.DESCR


def test_a_package_that_fails_to_import_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "skvt_broken.py").write_text("import no_such_module_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="'skvt_broken', which is not a top-level package"):
        load_docstrings(packages=("skvt_broken",))


def test_a_smaller_selection_is_a_part_of_the_whole(corpus):
    numpy_only = load_docstrings(packages=("numpy",), return_names=True)
    first = corpus.target == 0
    assert numpy_only.data == [text for text, yes in zip(corpus.data, first, strict=True) if yes]
    long = load_docstrings(packages=("numpy",), min_words=100)
    assert "names" not in long
    words = [len(re.findall(r"[A-Za-z]\w+", text)) for text in numpy_only.data]
    assert long.data == [t for t, n in zip(numpy_only.data, words, strict=True) if n >= 100]


@pytest.mark.slow
def test_another_process_with_another_hash_seed_reads_the_same_text_quietly(corpus):
    # experimental estimators become public when enabled: that must not change the corpus
    program = textwrap.dedent("""
        import hashlib
        from sklearn.experimental import enable_halving_search_cv, enable_iterative_imputer
        from skvt.datasets import load_docstrings
        print(hashlib.sha256("\\n".join(load_docstrings().data).encode()).hexdigest())
    """)
    run = subprocess.run(
        [sys.executable, "-W", "always", "-c", program],
        env=os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [hashlib.sha256("\n".join(corpus.data).encode()).hexdigest()]
    assert run.stderr == ""


def test_stop_words_leave_no_word_of_the_dialect_on_top(corpus):
    assert isinstance(DOCSTRING_STOP_WORDS, frozenset)
    assert {"the", "array_like", "optional", "default", "returns"} <= DOCSTRING_STOP_WORDS
    assert not {"matrix", "random", "kernel", "polynomial", "sparse"} & DOCSTRING_STOP_WORDS
    vectorizer = CountVectorizer(stop_words=sorted(DOCSTRING_STOP_WORDS), min_df=5, max_df=0.5)
    X = vectorizer.fit_transform(corpus.data)
    assert X.shape[1] > 2000
    assert (X.sum(axis=1) == 0).mean() < 0.005
    assert (X > 0).mean(axis=0).max() < 0.45  # nothing is in nearly every document


DOCSTRING = r"""frobnicate(x, n=3, /, *, out=None)

    Frobnicate the widget [1]_, as :func:`~pkg.mod.grind` does.

    The gain is :math:`\alpha_1 \frac{a}{b}` for ``order=2``; see the `manual page
    <https://example.org/x>`_ or :ref:`the guide <guide>` or https://example.org.

    .. versionadded:: 1.2
       Secret history.

    .. math::

        hidden = formula

    .. note:: Mind the gap
        between platforms.

    .. _target:

    Parameters
    ----------
    x, y : array_like of shape (n,), default=None
        Widget coordinates::

            literal code

        and more prose.

    Returns
    -------
    ndarray of typewords
        The frobnicated widget.

    See Also
    --------
    other : Another thing.

    Examples
    --------
    Try this:

    >>> frobnicate(1)
    doctest output

    Done.

    References
    ----------
    .. [1] A. Author, "Paper".
    """


def test_cleaning_keeps_the_prose_and_nothing_else():
    assert _paragraphs(DOCSTRING) == [
        "Frobnicate the widget , as pkg.mod.grind does.",
        "The gain is for order= ; see the manual page or the guide or",
        "Mind the gap between platforms.",
        "x, y Widget coordinates",
        "and more prose.",
        "The frobnicated widget.",
        "Try this:",
        "Done.",
    ]


def test_cleaning_survives_odd_docstrings():
    assert _paragraphs("") == []
    assert _paragraphs(">>> only(code)") == []
    assert _paragraphs("Ends in a literal block::") == ["Ends in a literal block"]
    assert _paragraphs("Unbalanced `tick and :role:") == ["Unbalanced tick and :role:"]
    assert _paragraphs("=====\nTitle\n=====\n\nText.") == ["Text."]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"packages": "numpy"}, TypeError, r"is a string; give a tuple .* \('numpy',\)"),
        ({"packages": ()}, ValueError, "at least one name"),
        ({"packages": ("numpy", "numpy")}, ValueError, "no name twice"),
        ({"packages": ("no_such_package",)}, ValueError, "'no_such_package', which is not"),
        ({"packages": ("numpy.linalg",)}, ValueError, "'numpy.linalg', which is not"),
        ({"packages": (3,)}, TypeError, "packages has 3"),
        ({"min_words": 0}, ValueError, "min_words=0 must be at least 1"),
        ({"min_words": 2.5}, TypeError, "min_words=2.5 must be an integer"),
    ],
)
def test_bad_input_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        load_docstrings(**arguments)
