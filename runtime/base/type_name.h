// What a type is called in messages.
#pragma once

#include <string>
#include <typeinfo>

namespace braid {

// "std::out_of_range"; of a compiler's own form where it cannot be read.
std::string TypeName(const std::type_info& type);

}  // namespace braid
