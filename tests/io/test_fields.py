"""Fields of classes in files follow the rules of `skvt.files`."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest

from skvt.files import POSITIVE, PRIOR, check_fields, in_files


@in_files("tests.Part")
@dataclass
class Part:
    prior: Annotated[Any, "2+d+t | d n"] = None
    shares: Annotated[Any, "n", PRIOR] = None
    linkage: Annotated[Any, "k-1 size"] = None
    scale: Annotated[float, POSITIVE] = 1.0
    size: int = 4
    inner: Any = None

    def validate(self, d, k):
        return self.size > 0


LEGAL = {
    "a sum of lengths": {"prior": np.ones(2 + 3 + 6)},
    "an alternative": {"prior": np.ones((3, 7)), "shares": np.ones(7)},
    "another field": {"linkage": np.ones((4, 4))},
}
ILLEGAL = {
    "a sum of lengths": {"prior": np.ones(2 + 3 + 5)},
    "one name of two lengths": {"prior": np.ones((3, 7)), "shares": np.ones(6)},
    "another field": {"linkage": np.ones((4, 5))},
    "another number of dimensions": {"shares": np.ones((2, 1))},
    "beyond the range of priors": {"shares": np.full(2, 1e31)},
    "not positive": {"scale": 0.0},
    "not finite": {"scale": np.inf},
    "what validate refuses": {"size": 0},
    "a part of a part": {"inner": Part(scale=-1.0)},
}


@pytest.mark.parametrize("fields", LEGAL.values(), ids=LEGAL)
def test_fields_that_follow_their_rules_are_accepted(fields):
    check_fields(Part(**fields), 3, 5)


@pytest.mark.parametrize("fields", ILLEGAL.values(), ids=ILLEGAL)
def test_an_error_names_the_class_of_a_field_that_breaks_a_rule(fields):
    with pytest.raises(ValueError, match=r"tests\.Part"):
        check_fields(Part(**fields), 3, 5)
