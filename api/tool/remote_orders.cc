#include "api/tool/remote_orders.h"

#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "comm/cluster/plain_text.h"

namespace braid {
namespace {

constexpr std::string_view kSignal = "signal ";
constexpr int kMaxSignal = 64;

}  // namespace

std::string EnvironmentOrder(const std::map<std::string, std::string>& environment) {
  std::string order;
  for (const auto& [name, value] : environment) {
    order += name + "=" + absl::CEscape(value) + "\n";
  }
  return order + "\n";
}

std::string SignalOrder(int signal) { return absl::StrFormat("%s%d\n", kSignal, signal); }

absl::Status RemoteOrders::TakeLine(std::string_view line) {
  if (!has_environment_) {
    if (line.empty()) {
      has_environment_ = true;
      return absl::OkStatus();
    }
    const size_t equals = line.find('=');
    std::string value;
    if (equals != std::string_view::npos && equals > 0 &&
        absl::CUnescape({line.data() + equals + 1, line.size() - equals - 1}, &value)) {
      environment_[std::string(line.substr(0, equals))] = std::move(value);
      return absl::OkStatus();
    }
    // What the line holds may be a secret.
    return absl::InvalidArgumentError("a line NAME=VALUE of braid launch was expected");
  }
  const std::optional<int> signal = line.starts_with(kSignal)
                                        ? ParseDecimal(line.substr(kSignal.size()), 1, kMaxSignal)
                                        : std::nullopt;
  if (!signal.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s': a line 'signal N' of braid launch was expected", Excerpt(line)));
  }
  signal_ = signal;
  return absl::OkStatus();
}

std::optional<int> RemoteOrders::TakeSignal() { return std::exchange(signal_, std::nullopt); }

}  // namespace braid
