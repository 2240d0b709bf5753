// How a cast becomes coded numbers, by its attributes.
#pragma once

#include <string>

#include "graph/attrs.h"
#include "runtime/coded_elements.h"

namespace braid {

inline Encoding EncodingOf(const Attrs& attrs) {
  Encoding encoding;
  if (attrs.Has("saturate")) encoding.saturates = attrs.Int("saturate") != 0;
  if (!attrs.Has("rounding")) return encoding;
  const std::string& rounding = attrs.String("rounding");
  if (rounding == "down") encoding.rounding = PowerRounding::kDown;
  if (rounding == "nearest") encoding.rounding = PowerRounding::kNearest;
  return encoding;
}

}  // namespace braid
