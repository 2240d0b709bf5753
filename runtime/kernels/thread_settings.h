// What kernels change of the thread that they run on, for threads that are not a device's own.
#pragma once

namespace braid {

// Kernels say how many threads their OpenMP regions have, of the thread that they run on. While
// this lives they may; then the thread's own regions have their number again.
class KeptThreadSettings {
 public:
  KeptThreadSettings();
  ~KeptThreadSettings();
  KeptThreadSettings(const KeptThreadSettings&) = delete;
  KeptThreadSettings& operator=(const KeptThreadSettings&) = delete;

 private:
  const int threads_;
};

}  // namespace braid
