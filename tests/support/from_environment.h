// Numbers that say how much a test does, of variables that its header names.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace braid {

inline uint64_t FromEnvironment(const char* name, uint64_t missing) {
  const char* const text = std::getenv(name);
  return text == nullptr ? missing : std::strtoull(text, nullptr, 10);
}

}  // namespace braid
