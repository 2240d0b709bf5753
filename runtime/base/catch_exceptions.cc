#include "runtime/base/catch_exceptions.h"

#include <cxxabi.h>

#include <string>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "runtime/base/type_name.h"

namespace braid {

absl::Status ThrownError(std::string_view who) {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  const std::string name = type != nullptr ? TypeName(*type) : "something";
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
