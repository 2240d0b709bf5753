#include "api/file_cache.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "comm/cluster/launcher_environment.h"
#include "glog/logging.h"
#include "runtime/files/file.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = int64_t{1} << 28;  // of a file

// "": it cannot be computed here, as where OpenSSL is told to take what is not installed.
std::string Sha256(std::string_view bytes) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  const bool is_done =
      EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), &size,
                 EVP_sha256(), nullptr) == 1;
  digest.resize(is_done ? size : 0);
  return digest;
}

}  // namespace

std::string CacheFolder() {
  if (const auto folder = EnvironmentVariable("XDG_CACHE_HOME"); folder.value_or("") != "") {
    return *folder + "/braid";
  }
  const auto home = EnvironmentVariable("HOME");
  return home.value_or("") == "" ? "" : *home + "/.cache/braid";
}

std::string FileCache::FileOf(const std::string& key) const {
  if (folder_.empty()) return "";
  const std::string digest = absl::BytesToHexString(Sha256(key)).substr(0, 32);
  if (digest.empty()) return "";
  return absl::StrCat(folder_, "/", prefix_, "-", digest);
}

// The bytes stand behind their own digest.
std::string FileCache::Read(const std::string& key) const {
  const std::string file = FileOf(key);
  if (file.empty()) return "";
  const absl::StatusOr<std::string> kept = ReadWholeFile(file, kMostBytes);
  const size_t digest = Sha256("").size();
  if (!kept.ok() || kept->size() <= digest) return "";
  std::string bytes = kept->substr(digest);
  return Sha256(bytes) == kept->substr(0, digest) ? bytes : "";
}

void FileCache::Keep(const std::string& key, const std::string& bytes) const {
  const std::string file = FileOf(key);
  if (file.empty()) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  const std::string unfinished = absl::StrCat(file, ".", getpid());
  const absl::Status status = WriteWholeFile(unfinished, Sha256(bytes) + bytes);
  if (status.ok()) fs::rename(unfinished, file, error);
  if (!status.ok() || error) {
    VLOG(1) << file << " cannot be written: " << status;
    fs::remove(unfinished, error);
  }
}

}  // namespace braid
