"""Parameters of estimators: their declaration by annotations, and their legal values.

Legal values are given as in scikit-learn's validation of parameters: by intervals, sets of strings,
classes, or names such as "array-like" and "random_state".
"""

import inspect
import re
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Annotated, TypeAlias, dataclass_transform, get_type_hints

from skvt._sklearn_private import Interval, StrOptions
from skvt.components.specs import AUTO, POSITIVE
from skvt.contracts import TemperaturePolicy
from skvt.fitting._texts import with_shared_texts
from skvt.temperature import POLICIES

# Sets of legal values. Estimators also import the sets AUTO and POSITIVE from this module.
NATURAL = Interval(Integral, 0, None, closed="left")
AT_LEAST_ONE = Interval(Integral, 1, None, closed="left")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
FRACTION = Interval(Real, 0, 1, closed="both")
OFFSET = Interval(Real, 1.0, None, closed="left")

# Mark of parameters that can change neither in warm starts nor within a stream, that is, between
# calls of ``partial_fit``.
FIXED = object()
# Mark of parameters that can change in warm starts, but not within a stream.
FIXED_IN_STREAMS = object()
_MARKS = {FIXED, FIXED_IN_STREAMS}

Temperature: TypeAlias = TemperaturePolicy | str | None
MemoizedMethod = Annotated[str, FIXED_IN_STREAMS, StrOptions({"memoized", "online", "batch"})]

# Legal values and marks, by name, of parameters whose annotation has no legal values.
CONSTRAINTS = {
    "n_components": [FIXED, AT_LEAST_ONE],
    "max_components": [None, AT_LEAST_ONE],
    "doc_topic_prior": [None, AUTO, POSITIVE, "array-like"],
    "topic_word_prior": [None, AUTO, POSITIVE, "array-like"],
    "weight_concentration_prior_type": [
        StrOptions({"dirichlet_process", "dirichlet_distribution"})
    ],
    "binarize": [None, Interval(Real, None, None, closed="neither")],
    "init_params": [StrOptions({"k-means++", "random", "random_from_data"})],
    "means_init": [None, "array-like"],
    "labels_init": [None, "array-like"],
    "use_labels": ["boolean"],
    "labels": [StrOptions({"components", "clusters"})],
    "components_init": [None, "array-like"],
    "n_burn_in": [NATURAL],
    "n_samples": [AT_LEAST_ONE],
    "moves": [tuple, list],
    "learning_method": [StrOptions({"batch", "online"})],
    "n_batches": [None, AT_LEAST_ONE],
    "batch_size": [AT_LEAST_ONE],
    "n_parallel_batches": [None, AT_LEAST_ONE],
    "temperature": [None, StrOptions(set(POLICIES)), TemperaturePolicy],
    "learning_decay": [FRACTION],
    "learning_offset": [OFFSET],
    "total_samples": [None, POSITIVE],
    "mean_change_tol": [NOT_NEGATIVE],
    "max_doc_update_iter": [AT_LEAST_ONE],
    "max_iter": [AT_LEAST_ONE],
    "n_polish": [NATURAL],
    "perp_tol": [NOT_NEGATIVE],
    "tol": [NOT_NEGATIVE],
    "evaluate_every": [Interval(Integral, None, None, closed="neither")],
    "n_init": [AT_LEAST_ONE],
    "warm_start": ["boolean"],
    "n_jobs": [None, Integral],
    "verbose": ["verbose"],
    "verbose_interval": [None, AT_LEAST_ONE],
    "random_state": ["random_state"],
}


@dataclass_transform(eq_default=False)
def estimator(cls):
    """Make a class an estimator whose parameters are its annotated names, with their defaults.

    Annotated names of base classes are also parameters. An annotation may be ``Annotated`` with
    legal values, and with the marks ``FIXED`` and ``FIXED_IN_STREAMS``. If it has no legal values,
    the entry of ``CONSTRAINTS`` is used. Shared texts are added to the docstring, see
    `skvt.fitting._texts`.
    """
    cls = dataclass(eq=False, repr=False)(cls)
    # Remove the types of parameters, so that help() and the API reference show only names and
    # defaults. The docstring has the types.
    cls.__init__.__annotations__ = {}
    hints = get_type_hints(cls, include_extras=True)
    # The legal values and the marks of each parameter.
    rules = {}
    for name in (field.name for field in fields(cls)):
        # The arguments of ``Annotated`` after the type.
        annotated_rules = getattr(hints[name], "__metadata__", ())
        has_legal_values = bool(set(annotated_rules) - _MARKS)
        further_rules = () if has_legal_values else CONSTRAINTS.get(name, ())
        rules[name] = (*annotated_rules, *further_rules)
    legal = {name: [rule for rule in rules[name] if rule not in _MARKS] for name in rules}
    cls._parameter_constraints = {name: legal[name] for name in legal if legal[name]}
    cls._fixed_parameters = [name for name in rules if FIXED in rules[name]]
    cls._fixed_in_streams = [name for name in rules if _MARKS & set(rules[name])]
    cls = with_shared_texts(cls)
    # In the signature, the parameters of base classes come first. Sort all parameters in the order
    # of the docstring, whose entries begin with one or more names of parameters. The position -1
    # keeps ``self`` first, which has no entry.
    entry_labels = re.findall(r"^(\w[\w, ]*) : ", cls.__doc__ or "", re.MULTILINE)
    names_in_order = ", ".join(entry_labels).split(", ")
    positions = {name: position for position, name in enumerate(names_in_order)}
    signature = inspect.signature(cls.__init__)
    parameters = signature.parameters.values()
    parameters = sorted(parameters, key=lambda p: (p.kind, positions.get(p.name, -1)))
    cls.__init__.__signature__ = signature.replace(parameters=parameters)
    return cls
