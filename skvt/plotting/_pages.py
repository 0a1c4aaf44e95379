"""HTML pages, which are written from the templates in this package."""

from importlib.resources import files

from skvt._replacing import replacing


def require_path(path, caller):
    """Raise TypeError if the path of the function ``caller`` is None."""
    if path is None:
        raise TypeError(
            f'{caller} needs a path to write to: {caller}(estimator, X, path="topics.html").'
        )


def write_page(path, template, **texts):
    """Write a page: the file ``template`` with a text in place of each mark, such as "@TITLE@".

    The texts are filled in one after the other. A text that users can determine comes last, so that
    nothing in it is taken for the mark of another text.
    """
    page = files("skvt.plotting").joinpath(template).read_text(encoding="utf-8")
    for name, text in texts.items():
        page = page.replace(f"@{name}@", text)
    with replacing(path) as file:
        file.write(page.encode())
