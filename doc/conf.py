"""Configuration of the documentation: `sphinx-build -W -b html doc doc/_build/html`.

Nothing here needs the network: no references into other projects' sites are resolved, and the pages
carry the script that draws their formulas.
"""

import re
import shutil
import sys
from importlib import import_module
from importlib.metadata import files
from pathlib import Path

import pybtex.plugin
from pybtex.style.formatting.unsrt import Style as UnsortedStyle
from pybtex.style.labels import BaseLabelStyle
from sphinx.ext import autosummary
from sphinx.util import logging

import skvt

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
sys.path.insert(0, str(HERE))  # gallery.py, tree.py
PUBLIC_MODULES = ["skvt", "skvt.temperature", "skvt.metrics", "skvt.datasets", "skvt.plotting"]

project = "skvt"
author = "skvt developers"
copyright = "2026, skvt developers"
release = skvt.__version__
version = ".".join(release.split(".")[:2])

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "myst_parser",
    "numpydoc",
    "sphinx_design",
    "sphinxcontrib.bibtex",
]
exclude_patterns = ["_build", "_templates", "changelog.d"]
templates_path = ["_templates"]
default_role = "literal"
# Quotes stay straight, because values such as default="auto" are copied.
smartquotes_action = "De"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "pydata_sphinx_theme"
html_title = f"skvt {release}"
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": False,
    "header_links_before_dropdown": 5,  # one line at 1400 pixels
}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_sidebars = {
    page: []
    for page in (
        "glossary architecture tree walks compiled_loops equations measured references changelog"
        " history"
    ).split()
}
# names of methods alone in the contents beside a class
toc_object_entries_show_parents = "hide"
# one file that asks for no other: fonts are drawn as SVG
mathjax_path = "tex-svg.js"

autosummary_generate = True
# The first sentence of a docstring does not end at the period of a tag such as [VT16 sec. 4].
autosummary.WELL_KNOWN_ABBREVIATIONS += ("sec.", "app.", "eq.", "alg.")
autodoc_typehints = "none"
numpydoc_show_class_members = False  # doc/_templates/autosummary/class.rst shows them


# --- the tree of the package, from the first lines of its modules ---

tree = "\n".join(import_module("tree").lines())
(HERE / "tree.md").write_text(f"# The tree\n\n```text\n{tree}\n```\n", encoding="utf-8")


# --- references: the label of an entry is its key, the one that equation tags in the code use ---


class KeyLabels(BaseLabelStyle):
    def format_labels(self, sorted_entries):
        return [entry.key for entry in sorted_entries]


class KeyStyle(UnsortedStyle):
    default_label_style = KeyLabels


pybtex.plugin.register_plugin("pybtex.style.formatting", "keys", KeyStyle)
bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "keys"


# --- gallery: every examples/plot_*.py is run and shown ---

if any(EXAMPLES.glob("plot_*.py")):
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": str(EXAMPLES),
        "gallery_dirs": "auto_examples",
        "filename_pattern": r"/plot_",
        "within_subsection_order": "gallery.place",
        "image_scrapers": ("gallery.scraper",),
        # by name, for "Examples using ..." on the pages of the reference
        "doc_module": ("skvt",),
        "backreferences_dir": "generated/examples",
        # nothing but what is printed: no legend or list of lines that a call happens to return
        "capture_repr": (),
        "ignore_pattern": r"^(?!plot_)",
        "abort_on_example_error": True,
        "download_all_examples": False,
        "plot_gallery": "True",
        "remove_config_comments": True,
        # two examples at a time, each in a process of its own
        "parallel": 2,
        "show_memory": False,
        "write_computation_times": False,
        "show_signature": False,
    }
else:
    # The page that the table of contents refers to, as long as there is nothing for a gallery.
    (HERE / "auto_examples").mkdir(exist_ok=True)
    (HERE / "auto_examples" / "index.rst").write_text("Examples\n========\n\nNone yet.\n")


def copy_mathjax(app, exception):
    """Put MathJax, as a package of PyPI ships it, beside the pages."""
    if exception is None and app.builder.format == "html":
        script = next(path for path in files("sphinx-mathjax-offline") if path.name == mathjax_path)
        shutil.copy(script.locate(), Path(app.outdir) / "_static" / mathjax_path)


# --- checks and repairs ---


FOREIGN_REFERENCE = re.compile(r":(?:ref|term|doc):`([^`<]*?)\s*(?:<[^`]*>)?`")


def flatten_foreign_references(app, what, name, obj, options, lines):
    """Turn :ref: and :term: roles of inherited scikit-learn docstrings into plain text.

    Their targets are pages of scikit-learn's own documentation.
    """
    if not (getattr(obj, "__module__", None) or "").startswith("skvt"):
        text = FOREIGN_REFERENCE.sub(r"\1", "\n".join(lines))
        lines[:] = text.split("\n")


def check_public_names(app, env):
    """Warn of public names that the page api.rst leaves out (a name too many fails by itself)."""
    page = (HERE / "api.rst").read_text(encoding="utf-8")
    entry = r"^(?: +|\.\. (?:class|data):: )(skvt[\w.]*)$"
    documented = set(re.findall(entry, page, flags=re.MULTILINE))
    for module in PUBLIC_MODULES:
        for name in import_module(module).__all__:
            public = not name.startswith("__") and f"{module}.{name}" not in PUBLIC_MODULES
            if public and f"{module}.{name}" not in documented:
                logging.getLogger(__name__).warning("api.rst leaves out %s.%s", module, name)


def setup(app):
    # Before numpydoc (priority 500) takes the docstring apart.
    app.connect("autodoc-process-docstring", flatten_foreign_references, priority=400)
    app.connect("env-check-consistency", check_public_names)
    app.connect("build-finished", copy_mathjax)
