// A fuzz target: a function that gives any bytes to one part of the library that reads what files,
// peers or a master send. Whatever the bytes, it ends soon, with a bounded amount of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace braid::fuzz {

using Bytes = std::span<const uint8_t>;

struct Target {
  std::string_view name;  // of its folder in corpus/
  void (*run)(Bytes input);
  // Changes `data` in place, of `size` bytes and room for `max_size`, into another input of the
  // same form; its new size, 0 if that cannot be. nullptr: bytes are as good as any other form.
  size_t (*mutate)(uint8_t* data, size_t size, size_t max_size, unsigned seed) = nullptr;
  // Whether a seed is of today's version, of a form that has one: of others nothing is read.
  bool (*is_current)(Bytes seed) = nullptr;
};

// The list: one file each.
Target TcpTarget();
Target ShmTarget();
Target RdmaTarget();
Target FramesTarget();
Target GroupsTarget();
Target ControlTarget();
Target MasterTarget();
Target JoinTarget();
Target PlanTarget();
Target NodesTarget();
Target CheckpointTarget();
Target DataTarget();
Target OnnxTarget();
Target ObjectsTarget();

std::span<const Target> Targets();
const Target* FindTarget(std::string_view name);  // nullptr if unknown

}  // namespace braid::fuzz
