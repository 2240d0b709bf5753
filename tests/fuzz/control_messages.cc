#include "tests/fuzz/control_messages.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/input_reader.h"

namespace braid::fuzz {
namespace {

using control::ControlMessage;

std::vector<ControlMessage> Split(Bytes input) {
  InputReader reader(input);
  std::vector<ControlMessage> messages;
  while (!reader.AtEnd()) {
    const Bytes piece = reader.Piece();
    messages.emplace_back().ParseFromArray(piece.data(), static_cast<int>(piece.size()));
  }
  return messages;
}

}  // namespace

size_t MutateControlMessages(const MutableInput& input, unsigned seed,
                             absl::FunctionRef<void(ControlMessage&, Random&)> change) {
  if (input.size < 3) return 0;
  std::vector<ControlMessage> messages = Split({input.data + 1, input.size - 1});
  if (messages.empty()) return 0;
  Random random(seed);
  const size_t chosen = random() % messages.size();
  switch (random() % 8) {
    case 0:
      messages.push_back(messages[chosen]);
      break;
    case 1:
      std::swap(messages[chosen], messages[random() % messages.size()]);
      break;
    case 2:
      messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(chosen));
      break;
    default:
      change(messages[chosen], random);
      break;
  }
  std::string bytes(1, static_cast<char>(input.data[0]));
  for (const ControlMessage& message : messages) {
    const std::string piece = message.SerializeAsString();
    if (piece.size() > UINT16_MAX) return 0;
    bytes += PieceOf(piece);
  }
  if (bytes.size() > input.max_size) return 0;
  std::copy(bytes.begin(), bytes.end(), input.data);
  return bytes.size();
}

}  // namespace braid::fuzz
