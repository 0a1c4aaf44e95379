"""Functions that write HTML pages from the templates in this package."""

from importlib.resources import files

from skvt._replacing import open_replacement


def require_path(path, caller):
    """Raise TypeError if the argument ``path`` of the function ``caller`` is None."""
    if path is None:
        raise TypeError(
            f'{caller} needs a path to write to: {caller}(estimator, X, path="topics.html").'
        )


def write_page(path, template, **texts):
    """Write the file ``template`` to ``path`` with a text in place of each mark, such as "@TITLE@".

    Each keyword argument has the text for the mark of its name. The marks are replaced one after
    the other. Pass a text that users can determine last, so that no mark in it is replaced.
    """
    page = files("skvt.plotting").joinpath(template).read_text(encoding="utf-8")
    for name, text in texts.items():
        page = page.replace(f"@{name}@", text)
    with open_replacement(path) as file:
        file.write(page.encode())
