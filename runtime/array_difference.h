// How two arrays differ that should be the same.
#pragma once

#include <string>

#include "runtime/array.h"

namespace braid {

// "" if element types, shapes and all elements' bits are the same; else what is not, with both:
// "element 3 of 12 is 4, should be 5".
std::string ExactDifference(const Array& actual, const Array& expected);

}  // namespace braid
