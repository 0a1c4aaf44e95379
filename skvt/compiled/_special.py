"""Special functions that the compiler can vectorise: exp, log, digamma, gammaln.

The loops of :mod:`skvt.models` call these millions of times on short rows. The C library's
versions are scalar calls (10 to 20 ns each); the polynomials below compile to a few vector
instructions (about 1 ns each in float32, 2 ns in float64). One source serves both precisions: a
literal takes the type of the argument through :func:`lit`.

Largest errors |difference| / max(1, |f|) measured against SciPy for arguments in [1e-5, 1e9]:

======== ======= =======
function float64 float32
======== ======= =======
log      3e-16   1.2e-7
digamma  2e-14   6e-8
gammaln  2.2e-13 3.5e-6
exp      2.4e-14 6e-8
======== ======= =======

The error of exp is relative, for arguments in [-700, 700]. NaN, infinities, non-positive arguments
and overflow of exp are not handled. exp is 0 below the smallest normal number, since denormal
numbers slow down every later loop by a factor of ten.
"""

import functools
import gc
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import event, types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic
from numpy.typing import ArrayLike

from skvt.typing import Array

# One source serves both precisions.
Real = TypeVar("Real", np.float32, np.float64)

# Without "nnan" and "ninf", bad values stay visible. "reassoc" lets sums run in vector lanes.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
_OPTIONS = {
    "nogil": True, "fastmath": FASTMATH, "error_model": "numpy", "no_cfunc_wrapper": True,
}  # fmt: skip


class _NoCollections(event.Listener):
    """Listener that stops garbage collection while a function of skvt is compiled.

    The compiler makes many objects that stay alive; a tenth of its time would be spent searching
    for garbage. Two threads never compile at once, since the compiler holds a lock.
    """

    _paused: Any = None

    def on_start(self, event: Any) -> None:
        function = getattr(event.data["dispatcher"], "py_func", None)
        is_ours = str(getattr(function, "__module__", "")).startswith("skvt.")
        if self._paused is None and gc.isenabled() and is_ours:
            self._paused = event.data["dispatcher"]
            gc.disable()

    def on_end(self, event: Any) -> None:
        if self._paused is event.data["dispatcher"]:
            self._paused = None
            gc.enable()


event.register("numba:compile", _NoCollections())


class _Files(FunctionCache):
    """Machine code of a function on disk.

    If its files cannot be read, such as an index that a power failure has cut short, the function
    is compiled again; if they cannot be written, it is compiled for this process alone.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # damaged pickles raise errors of many types
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _warn_of_no_cache(getattr(error, "strerror", None) or str(error))


def _cached(function: Callable[..., Any], allocates: bool) -> Any:
    """Compile ``function`` and keep it on disk, or for this process alone if that fails."""
    dispatcher = nb.njit(_nrt=allocates, **_OPTIONS)(function)
    try:
        dispatcher._cache = _Files(function)  # as numba does where cache=True
    except RuntimeError:
        _warn_of_no_cache("neither its folder nor the user's cache is writable")
    return dispatcher


@functools.cache
def _warn_of_no_cache(why: str) -> None:
    warnings.warn(
        f"Compiled functions of skvt cannot be stored: {why}. Every process will compile them "
        "anew, which takes several seconds. Make room there, or set the environment variable "
        "NUMBA_CACHE_DIR to a writable folder before Python starts.",
        RuntimeWarning,
        stacklevel=2,
    )


jit: Any
jit_allocating: Any
part: Any
part_allocating: Any
if nb.config.DISABLE_JIT:
    # Integers wrap around, as in compiled code.
    jit = jit_allocating = part = part_allocating = np.errstate(over="ignore")
else:
    #: Decorator of a compiled function that Python calls and that makes no arrays except views.
    #: Without reference counts it compiles 5 % faster.
    jit = functools.partial(_cached, allocates=False)
    #: Decorator of a compiled function that Python calls and that makes arrays.
    jit_allocating = functools.partial(_cached, allocates=True)
    #: Decorator of a function that only compiled functions call, and that is inlined into them. A
    #: call from Python crashes the process, since a wrapper would take as long to compile as a
    #: short part. Inlining lets loops be vectorised. It also keeps results reproducible: a process
    #: uses the first machine code that it gets for a separate function, and its last digits differ
    #: between code that was compiled and code that was loaded. A part is compiled alone and again
    #: within each function above it, so that few levels of calls compile fast.
    _of_parts = {"no_cpython_wrapper": True, "forceinline": True, **_OPTIONS}
    part = nb.njit(_nrt=False, **_of_parts)
    #: Decorator of a part that makes arrays.
    part_allocating = nb.njit(_nrt=True, **_of_parts)


def instruction(in_python: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator of intrinsics; ``in_python`` replaces one under NUMBA_DISABLE_JIT."""
    return (lambda function: in_python) if nb.config.DISABLE_JIT else intrinsic


def _float_layout(bits: int) -> tuple[Any, Any, int, int]:
    """Return LLVM types, mantissa bits and exponent bias of a float of this width."""
    if bits == 32:
        return ir.IntType(32), ir.FloatType(), 23, 127
    return ir.IntType(64), ir.DoubleType(), 52, 1023


@instruction(lambda bits: (int(bits) & -int(bits)).bit_length() - 1)
def lowest_bit(typingctx: Any, bits: Any) -> Any:
    """Return the position of the lowest bit of a uint64 that is 1; one must be."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


@instruction(lambda x, value: type(x)(value))
def lit(typingctx: Any, x: Any, value: Any) -> Any:
    """Return the compile-time constant ``value`` in the type of ``x``."""
    if not isinstance(x, types.Float):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[1] if x.bitwidth == 64 else builder.fptrunc(args[1], ir.FloatType())

    return x(x, types.float64), codegen


@instruction(lambda x, single, double: type(x)(single if type(x) is np.float32 else double))
def _by_type(typingctx: Any, x: Any, single: Any, double: Any) -> Any:
    """Return ``single`` if ``x`` is float32, else ``double``, in the type of ``x``."""
    if not isinstance(x, types.Float):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fptrunc(args[1], ir.FloatType()) if x.bitwidth == 32 else args[2]

    return x(x, types.float64, types.float64), codegen


def _horner(x: Real, coefficients: tuple[float, ...]) -> Real:
    """Do the same as :func:`polynomial` in Python."""
    p = type(x)(coefficients[0])
    for c in coefficients[1:]:
        p = p * x + type(x)(c)
    return p


@instruction(_horner)
def polynomial(typingctx: Any, x: Any, coefficients: Any) -> Any:
    """Return the polynomial of these compile-time constants at ``x``, highest power first.

    As one instruction it compiles fast: for separate products, sums and constants, the compiler
    would infer types and emit code one after the other.
    """
    if not isinstance(x, types.Float):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        p = None
        for i in range(signature.args[1].count):
            c = builder.extract_value(args[1], i)
            c = c if x.bitwidth == 64 else builder.fptrunc(c, ir.FloatType())
            p = c if p is None else builder.fadd(builder.fmul(p, args[0]), c)
        return p

    return x(x, nb.types.UniTuple(types.float64, coefficients.count)), codegen


@instruction(lambda x: type(x)(math.floor(x)))
def _floor(typingctx: Any, x: Any) -> Any:
    """Return the largest whole number up to x in the type of x; ``math.floor`` returns an int."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.floor", [args[0].type])
        return builder.call(function, args)

    return x(x), codegen


@instruction(lambda n: type(n)(np.ldexp(1.0, int(n))))
def _power_of_two(typingctx: Any, n: Any) -> Any:
    """Return 2**n for a whole number n held in a float, by setting the bits of the exponent."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer, real, mantissa, bias = _float_layout(n.bitwidth)
        bits = builder.fptosi(args[0], integer)
        bits = builder.add(bits, ir.Constant(integer, bias))
        return builder.bitcast(builder.shl(bits, ir.Constant(integer, mantissa)), real)

    return n(n), codegen


def _frexp(x: Real) -> tuple[Real, Real]:
    """Do the same as :func:`_mantissa_exponent` in Python."""
    m, e = math.frexp(x)
    if m < math.sqrt(0.5):
        m, e = 2.0 * m, e - 1
    return type(x)(m), type(x)(e)


@instruction(_frexp)
def _mantissa_exponent(typingctx: Any, x: Any) -> Any:
    """Return floats m and e with x = m 2**e and m in [sqrt(1/2), sqrt(2))."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer, real, mantissa, _ = _float_layout(x.bitwidth)
        half_root = 0x3F3504F3 if x.bitwidth == 32 else 0x3FE6A09E667F3BCD
        bits = builder.bitcast(args[0], integer)
        exponent = builder.ashr(
            builder.sub(bits, ir.Constant(integer, half_root)), ir.Constant(integer, mantissa)
        )
        rest = builder.sub(bits, builder.shl(exponent, ir.Constant(integer, mantissa)))
        pair = [builder.bitcast(rest, real), builder.sitofp(exponent, real)]
        return context.make_tuple(builder, signature.return_type, pair)

    return nb.types.UniTuple(x, 2)(x), codegen


# Taylor coefficients, highest power first.
_EXP = tuple(1 / math.factorial(i) for i in range(12, -1, -1))
_EXP_SHORT = _EXP[-9:]  # enough for float32


@part
def log(x: Real) -> Real:
    """Natural logarithm of a positive normal number."""
    m, e = _mantissa_exponent(x)
    # log m = 2 artanh(s) with |s| < 0.172: the series needs few terms.
    s = (m - lit(x, 1.0)) / (m + lit(x, 1.0))
    z = s * s
    p = polynomial(z, (2 / 19, 2 / 17, 2 / 15, 2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3))
    return e * lit(x, math.log(2.0)) + (s * z * p + s * lit(x, 2.0))


@part
def exp(x: Real) -> Real:
    """Exponential, computed in float64; 0 where the result would be a denormal number."""
    lowest = _by_type(x, -87.0, -708.0)
    y = np.float64(x if x > lowest else lowest)
    n = _floor(y * (1.0 / math.log(2.0)) + 0.5)
    # log 2 in two parts, so that y - n log 2 keeps its digits.
    r = (y - n * 0.693145751953125) - n * 1.42860682030941723212e-6
    n = _power_of_two(n)
    result = _by_type(x, polynomial(r, _EXP_SHORT) * n, polynomial(r, _EXP) * n)
    return result if x > lowest else lit(x, 0.0)


@part
def _digamma(x: float, i: float, steps: float) -> float:
    """Return the asymptotic series at x = 1 / i less ``steps``, the sum of recurrence terms."""
    z = i * i
    p = polynomial(z, (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12))
    return log(x) - i * 0.5 - z * p - steps


@part
def digamma(x: Real) -> Real:
    """Derivative of log Gamma at x > 0: recurrence steps, then the asymptotic series.

    It is computed in float64, since logarithm and steps nearly cancel, and sweeps over documents of
    uncertain topics would multiply the rounding of float32 a hundredfold. Three steps give the
    digits of float32, six those of float64.
    """
    v: Any = np.float64(x)
    product = v * (v + 1.0) * (v + 2.0)
    inverse = 1.0 / (product * (v + 3.0))  # one division for both: float32 cannot overflow here
    steps = ((3.0 * v + 6.0) * v + 2.0) * (v + 3.0) * inverse
    single = _digamma(v + 3.0, product * inverse, steps)
    # sum_{i<6} 1/(v+i), likewise. Above the limit, the steps vanish beside the logarithm.
    u = min(v, 1e30)
    a, b, c = u * (u + 1.0), (u + 2.0) * (u + 3.0), (u + 4.0) * (u + 5.0)
    product = a * b * c
    inverse = 1.0 / (product * (u + 6.0))
    steps = (u + u + 1.0) * (b * c) + (u + u + 5.0) * (a * c) + (u + u + 9.0) * (a * b)
    steps *= (u + 6.0) * inverse
    return _by_type(x, single, _digamma(v + 6.0, product * inverse, steps))


@part
def gammaln(x: Real) -> Real:
    """Log Gamma at x > 0: six recurrence steps if x < 6, then Stirling's series."""
    small = x < lit(x, 6.0)
    one = lit(x, 1.0)
    product = x * (x + one) * (x + lit(x, 2.0))
    product *= (x + lit(x, 3.0)) * (x + lit(x, 4.0)) * (x + lit(x, 5.0))
    shift = log(product if small else one)
    y = x + lit(x, 6.0) if small else x
    i = one / y
    z = i * i
    p = polynomial(z, (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12))
    half_log_two_pi = lit(x, 0.5 * math.log(2.0 * math.pi))
    return (y - lit(x, 0.5)) * log(y) - y + half_log_two_pi + i * p - shift


@jit
def _map_digamma(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = digamma(x[i])


@jit
def _map_gammaln(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = gammaln(x[i])


def _array_function(kernel: Callable[[Array, Array], None]) -> Callable[[ArrayLike], Array]:
    def function(x: ArrayLike) -> Array:
        x = writeable(np.asarray(x, dtype=np.float64, order="C"))
        out = np.empty(x.shape)
        kernel(x.reshape(-1), out.reshape(-1))
        return out

    return function


#: digamma and log Gamma of a whole array of positive numbers, in float64.
digamma_array = _array_function(_map_digamma)
gammaln_array = _array_function(_map_gammaln)


def writeable(array: Array) -> Array:
    """Return ``array``, or a copy if it is read-only, which numba would take for another type.

    This is for small arguments of large kernels, which would be compiled anew for a model in a
    memory-mapped file.
    """
    return array if array.flags.writeable else array.copy()
