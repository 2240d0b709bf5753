// `braid onnx`: what is in an ONNX file, and how fast it runs.
#pragma once

#include "api/tool/subcommand.h"

namespace braid {

Subcommand OnnxSubcommand();

}  // namespace braid
