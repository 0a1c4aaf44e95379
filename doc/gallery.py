"""What the gallery shows: its order, and pictures without empty panels."""

import shutil
from pathlib import Path

import matplotlib.pyplot as plt
from sphinx_gallery.scrapers import matplotlib_scraper

# tutorials and topics first, then mixtures, factors and spectra, then what holds for all of them
ORDER = [
    "plot_tutorial_texts",
    "plot_tutorial_speeches",
    "plot_tutorial_penguins",
    "plot_tutorial_survey",
    "plot_tutorial_blood_cells",
    "plot_mixed_table",
    "plot_tutorial_cells",
    "plot_tutorial_embeddings",
    "plot_tutorial_api",
    "plot_pictures_for_a_paper",
    "plot_text_topics",
    "plot_structured_local_optima",
    "plot_hyperparameter_sensitivity",
    "plot_grid_search_schedules",
    "plot_stream_partial_fit",
    "plot_new_topic",
    "plot_digits",
    "plot_clusters",
    "plot_stream_mixture",
    "plot_edge_patches",
    "plot_denoise_patches",
    "plot_bernoulli_mixture",
    "plot_factorial_shapes",
    "plot_gap_nmf",
    "plot_cavi_mixture",
    "plot_annealed_objective",
]


def place(filename):
    """Sort key of an example; one that ``ORDER`` does not name comes last."""
    name = Path(filename).stem
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


def empty_axes():
    """Axes of all open figures that are drawn and show nothing, not even a text."""
    return [
        axes
        for number in plt.get_fignums()
        for axes in plt.figure(number).axes
        if axes.axison and not (axes.has_data() or axes.texts)
    ]


def scraper(block, block_vars, gallery_conf, **kwargs):
    """The figures of a block of an example, as sphinx-gallery saves them.

    A figure with a label, such as ``plt.figure("moons")``, is also saved under a name that stays
    when other figures come before it: ``images/plot_clusters_moons.png``.

    Raises
    ------
    ValueError
        If one has an empty panel: what a later block draws into it is not shown.
    """
    if empty := empty_axes():
        raise ValueError(
            f"{block_vars['src_file']}, block at line {block[2]}: {len(empty)} empty axes. Draw "
            "all of a figure in the block that makes it."
        )
    labels = [plt.figure(number).get_label() for number in plt.get_fignums()]
    shown = matplotlib_scraper(block, block_vars, gallery_conf, **kwargs)
    paths = block_vars["image_path_iterator"].paths
    for path, label in zip(paths[len(paths) - len(labels) :], labels, strict=True):
        if label:
            shutil.copy(path, named(path, block_vars["src_file"], label))
    return shown


def named(path, example, label):
    """The file of a figure with a label, beside its numbered file."""
    return Path(path).with_name(f"{Path(example).stem}_{label}.png")
