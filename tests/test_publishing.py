"""Files that publish a release fit together: the recipe for conda, the citation, the workflows."""

import re
import tomllib
from pathlib import Path

import pytest

import skvt

ROOT = Path(__file__).parents[1]


def read(name):
    """The text of a file of the repository, which the source distribution may leave out."""
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"no {name}: this is not the repository")
    return path.read_text(encoding="utf-8")


def test_the_recipe_for_conda_has_the_requirements_and_the_summary_of_the_project():
    recipe, project = read("conda/recipe.yaml"), tomllib.loads(read("pyproject.toml"))
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    requirements = [re.sub(r"[- ]* ?(\S+) (>=\S+)", r"\1\2", line) for line in run.splitlines()]
    assert requirements[1:] == project["project"]["dependencies"]
    assert f"- {project['build-system']['requires'][0].replace('>', ' >')}\n" in recipe
    assert f"summary: {project['project']['description']}\n" in recipe
    assert f'version: "{skvt.__version__}"\n' in recipe
    assert f"\nversion: {skvt.__version__}\n" in read("CITATION.cff")


@pytest.mark.parametrize("name", ["ci", "codeql", "release"])
def test_workflows_name_each_action_by_its_commit(name):
    actions = re.findall(r"uses: (.*)", read(f".github/workflows/{name}.yml"))
    assert actions
    for action in actions:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action), action
