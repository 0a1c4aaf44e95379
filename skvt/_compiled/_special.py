"""Special functions that the compiler can vectorise, and the decorators of compiled functions.

The loops of :mod:`skvt.models` call exp, log, digamma and gammaln millions of times on short rows.
A call of the C library computes a single value and takes 10 to 20 ns. The polynomials of this
module compile to a few vector instructions, which take about 1 ns per value in float32 and 2 ns in
float64. The same functions serve both precisions: :func:`lit` gives a literal number the type of
the argument.

Largest errors |difference| / max(1, |f|) measured against SciPy for arguments in [1e-5, 1e9]:

======== ======= =======
function float64 float32
======== ======= =======
log      3e-16   1.2e-7
digamma  2e-14   6e-8
gammaln  2.2e-13 3.5e-6
exp      2.4e-14 6e-8
======== ======= =======

The error of exp is relative, for arguments in [-700, 700] in float64 and in [-86.9, 88] in float32.

The functions do not check their arguments. Results are not defined for NaN and infinities, for
arguments of log, digamma and gammaln that are not positive, and if exp overflows. exp returns 0
instead of a denormal number, since denormal numbers slow down every later loop by a factor of ten.
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

# Type of the argument of a function, which is also the type of its result.
Real = TypeVar("Real", np.float32, np.float64)

# Liberties that the compiler may take with floating-point numbers, by the names of LLVM. "reassoc"
# permits another order of sums, so that they can be computed by vector instructions. "nnan" and
# "ninf" are left out, so that NaN and infinities stay visible in results.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
_JIT_OPTIONS = {
    "nogil": True, "fastmath": FASTMATH, "error_model": "numpy", "no_cfunc_wrapper": True,
}  # fmt: skip


class _GarbagePause(event.Listener):
    """Listener that pauses Python's garbage collection while numba compiles functions of skvt.

    The compiler makes many objects that stay alive, so that a tenth of the time would be spent on
    searching for garbage. The listener needs no lock, since numba compiles in one thread at a time.
    """

    # The dispatcher, which is numba's object of a function, whose compilation began the pause; None
    # without a pause. The functions that it calls are compiled during the pause and do not end it.
    _paused_by: Any = None

    def on_start(self, event: Any) -> None:
        """Pause garbage collection if a function of skvt begins to compile."""
        function = getattr(event.data["dispatcher"], "py_func", None)
        is_of_skvt = str(getattr(function, "__module__", "")).startswith("skvt.")
        if self._paused_by is None and gc.isenabled() and is_of_skvt:
            self._paused_by = event.data["dispatcher"]
            gc.disable()

    def on_end(self, event: Any) -> None:
        """End the pause if the function that began it has been compiled."""
        if self._paused_by is event.data["dispatcher"]:
            self._paused_by = None
            gc.enable()


event.register("numba:compile", _GarbagePause())


class _TolerantCache(FunctionCache):
    """Cache of the machine code of a function in files, which raises no errors.

    The function is compiled again if its files cannot be read, for instance because a power failure
    has cut one short. If its files cannot be written, there is a warning, and only this process
    uses the machine code.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code for a signature, or None if it cannot be read."""
        try:
            return super().load_overload(sig, target_context)
        # Catch all exceptions, since damaged pickles raise errors of many types.
        except Exception:
            # Remove the damaged index, so that the next process does not read it again.
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the machine code for a signature to a file, or warn that this is impossible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _warn_once_of_no_cache(getattr(error, "strerror", None) or str(error))


def _compile_with_cache(function: Callable[..., Any], allocates: bool) -> Any:
    """Return the compiled function, whose machine code is kept on disk if possible.

    ``allocates`` tells whether the function makes arrays other than views. If so, numba's runtime,
    ``_nrt``, counts references to arrays.
    """
    dispatcher = nb.njit(_nrt=allocates, **_JIT_OPTIONS)(function)
    try:
        # The option cache=True of numba sets the same attribute to a FunctionCache.
        dispatcher._cache = _TolerantCache(function)
    except RuntimeError:
        _warn_once_of_no_cache("neither its folder nor the user's cache is writable")
    return dispatcher


@functools.cache
def _warn_once_of_no_cache(reason: str) -> None:
    """Warn that machine code cannot be stored, once for each reason ``reason``."""
    warnings.warn(
        f"Compiled functions of skvt cannot be stored: {reason}. Every process will compile them "
        "again, which takes several seconds. Free some space, or set the environment variable "
        "NUMBA_CACHE_DIR to a writable folder before Python starts.",
        RuntimeWarning,
        stacklevel=2,
    )


jit: Any
jit_allocating: Any
jit_inlined: Any
jit_inlined_allocating: Any
if nb.config.DISABLE_JIT:
    # Functions run in Python under NUMBA_DISABLE_JIT. The decorator turns off warnings of integer
    # overflow, since loops of random bits rely on integers that wrap around.
    jit = jit_allocating = jit_inlined = jit_inlined_allocating = np.errstate(over="ignore")
else:
    #: Decorator of a compiled function that Python calls and that makes no arrays except views. The
    #: function needs no reference counts of arrays, and therefore compiles 5 % faster.
    jit = functools.partial(_compile_with_cache, allocates=False)
    #: Decorator of a compiled function that Python calls and that makes arrays.
    jit_allocating = functools.partial(_compile_with_cache, allocates=True)
    _INLINED_OPTIONS = {"no_cpython_wrapper": True, "forceinline": True, **_JIT_OPTIONS}
    #: Decorator of an inlined function, which only compiled functions call. A call from Python
    #: crashes the process: inlined functions have no wrapper for such calls, since the wrapper of
    #: a short function would take as long to compile as the function.
    #:
    #: Functions are inlined for two reasons. First, loops that call them can be vectorised. Second,
    #: results are reproducible to the last digit. A function that is not inlined may be compiled by
    #: one process and read from a file by another, and the last digits of its results then differ.
    #:
    #: An inlined function is compiled by itself, and again within each function that calls it,
    #: directly or through other inlined functions. Few levels of inlined functions therefore
    #: compile faster than many.
    jit_inlined = nb.njit(_nrt=False, **_INLINED_OPTIONS)
    #: Decorator of an inlined function that makes arrays.
    jit_inlined_allocating = nb.njit(_nrt=True, **_INLINED_OPTIONS)


def instruction(python_twin: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of a function that emits LLVM instructions.

    The decorator makes an intrinsic of numba: the decorated function gets the types of the
    arguments, and returns the signature and a function ``codegen`` that emits the instructions.
    Under NUMBA_DISABLE_JIT the decorator returns ``python_twin`` instead, a function that does the
    same in Python.
    """
    return (lambda function: python_twin) if nb.config.DISABLE_JIT else intrinsic


def _float_layout(bits: int) -> tuple[Any, Any, int, int]:
    """Describe the format of a float of 32 or 64 bits.

    Return the LLVM type of integers with as many bits, the LLVM type of the float, the number of
    bits of the mantissa and the bias of the exponent.
    """
    if bits == 32:
        return ir.IntType(32), ir.FloatType(), 23, 127
    return ir.IntType(64), ir.DoubleType(), 52, 1023


@instruction(lambda bits: (int(bits) & -int(bits)).bit_length() - 1)
def lowest_bit(typingctx: Any, bits: Any) -> Any:
    """Return the position, from 0, of the lowest bit of a uint64 that is 1.

    The result is undefined if all bits are 0.
    """

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
def _by_precision(typingctx: Any, x: Any, single: Any, double: Any) -> Any:
    """Return ``single`` if ``x`` is float32, or ``double`` if ``x`` is float64, in this type."""
    if not isinstance(x, types.Float):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fptrunc(args[1], ir.FloatType()) if x.bitwidth == 32 else args[2]

    return x(x, types.float64, types.float64), codegen


def _evaluate_polynomial(x: Real, coefficients: tuple[float, ...]) -> Real:
    """Do the same as :func:`polynomial` in Python."""
    p = type(x)(coefficients[0])
    for c in coefficients[1:]:
        p = p * x + type(x)(c)
    return p


@instruction(_evaluate_polynomial)
def polynomial(typingctx: Any, x: Any, coefficients: Any) -> Any:
    """Evaluate a polynomial at ``x``.

    ``coefficients`` is a tuple of compile-time constants, highest power first. The intrinsic emits
    all instructions at once. An expression would take longer to compile, since the compiler would
    infer the type of each product, sum and constant.
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
    """Return the largest whole number up to x, in the type of x.

    ``math.floor`` would return an int.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.floor", [args[0].type])
        return builder.call(function, args)

    return x(x), codegen


@instruction(lambda n: type(n)(np.ldexp(1.0, int(n))))
def _power_of_two(typingctx: Any, n: Any) -> Any:
    """Return 2**n for a float n that is a whole number, by setting the bits of the exponent."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer, real, n_mantissa_bits, bias = _float_layout(n.bitwidth)
        exponent = builder.fptosi(args[0], integer)
        exponent = builder.add(exponent, ir.Constant(integer, bias))
        bits = builder.shl(exponent, ir.Constant(integer, n_mantissa_bits))
        return builder.bitcast(bits, real)

    return n(n), codegen


def _split_float_in_python(x: Real) -> tuple[Real, Real]:
    """Do the same as :func:`_split_float` in Python."""
    m, e = math.frexp(x)
    if m < math.sqrt(0.5):
        m, e = 2.0 * m, e - 1
    return type(x)(m), type(x)(e)


@instruction(_split_float_in_python)
def _split_float(typingctx: Any, x: Any) -> Any:
    """Return floats m and e with x = m 2**e and m in [sqrt(1/2), sqrt(2)); e is a whole number."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer, real, n_mantissa_bits, _ = _float_layout(x.bitwidth)
        n_mantissa_bits = ir.Constant(integer, n_mantissa_bits)
        # Subtract the bits of sqrt(1/2) from the bits of x, both as integers. The bits above the
        # mantissa of the difference are e: they are 0 for x in [sqrt(1/2), sqrt(2)), and grow by 1
        # if x is doubled.
        root_bits = ir.Constant(integer, 0x3F3504F3 if x.bitwidth == 32 else 0x3FE6A09E667F3BCD)
        bits = builder.bitcast(args[0], integer)
        exponent = builder.ashr(builder.sub(bits, root_bits), n_mantissa_bits)
        # Subtract e from the exponent of x, which divides x by 2**e.
        mantissa = builder.sub(bits, builder.shl(exponent, n_mantissa_bits))
        pair = [builder.bitcast(mantissa, real), builder.sitofp(exponent, real)]
        return context.make_tuple(builder, signature.return_type, pair)

    return nb.types.UniTuple(x, 2)(x), codegen


# Coefficients of the Taylor series of exp, highest power first.
_EXP_SERIES = tuple(1 / math.factorial(i) for i in range(12, -1, -1))
# Coefficients up to power 8, which suffice for float32.
_EXP_SHORT_SERIES = _EXP_SERIES[-9:]


@jit_inlined
def log(x: Real) -> Real:
    """Compute the natural logarithm of a positive number that is not denormal."""
    m, e = _split_float(x)
    # log m is 2 artanh(s) with |s| < 0.172, so that the series of artanh needs few terms.
    s = (m - lit(x, 1.0)) / (m + lit(x, 1.0))
    z = s * s
    p = polynomial(z, (2 / 19, 2 / 17, 2 / 15, 2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3))
    return e * lit(x, math.log(2.0)) + (s * z * p + s * lit(x, 2.0))


@jit_inlined
def exp(x: Real) -> Real:
    """Compute the exponential of x in float64; return it in the type of x.

    The result is 0 for x <= -708 in float64 and for x <= -87 in float32, since the exponential of
    slightly smaller numbers is denormal.
    """
    lowest = _by_precision(x, -87.0, -708.0)
    y = np.float64(x if x > lowest else lowest)
    n = _floor(y * (1.0 / math.log(2.0)) + 0.5)
    # exp(y) is 2**n exp(r) with r = y - n log 2. Subtract log 2 in two parts: the product of n and
    # the first part is exact, so that r keeps more digits. If the compiler adds the two parts,
    # which "reassoc" permits, the error of r grows with |x|.
    r = (y - n * 0.693145751953125) - n * 1.42860682030941723212e-6
    power = _power_of_two(n)
    result = _by_precision(
        x, polynomial(r, _EXP_SHORT_SERIES) * power, polynomial(r, _EXP_SERIES) * power
    )
    return result if x > lowest else lit(x, 0.0)


@jit_inlined
def _digamma_series(x: float, inverse: float, recurrence: float) -> float:
    """Compute digamma at x by the asymptotic series, minus ``recurrence``.

    ``inverse`` is 1 / x. ``recurrence`` is the difference between digamma at x and at the smaller
    argument of :func:`digamma`.
    """
    z = inverse * inverse
    p = polynomial(z, (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12))
    return log(x) - inverse * 0.5 - z * p - recurrence


@jit_inlined
def digamma(x: Real) -> Real:
    """Compute the derivative of log Gamma at x > 0.

    With the recurrence digamma(x) = digamma(x + n) - sum_{j<n} 1 / (x + j), the asymptotic series
    is evaluated at x + n. The precision of float32 needs n = 3, and the precision of float64 needs
    n = 6.

    The computation is in float64 even if x is float32: the logarithm of the series and the sum over
    j nearly cancel, so that rounding errors of float32 would grow a hundredfold in sweeps over
    documents of uncertain topics.
    """
    v: Any = np.float64(x)
    # Compute the result of float32 with n = 3. One division gives ``inverse``, from which the sum
    # over j and 1 / (v + 3) follow by products. No product overflows if x is float32. If x is
    # float64, the result ``single`` is not used.
    product = v * (v + 1.0) * (v + 2.0)
    inverse = 1.0 / (product * (v + 3.0))
    recurrence = ((3.0 * v + 6.0) * v + 2.0) * (v + 3.0) * inverse
    single = _digamma_series(v + 3.0, product * inverse, recurrence)
    # Compute the result of float64 with n = 6. The upper limit of u avoids overflow. Beyond it, the
    # sum over j is too small to change the result.
    u = min(v, 1e30)
    # Add the terms of the sum over j in pairs: 1 / u + 1 / (u + 1) = (2 u + 1) / a, and likewise
    # for b and c.
    a, b, c = u * (u + 1.0), (u + 2.0) * (u + 3.0), (u + 4.0) * (u + 5.0)
    product = a * b * c
    inverse = 1.0 / (product * (u + 6.0))
    recurrence = (u + u + 1.0) * (b * c) + (u + u + 5.0) * (a * c) + (u + u + 9.0) * (a * b)
    recurrence *= (u + 6.0) * inverse
    return _by_precision(x, single, _digamma_series(v + 6.0, product * inverse, recurrence))


@jit_inlined
def trigamma(x: float) -> float:
    """Compute the derivative of digamma at x > 0.

    The asymptotic series is evaluated at x + 8, because trigamma(x) is trigamma(x + 8) +
    sum_{i<8} 1 / (x + i)^2.
    """
    recurrence = 0.0
    for i in range(8):
        recurrence += 1.0 / ((x + i) * (x + i))
    z = 1.0 / ((x + 8.0) * (x + 8.0))
    p = polynomial(z, (7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6))
    y = 1.0 / (x + 8.0)
    return recurrence + y + 0.5 * z + p * z * y


@jit_inlined
def gammaln(x: Real) -> Real:
    """Compute log Gamma at x > 0 by Stirling's series, at x + 6 if x < 6.

    The recurrence is log Gamma(x) = log Gamma(x + 6) - log(x (x + 1) ... (x + 5)).
    """
    is_small = x < lit(x, 6.0)
    one = lit(x, 1.0)
    product = x * (x + one) * (x + lit(x, 2.0))
    product *= (x + lit(x, 3.0)) * (x + lit(x, 4.0)) * (x + lit(x, 5.0))
    recurrence = log(product if is_small else one)
    y = x + lit(x, 6.0) if is_small else x
    inverse = one / y
    z = inverse * inverse
    p = polynomial(z, (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12))
    half_log_two_pi = lit(x, 0.5 * math.log(2.0 * math.pi))
    return (y - lit(x, 0.5)) * log(y) - y + half_log_two_pi + inverse * p - recurrence


@jit
def _map_digamma(x: Array, out: Array) -> None:
    """Write digamma of each value of ``x`` to ``out``."""
    for i in range(x.size):
        out[i] = digamma(x[i])


@jit
def _map_gammaln(x: Array, out: Array) -> None:
    """Write log Gamma of each value of ``x`` to ``out``."""
    for i in range(x.size):
        out[i] = gammaln(x[i])


def _array_function(kernel: Callable[[Array, Array], None]) -> Callable[[ArrayLike], Array]:
    """Return a function that applies ``kernel`` to an array of any shape, in float64."""

    def function(x: ArrayLike) -> Array:
        x = ensure_writeable(np.asarray(x, dtype=np.float64, order="C"))
        out = np.empty(x.shape)
        kernel(x.reshape(-1), out.reshape(-1))
        return out

    return function


#: Compute digamma of an array of positive numbers, of any shape, in float64.
digamma_array = _array_function(_map_digamma)
#: Compute log Gamma of an array of positive numbers, of any shape, in float64.
gammaln_array = _array_function(_map_gammaln)


def ensure_writeable(array: Array) -> Array:
    """Return ``array``, or a copy if it is read-only.

    A read-only array has another type for numba, so that a compiled function would be compiled anew
    for it. Arrays of a model in a memory-mapped file, for example, are read-only. Use this function
    for arguments that are small, of functions that take long to compile.
    """
    return array if array.flags.writeable else array.copy()
