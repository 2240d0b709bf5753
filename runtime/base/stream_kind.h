// Where on a device a task works: plans say it, and devices have one stream of each kind.
#pragma once

#include <cstdint>

namespace braid {

enum class StreamKind : uint8_t {
  kCompute,     // kernels; of a device that shares the host's memory also copies and collectives
  kInput,       // readers, which run ahead of the step: on the host
  kTransfer,    // what other devices and nodes take part in, feeds and fetches: on the host
  kCopyIn,      // into the device's own memory: from the host's, and from that of its node's others
  kCopyOut,     // from the device's own memory into the host's
  kCollective,  // collectives that the devices of a node do among themselves
};
constexpr int kNumStreams = 6;

// A device has a thread for each of the first kinds. The device's own streams are all fed by the
// thread of kCompute: it queues, and does not wait for what it has queued.
constexpr uint32_t kThreadsPerDevice = 3;
constexpr uint32_t ThreadOf(uint32_t device, StreamKind stream) {
  const auto number = static_cast<uint32_t>(stream);
  return device * kThreadsPerDevice + (number < kThreadsPerDevice ? number : 0);
}
constexpr uint32_t DeviceOfThread(uint32_t thread) { return thread / kThreadsPerDevice; }
constexpr StreamKind StreamOfThread(uint32_t thread) {
  return static_cast<StreamKind>(thread % kThreadsPerDevice);
}

// Whether tasks of this stream work in host memory, whatever the kind of device.
constexpr bool IsHostStream(StreamKind stream) {
  return stream == StreamKind::kInput || stream == StreamKind::kTransfer;
}

}  // namespace braid
