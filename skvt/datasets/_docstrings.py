"""A real text corpus without a download: docstrings of NumPy, SciPy and scikit-learn."""

import lzma
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.utils import Bunch

# Each line of the file has the name of an object, a tab, and the text of its docstring.
_FILE = Path(__file__).with_name("docstrings.txt.xz")
_PACKAGES = ["numpy", "scipy", "sklearn"]

# Words of the numpydoc dialect, which describe how an argument is passed, not the subject of the
# text. The words were chosen by document frequency on the cleaned corpus. Frequent words with a
# mathematical meaning (matrix, function, sample, random, axis) are not stop words.
_DIALECT = """
    accept accepted accepts according added addition additional allowed allows api applied apply
    appropriate argument arguments array array_like arrays assumed attribute attributes auto
    automatically available avoid based behavior bool boolean calculate calculated callable called
    calling calls case cases certain change changed check chosen class classes code common
    compatible compute computed computes computing consider considered construct contain containing
    contains control convenience convention convert converted correct corresponding corresponds
    create created creates current currently default defaults define defined defines depending
    deprecated described description desired details determine determined determines dict different
    directly documentation does doesn doing dtype effect element elements equivalent exactly example
    examples exist existing exists expected explicitly false flag float following follows form
    format future general generally given gives glossary guide handle help ignored implementation
    implemented include included including indicates info information input inputs instance
    instances instead int integer intended internal internally just keyword kind known large later
    learn len like likely list long main make makes means message method methods multiple named
    names ndarray necessary need needed needs new non note notes np nt number numbers numpy obj
    object objects obtained old option optional options order output outputs parameter parameters
    particular pass passed passing perform performed performs place possible previous produce
    provide provided provides providing purpose py python raise raised raises read recommended ref
    refer reference related replaced represent represented representing represents require required
    requires respectively result resulting results return returned returns routine run scalar scikit
    scipy second section self set sets setting shape shaped simple simply single size sklearn small
    specific specifically specified specifies specify start str string strings sub subclass suitable
    support supported supports suppose taken takes th thing treated true try tuple type types
    typically undefined underlying unless unlike unused usage use used useful user uses using usual
    usually valid value values variable variables various version versions want warning way ways
    wise work works
    """

DOCSTRING_STOP_WORDS = frozenset(ENGLISH_STOP_WORDS | set(_DIALECT.split()))
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
