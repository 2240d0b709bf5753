#include "runtime/base/type_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace braid {

std::string TypeName(const std::type_info& type) {
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), std::free);
  return demangled != nullptr ? demangled.get() : type.name();
}

}  // namespace braid
