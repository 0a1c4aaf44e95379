"""doc/equations.md lists exactly the equation tags of the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Tags are, for example, `[VT16 eq. 9]`, `[VT16 app. B.1]` and `[Hoffman10 alg. 2]`. Every text in
# brackets that begins like a key counts as a tag, so that a badly written tag is found.
TAG = re.compile(r"\[([A-Z][A-Za-z]+\d\d[a-z]?)(?:[\s#]+([^\]]*))?\]")
PLACE = re.compile(r"(?:(eq|app|sec|alg|fig|tab)s?\. )?([0-9A-Z][\w.]*(?:-[0-9A-Z][\w.]*)?)")
ROW = re.compile(r"\| *(\w+) *\| *([^|]+?) *\| *`([^`|]+)` *\| *([^|]*?) *\|")
UNSAID = "..."


def tags(package):
    """(key, place, file, line) of every tag in the sources below the folder.

    The place is None in `[VT16]`, and "" where it cannot be read. `[VT16 eqs. 13-14, 17, app. A.1]`
    is three tags: eq. 13-14, eq. 17 and app. A.1.
    """
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        file = path.relative_to(package.parent).as_posix()
        for match in TAG.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            for place in _places(match[2]):
                yield match[1], place, file, line


def _places(text):
    if text is None:
        return [None]
    found = []
    kind = None
    # A tag may be broken at the end of a line, in a comment too.
    for part in re.sub(r"[\s#]+", " ", text).split(","):
        match = PLACE.fullmatch(part.strip())
        kind = match and (match[1] or kind)
        found.append(f"{kind}. {match[2]}" if kind else "")
    return found


def rows(page):
    """(key, place, file, what) of every row of the table."""
    table = [line for line in page.splitlines() if line.startswith("|")][2:]
    for line in table:
        row = ROW.fullmatch(line)
        assert row, f"doc/equations.md: not a row `| key | place | `file` | what |`:\n{line}"
        yield row.groups()


def bib_keys(bibliography):
    return set(re.findall(r"^@(?!comment)\w+\{([^,\s]+),", bibliography, flags=re.MULTILINE))


def natural(tag):
    """Sort key that puts eq. 2 before eq. 11."""
    parts = re.split(r"(\d+)", tag[1])
    return tag[0], [int(part) if part.isdigit() else part for part in parts], tag[2]


def differences(tagged, listed):
    """The lines of rows to add and of rows to remove."""
    missing = sorted({tag for tag in tagged if tag[1]} - {row[:3] for row in listed}, key=natural)
    surplus = [row for row in listed if row[:3] not in set(tagged)]
    add = [f"| {key} | {place} | `{file}` | {UNSAID} |" for key, place, file in missing]
    remove = [f"| {key} | {place} | `{file}` | {what} |" for key, place, file, what in surplus]
    return add, remove


@pytest.fixture(scope="module")
def found():
    return list(tags(ROOT / "skvt"))


@pytest.fixture(scope="module")
def listed():
    return list(rows((ROOT / "doc" / "equations.md").read_text(encoding="utf-8")))


def test_every_tag_can_be_read(found):
    bad = [f"{file}:{line} [{key} ...]" for key, place, file, line in found if place == ""]
    assert not bad, (
        "write [VT16 eq. 9], with eq., app., sec., alg., fig. or tab., or with several of them "
        "between commas:\n" + "\n".join(bad)
    )


def test_the_table_and_the_code_have_the_same_tags(found, listed):
    add, remove = differences([tag[:3] for tag in found], listed)
    assert not add and not remove, "\n".join(
        ["doc/equations.md differs from the code.", "Add:", *add, "Remove:", *remove]
    )


def test_every_row_has_a_description_and_is_unique(listed):
    unsaid = [row[:3] for row in listed if row[3] in ("", UNSAID)]
    assert not unsaid, f"say what the equation is: {unsaid}"
    places = [row[:3] for row in listed]
    assert len(places) == len(set(places)), "a row stands twice"


def test_every_key_is_in_the_bibliography(found, listed):
    keys = bib_keys((ROOT / "doc" / "references.bib").read_text(encoding="utf-8"))
    unknown = {f"{file}: [{key}]" for key, _, file, _ in found if key not in keys}
    unknown |= {f"doc/equations.md: {row[0]}" for row in listed if row[0] not in keys}
    assert not unknown, "not in doc/references.bib:\n" + "\n".join(sorted(unknown))
