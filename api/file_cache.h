// What was found out once and is worth keeping for the next run, in files.
#pragma once

#include <string>
#include <utility>

namespace braid {

// $XDG_CACHE_HOME/braid, else ~/.cache/braid; "" where neither is known. It may have to be made.
std::string CacheFolder();

// Bytes by keys of any length, a file each; several processes may use the same folder at once.
class FileCache {
 public:
  // Files are FOLDER/PREFIX-digest of the key. "": nothing is kept.
  FileCache(std::string folder, std::string prefix)
      : folder_(std::move(folder)), prefix_(std::move(prefix)) {}

  // "" if it is not there, or damaged.
  std::string Read(const std::string& key) const;
  // Makes the folder if it has to. What cannot be written is not kept.
  void Keep(const std::string& key, const std::string& bytes) const;

 private:
  std::string FileOf(const std::string& key) const;

  std::string folder_, prefix_;
};

}  // namespace braid
