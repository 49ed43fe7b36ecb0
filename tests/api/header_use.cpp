// The header as C++: the same uses as in C.
#include "header_use.c"
