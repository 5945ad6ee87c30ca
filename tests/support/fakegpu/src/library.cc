// All that is C++, as one unit: TensorFlow's headers, which cost nearly all of the compiler's time, are read once.
#include "collectives.cc"
#include "compiling.cc"
#include "factory.cc"
#include "kernels.cc"
