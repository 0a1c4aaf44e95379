"""A real text corpus without a download: docstrings of NumPy, SciPy and scikit-learn."""

import lzma
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.utils import Bunch

# Each line of the file has the name of an object, a tab, and the text of its docstring.
_FILE = Path(__file__).with_name("docstrings.txt.xz")
_PACKAGES = ["numpy", "scipy", "sklearn"]

# Frequent words of numpydoc docstrings, which describe how an argument is passed, not the subject
# of the text. Frequent words with a mathematical meaning, such as matrix or axis, are left out.
_STOP_WORDS = Path(__file__).with_name("docstrings.stop_words.txt").read_text(encoding="utf-8")

DOCSTRING_STOP_WORDS = frozenset(ENGLISH_STOP_WORDS | set(_STOP_WORDS.split()))
"""English stop words plus the vocabulary of numpydoc, for use with `load_docstrings`.

``CountVectorizer`` wants a list: ``stop_words=sorted(DOCSTRING_STOP_WORDS)``.
"""


def load_docstrings():
    """Load 4,048 docstrings of NumPy, SciPy and scikit-learn.

    Each public module, function, class, method and property gives one document, which has the first
    110 words of the prose of its docstring. Doctests, section headings, types of parameters,
    directives, formulas, references, numbers, markup and paragraphs that many docstrings share are
    removed.

    Returns
    -------
    corpus : :class:`~sklearn.utils.Bunch`
        Dictionary-like object with the following entries.

        data : list of str, length N
            The documents, ordered by package, module and name.
        target : ndarray of int64, shape (N,)
            Index of the package that a document comes from.
        target_names : list of str
            The packages.
        names : list of str, length N
            Dotted names of the documented objects.
        DESCR : str
            Description of the corpus.

    Notes
    -----
    The texts ship with this package, so that the corpus is the same everywhere. They are the
    docstrings of NumPy 2.4.6, SciPy 1.17.1 and scikit-learn 1.9.1, under the BSD-3-Clause licences
    of their authors. The licences are in the file ``docstrings.LICENSE``. Use the corpus with
    ``CountVectorizer(stop_words=sorted(DOCSTRING_STOP_WORDS), min_df=5, max_df=0.5)``.

    Examples
    --------
    >>> from skvt.datasets import load_docstrings
    >>> corpus = load_docstrings()
    >>> len(corpus.data), corpus.target_names
    (4048, ['numpy', 'scipy', 'sklearn'])
    """
    lines = lzma.decompress(_FILE.read_bytes()).decode().split("\n")
    names, data = zip(*(line.split("\t") for line in lines), strict=True)
    packages = [_PACKAGES.index(name.split(".")[0]) for name in names]
    return Bunch(
        data=list(data),
        target=np.array(packages, dtype=np.int64),
        target_names=list(_PACKAGES),
        names=list(names),
        DESCR=(
            f"{len(data)} documents made of the public docstrings of NumPy 2.4.6, SciPy 1.17.1 and "
            "scikit-learn 1.9.1, cleaned of code, formulas, headings and markup, and cut after 110 "
            "words. The text belongs to the authors of these packages."
        ),
    )
