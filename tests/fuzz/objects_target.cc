// Objects as another rank, a store or a file could have them, of a type that the first byte says.
#include <glog/logging.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/object_format.h"
#include "runtime/control.pb.h"
#include "tests/fuzz/input_reader.h"

namespace braid::fuzz {
namespace {

// What was read can be written, and read again.
template <typename T>
void ReadObject(const std::string& bytes) {
  dist::ObjectReader reader(bytes);
  T object{};
  if (!reader.Read(object).ok()) return;
  const auto written = dist::EncodeObject(object);
  CHECK(written.ok()) << written.status();
  const auto again = dist::DecodeObject<T>(*written);
  CHECK(again.ok()) << again.status();
}

void Run(Bytes input) {
  InputReader reader(input);
  const uint8_t type = reader.Byte();
  const std::string bytes = TextOf(reader.Rest());
  switch (type) {
    case 'n':
      return ReadObject<std::vector<double>>(bytes);
    case 's':
      return ReadObject<std::vector<std::string>>(bytes);
    case 'b':
      return ReadObject<std::vector<std::pair<std::vector<bool>, std::optional<bool>>>>(bytes);
    case 'a':
      return ReadObject<std::vector<std::optional<std::array<std::string, 3>>>>(bytes);
    case 'm':
      return ReadObject<std::map<std::string, std::vector<std::array<float, 2>>>>(bytes);
    case 'u':
      return ReadObject<std::unordered_map<int16_t, std::map<uint8_t, std::string>>>(bytes);
    default:
      return ReadObject<std::vector<control::Hello>>(bytes);
  }
}

}  // namespace

Target ObjectsTarget() { return {.name = "objects", .run = Run}; }

}  // namespace braid::fuzz
