#include "runtime/base/catch_exceptions.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <typeinfo>

#include "absl/strings/str_cat.h"

namespace braid {

absl::Status ThrownError(std::string_view who) {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  std::string name = "something";
  if (type != nullptr) {
    const std::unique_ptr<char, void (*)(void*)> demangled(
        abi::__cxa_demangle(type->name(), nullptr, nullptr, nullptr), std::free);
    name = demangled != nullptr ? demangled.get() : type->name();
  }
  std::string what;
  try {
    throw;
  } catch (const std::exception& exception) {
    what = absl::StrCat(": ", exception.what());
  } catch (...) {
  }
  return absl::InternalError(absl::StrCat(std::string(who), " threw ", name, what));
}

}  // namespace braid
