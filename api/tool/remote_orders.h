// What `braid launch` tells the far end of ssh, `braid node`, on its standard input: lines of
// variables, an empty line, and then a line per signal for the program. The end of input is the end
// of the launch.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace braid {

// How the far end exits whose program cannot be started, as shells say it.
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

std::string EnvironmentOrder(const std::map<std::string, std::string>& environment);
std::string SignalOrder(int signal);

// The far end, which reads line by line.
class RemoteOrders {
 public:
  // A line without its end. INVALID_ARGUMENT if it is none of the above.
  absl::Status TakeLine(std::string_view line);

  // Whether the empty line has come.
  bool has_environment() const { return has_environment_; }
  const std::map<std::string, std::string>& environment() const { return environment_; }
  // The signal that the last line asked for, once.
  std::optional<int> TakeSignal();

 private:
  std::map<std::string, std::string> environment_;
  bool has_environment_ = false;
  std::optional<int> signal_;
};

}  // namespace braid
