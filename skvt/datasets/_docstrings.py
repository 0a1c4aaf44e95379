"""A real text corpus without a download: the docstrings of the scientific Python stack."""

import importlib
import inspect
import pkgutil
import re
import sys
import warnings
from collections import Counter
from numbers import Integral

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.utils import Bunch

__all__ = ["DOCSTRING_STOP_WORDS", "load_docstrings"]

# Words of the numpydoc dialect, which describe how an argument is passed, not the subject of the
# text. Chosen by document frequency on the cleaned corpus; words with a mathematical meaning
# (matrix, function, sample, random, axis) are frequent too, but stay.
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
"""English stop words plus the vocabulary of numpydoc itself, for use with `load_docstrings`.

``CountVectorizer`` wants a list: ``stop_words=sorted(DOCSTRING_STOP_WORDS)``.
"""

# Not walked: tests, deprecated, bundled or generated code (its docstrings are lists of names),
# and modules whose import has side effects on the running program or needs a test runner.
_SKIPPED_MODULES = frozenset(
    "blas conftest core cython_blas cython_lapack cython_special distutils estimator_checks "
    "experimental externals f2py lapack mypy_plugin setup testing tests testutils".split()
)
# Public only after `import sklearn.experimental.enable_...`: left out, so that the corpus does
# not depend on what the program imported before.
_SKIPPED_NAMES = frozenset({"HalvingGridSearchCV", "HalvingRandomSearchCV", "IterativeImputer"})

_BOILERPLATE_COUNT = 10  # a paragraph in more docstrings of a package than this is boilerplate

_WORD = re.compile(r"[A-Za-z]\w+")
_RULE = re.compile(r"""^\s*([=\-~^"'*#+`_.])\1+(\s+\1+)*\s*$""")
_DIRECTIVE = re.compile(r"^\s*\.\. +([\w:+-]+?)::(.*)$")
_SIGNATURE = re.compile(r"^[\w.]+ ?\(.*\)( *->.*)?$")
_FIELD_LIST = re.compile(r"^:[\w ]+:( |$)")
_TEMPLATE = re.compile(r"%\(\w+\)s")
_ADMONITIONS = frozenset(
    "admonition attention caution hint important note seealso tip warning".split()
)
_FIELD_SECTIONS = frozenset(
    {"parameters", "other parameters", "returns", "yields", "attributes", "raises", "warns"}
)
_SKIPPED_SECTIONS = frozenset({"references", "see also", "methods"})

_INLINE = [
    (re.compile(pattern, re.DOTALL), replacement)
    for pattern, replacement in (
        (r":math:`[^`]*`|\$[^$]{1,200}\$", " "),
        (r"(?:https?|ftp)://[^\s`<>]+", " "),
        (r"\[[\w*#-]+\]_", " "),  # footnote marks
        (r"(?::[\w:+-]+:)?`([^`<>]*?)\s*<[^`>]*>`_{0,2}", r"\1"),  # text <target>
        (r":[\w:+-]+:`[~!]?([^`]*)`", r"\1"),  # other roles
        (r"`+_{0,2}", " "),
        (r"\\[A-Za-z]+|[{}\\*|]", " "),  # left-over LaTeX and markup
        (r"(?<!\w)[-+]?\.?\d[\w.]*", " "),  # numbers
        (r"[-=+~^#]{2,}", " "),  # rules of tables
        (r"\s+", " "),
    )
]


def load_docstrings(*, packages=("numpy", "scipy", "sklearn"), min_words=20, return_names=False):
    """Make a text corpus from the docstrings of installed packages.

    No network, no files, a few seconds. Public modules, functions, classes, methods and properties
    each give one document. Doctests and their output, section headings, types of parameters,
    directives, formulas, references, see-also lists, numbers and markup are removed, and so are
    paragraphs that more than ten docstrings of the same package share up to their own names. Of
    identical documents one is kept.

    Parameters
    ----------
    packages : tuple of str, default=("numpy", "scipy", "sklearn")
        Top-level packages to read, in this order. All their public modules are imported.
    min_words : int, default=20
        Shorter documents are dropped. A word is a letter followed by at least one letter, digit or
        underscore.
    return_names : bool, default=False
        Whether to return also the dotted name of every documented object.

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
            Dotted names, only with ``return_names=True``.
        DESCR : str
            Description of the corpus, with the versions of the packages.

    Raises
    ------
    TypeError
        If `packages` is a single string or has something else than strings, or `min_words` is
        not an integer.
    ValueError
        If `packages` is empty, repeats a name or names something that cannot be imported, or
        if `min_words` is below 1.
    RuntimeError
        If Python runs with ``-OO``, which removes docstrings.

    Notes
    -----
    The text follows the installed versions, so scores are comparable only within one
    environment; there, the corpus is always the same. Use it with
    ``CountVectorizer(stop_words=sorted(DOCSTRING_STOP_WORDS), min_df=5, max_df=0.5)``.

    Examples
    --------
    >>> from skvt.datasets import load_docstrings
    >>> corpus = load_docstrings(packages=("numpy",))
    >>> corpus.target_names
    ['numpy']
    """
    _check_arguments(packages, min_words)
    data, target, names = [], [], []
    seen = set()
    for index, package in enumerate(packages):
        for name, text in _documents(package):
            if text not in seen and len(_WORD.findall(text)) >= min_words:
                seen.add(text)
                data.append(text)
                target.append(index)
                names.append(name)
    corpus = Bunch(
        data=data,
        target=np.asarray(target, dtype=np.int64),
        target_names=list(packages),
        DESCR=_description(packages, len(data)),
    )
    if return_names:
        corpus["names"] = names
    return corpus


def _check_arguments(packages, min_words):
    """Raise errors for arguments that would give an empty or unexpected corpus."""
    if isinstance(packages, str):
        raise TypeError(
            f"packages={packages!r} is a string; give a tuple of names, here ({packages!r},)."
        )
    if len(packages) == 0 or len(set(packages)) < len(packages):
        raise ValueError(f"packages={packages!r}: at least one name and no name twice is needed.")
    for package in packages:
        if not isinstance(package, str):
            raise TypeError(f"packages has {package!r}; only names (str) are allowed.")
        if not (package.isidentifier() and _can_import(package)):
            raise ValueError(
                f"packages has {package!r}, which is not a top-level package that can be "
                "imported; install it or leave it out."
            )
    if not isinstance(min_words, Integral) or isinstance(min_words, bool):
        raise TypeError(f"min_words={min_words!r} must be an integer of at least 1.")
    if min_words < 1:
        raise ValueError(f"min_words={min_words!r} must be at least 1.")
    if sys.flags.optimize >= 2:
        raise RuntimeError("Python runs with -OO, which removes docstrings; start it without.")


def _can_import(package):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            importlib.import_module(package)
        except ImportError:
            return False
    return True


def _description(packages, n_documents):
    """Text for ``DESCR``."""
    versions = ", ".join(
        f"{package} {getattr(sys.modules[package], '__version__', '(version unknown)')}"
        for package in packages
    )
    return (
        f"Docstring corpus: {n_documents} documents made from the public docstrings of "
        f"{versions}.\nThe text belongs to the authors of these packages; it was read from the "
        "installation and cleaned of code, formulas, headings and markup."
    )


# ------------------------------------------------------------------------ collecting


def _documents(package):
    """Names and cleaned texts of one package, its repeated paragraphs taken off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        docstrings = _distinct_docstrings(package)
    documents = []
    for name, doc in docstrings:
        # Many shared paragraphs differ only in the name of the object that they belong to.
        own_name = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\b")
        documents.append((name, [(p, own_name.sub("_", p)) for p in _paragraphs(doc)]))
    counts = Counter(key for _, paragraphs in documents for key in {key for _, key in paragraphs})
    for name, paragraphs in documents:
        yield name, " ".join(p for p, key in paragraphs if counts[key] <= _BOILERPLATE_COUNT)


def _distinct_docstrings(package):
    """(name, docstring) pairs in the order of the walk, each docstring under its first name."""
    names = {}
    for module in _public_modules(package):
        for name, doc in _module_docstrings(module, package):
            if doc and not _TEMPLATE.search(doc):
                names.setdefault(doc, name)
    return [(name, doc) for doc, name in names.items()]


def _public_modules(name):
    """Import a module and those below it, depth first, sorted by name."""
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit):  # an optional dependency is missing, or a script runs
        return
    yield module
    found = pkgutil.iter_modules(getattr(module, "__path__", []))
    for child in sorted(info.name for info in found):
        if not child.startswith("_") and child not in _SKIPPED_MODULES:
            yield from _public_modules(f"{name}.{child}")


def _module_docstrings(module, package):
    """Docstrings of a module and of the public objects that it defines or exports."""
    yield module.__name__, module.__doc__
    members = vars(module)  # not dir(): deprecated, lazily forwarded names stay asleep
    exported = getattr(module, "__all__", None)
    for name in sorted(members if exported is None else set(exported) & set(members)):
        obj = members[name]
        if name.startswith("_") or name in _SKIPPED_NAMES or inspect.ismodule(obj):
            continue
        home = getattr(obj, "__module__", None)  # ufuncs have none
        if home is None and exported is None:
            continue
        if home is not None and not _is_below(home, package if exported else module.__name__):
            continue
        yield f"{module.__name__}.{name}", _own_doc(obj)
        if inspect.isclass(obj):
            yield from _member_docstrings(f"{module.__name__}.{name}", obj, package)


def _member_docstrings(class_name, cls, package):
    """Docstrings of methods and properties, inherited ones only from the same package."""
    for base in cls.__mro__:
        if _is_below(base.__module__, package):
            for name, member in sorted(vars(base).items()):
                if not name.startswith("_"):
                    yield f"{class_name}.{name}", _own_doc(member)


def _is_below(module_name, package):
    return module_name == package or str(module_name).startswith(package + ".")


def _own_doc(obj):
    """The docstring of the object itself, not the one it inherits from its type."""
    doc = getattr(obj, "__doc__", None)
    return doc if isinstance(doc, str) and doc != getattr(type(obj), "__doc__", None) else None


# ------------------------------------------------------------------------ cleaning


def _paragraphs(doc):
    """Cleaned, non-empty paragraphs of a docstring."""
    text = "\n".join(_prose_lines(inspect.cleandoc(doc).splitlines()))
    cleaned = (_plain(paragraph) for paragraph in re.split(r"\n{2,}", text))
    return [paragraph for paragraph in cleaned if paragraph]


def _plain(text):
    """Text without inline markup, formulas and numbers, on one line."""
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return text.strip()


def _prose_lines(lines):
    """Lines of prose; an empty line between paragraphs and before each described parameter."""
    section, i = "", 0
    while i < len(lines):
        line, stripped, here = lines[i], lines[i].strip(), i
        i += 1
        if _is_heading(lines, here):
            section = stripped.lower().rstrip(":")
            i += 1
            yield ""
        elif not stripped or _RULE.match(line) or section in _SKIPPED_SECTIONS:
            yield ""
        elif stripped.startswith(">>>"):
            i = _next_blank(lines, i)
        elif stripped.startswith(".. ") or stripped == "..":
            directive = _DIRECTIVE.match(line)
            if directive and directive[1] in _ADMONITIONS:
                yield directive[2].strip()  # the indented text that follows is prose
            else:
                i = _next_dedent(lines, i, _indent(line))
        elif _FIELD_LIST.match(stripped) or (here == 0 and _SIGNATURE.match(stripped)):
            continue
        elif section in _FIELD_SECTIONS and _indent(line) == 0:
            yield ""
            yield _field_name(line)
        else:
            yield stripped.removesuffix("::")
            if stripped.endswith("::"):
                yield ""
                i = _next_dedent(lines, i, _indent(line))


def _is_heading(lines, i):
    return (
        i + 1 < len(lines)
        and bool(lines[i].strip())
        and bool(_RULE.match(lines[i + 1]))
        and not _RULE.match(lines[i])
    )


def _indent(line):
    return len(line) - len(line.lstrip())


def _next_blank(lines, i):
    """Index of the first blank line from i on: a doctest and its output end there."""
    while i < len(lines) and lines[i].strip():
        i += 1
    return i


def _next_dedent(lines, i, indent):
    """Index of the first line from i on that is not inside a block below `indent`."""
    while i < len(lines) and (not lines[i].strip() or _indent(lines[i]) > indent):
        i += 1
    return i


def _field_name(line):
    """``n, m : int, optional`` -> ``n, m``; a bare type, as under Returns, -> nothing."""
    name, colon, _ = re.sub(r"\s*:\s", " : ", line + " ", count=1).partition(" : ")
    return name if colon and "(" not in name else ""
