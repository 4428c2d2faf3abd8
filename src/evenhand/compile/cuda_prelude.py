"""The start of generated CUDA source: type names, and arithmetic as on the CPU.

The source is CUDA C++. Compiled as C++ for the CPU it gives the same results, one thread at a time.
"""

PRELUDE = r"""
typedef double real;
typedef long long whole;
typedef unsigned long long word;
#ifdef __CUDACC__
#define FUNCTION __device__ static __forceinline__
#define APART __device__ static __noinline__
#define TABLE __device__ static const
#define FILLED __device__
#define LITTLE_UNROLLING _Pragma("unroll 1")
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
#define UNDEFINED __longlong_as_double(0x7ff8000000000000LL)
#else
#include <cmath>
#include <cstring>
using std::floor; using std::fmod; using std::isfinite; using std::isinf; using std::isnan;
#define FUNCTION static inline
#define APART static
#define TABLE static const
#define FILLED
#define LITTLE_UNROLLING
#define INFINITE __builtin_inf()
#define UNDEFINED __builtin_nan("")
#endif

#define OWN(buffer, place) m->buffer[place]

FUNCTION real lesser(real a, real b) { return b < a ? b : a; }
FUNCTION whole lesser(whole a, whole b) { return b < a ? b : a; }
FUNCTION word lesser(word a, word b) { return b < a ? b : a; }
FUNCTION real greater(real a, real b) { return b > a ? b : a; }
FUNCTION whole greater(whole a, whole b) { return b > a ? b : a; }
FUNCTION word greater(word a, word b) { return b > a ? b : a; }
FUNCTION real absolute(real a) { return fabs(a); }
FUNCTION whole absolute(whole a) { return a < 0 ? -a : a; }

// rounded down, and 0 where the divisor is 0
FUNCTION whole floor_division(whole a, whole b) {
    if (b == 0) return 0;
    whole quotient = a / b, remainder = a - quotient * b;
    return remainder != 0 && (b ^ remainder) < 0 ? quotient - 1 : quotient;
}
FUNCTION whole floor_remainder(whole a, whole b) {
    if (b == 0) return 0;
    whole remainder = a % b;
    return remainder != 0 && (b ^ remainder) < 0 ? remainder + b : remainder;
}
FUNCTION word floor_division(word a, word b) { return b == 0 ? 0 : a / b; }
FUNCTION word floor_remainder(word a, word b) { return b == 0 ? 0 : a % b; }

FUNCTION word bits_of(real a) {
#ifdef __CUDACC__
    return (word)__double_as_longlong(a);
#else
    word bits; std::memcpy(&bits, &a, sizeof bits); return bits;
#endif
}

// one copy of each in the program: copied into every place of use they would fill the instruction cache
APART real call_log(real a) { return log(a); }
APART real call_exp(real a) { return exp(a); }
APART real call_log1p(real a) { return log1p(a); }
APART real call_expm1(real a) { return expm1(a); }
APART real call_lgamma(real a) { return lgamma(a); }
APART real call_sin(real a) { return sin(a); }
APART real call_cos(real a) { return cos(a); }
APART real call_asin(real a) { return asin(a); }
APART real call_erfc(real a) { return erfc(a); }
APART real call_pow(real a, real b) { return pow(a, b); }
"""
