// Seeds of the target that reads ONNX models.
#pragma once

#include <functional>
#include <string>

namespace braid::fuzz {

using WriteSeed = std::function<void(const std::string& name, const std::string& bytes)>;

void WriteOnnxSeeds(const WriteSeed& write);

}  // namespace braid::fuzz
