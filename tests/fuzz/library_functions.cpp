// The functions of the C API that the files under test call, without the library behind them.
#include "base/dtype.hpp"
#include "tarantella/tarantella.h"

const char* tnt_version(void) { return "0.0"; }
size_t tnt_dtype_size(tnt_dtype_t dtype) { return tnt::dtype_size(dtype); }
