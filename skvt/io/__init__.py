"""Model files: fitted estimators as one file of JSON and arrays, without pickle."""

from skvt.io._archive import FileError, partial_name, remove_partials, replacing
from skvt.io._classes import register
from skvt.io._files import load, save

__all__ = [
    "FileError",
    "load",
    "partial_name",
    "register",
    "remove_partials",
    "replacing",
    "save",
]
