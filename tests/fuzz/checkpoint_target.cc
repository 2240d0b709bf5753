// Files that a checkpoint is made of: safetensors, the index, the state, the checksums; each alone,
// and all together as a folder.
#include <glog/logging.h>

#include <string>
#include <vector>

#include "runtime/base/crc32c.h"
#include "runtime/files/block_checksums.h"
#include "runtime/files/checkpoint.h"
#include "runtime/files/checkpoint_format.h"
#include "runtime/files/safetensors.h"
#include "tests/fuzz/input_reader.h"
#include "tests/runtime/temp_dir.h"

namespace braid::fuzz {
namespace {

constexpr char kTensorsFile[] = "model.safetensors";

void ReadSafetensors(Bytes bytes) {
  const TempDir folder;
  PutFile(folder / kTensorsFile, TextOf(bytes));
  const auto reader = SafetensorsReader::Open(folder / kTensorsFile);
  if (!reader.ok()) return;
  int64_t total = 0;
  for (const StoredTensor& tensor : reader->tensors()) {
    CHECK(reader->Find(tensor.name) != nullptr);
    std::vector<std::byte> values(static_cast<size_t>(tensor.num_bytes()));
    total += tensor.num_bytes();
    CHECK(reader->ReadBytes(tensor.name, 0, values.data(), values.size()).ok());
    CHECK(!reader->ReadBytes(tensor.name, 1, values.data(), values.size()).ok());
  }
  CHECK(total <= static_cast<int64_t>(bytes.size()));
}

void ReadSideFiles(const std::string& text) {
  if (const auto index = ParseIndex("index", text); index.ok()) {
    CHECK(ParseIndex("again", FormatIndex(*index))->weight_map == index->weight_map);
  }
  if (const auto state = ParseState("state", text); state.ok()) {
    CHECK(ParseState("again", FormatState(*state))->values == state->values);
  }
  if (const auto checksums = ParseChecksums("checksums", text); checksums.ok()) {
    CHECK(ParseChecksums("again", FormatChecksums(*checksums)).ok());
  }
}

FileChecksums ChecksumsOf(Bytes file) {
  FileChecksums checksums;
  checksums.bytes = static_cast<int64_t>(file.size());
  const auto block = static_cast<size_t>(kChecksumBlockBytes);
  for (size_t at = 0; at < file.size(); at += block) {
    checksums.blocks.push_back(Crc32c(file.data() + at, std::min(block, file.size() - at)));
  }
  return checksums;
}

// Index, state, tensors; and the checksums, right ones if there is nothing more in the input.
void ReadFolder(InputReader reader) {
  const Bytes index = reader.Piece(), state = reader.Piece(), tensors = reader.Piece();
  const TempDir folder;
  PutFile(folder / kIndexFile, TextOf(index));
  PutFile(folder / kStateFile, TextOf(state));
  PutFile(folder / kTensorsFile, TextOf(tensors));
  PutFile(folder / kChecksumsFile, reader.AtEnd()
                                       ? FormatChecksums({{kIndexFile, ChecksumsOf(index)},
                                                          {kStateFile, ChecksumsOf(state)},
                                                          {kTensorsFile, ChecksumsOf(tensors)}})
                                       : TextOf(reader.Rest()));
  const auto checkpoint = CheckpointReader::Open(folder.path());
  if (!checkpoint.ok()) return;
  (*checkpoint)->Info("no such tensor").status().IgnoreError();
  for (const StoredTensor& tensor : (*checkpoint)->tensors()) {
    std::vector<std::byte> values(static_cast<size_t>(tensor.num_bytes()));
    (*checkpoint)->ReadBytes(tensor.name, 0, values.data(), values.size()).IgnoreError();
    TensorBox box{std::vector<int64_t>(tensor.shape.dims().size(), 0), tensor.shape.dims()};
    if (!box.sizes.empty() && box.sizes.back() > 1) {
      box.begin.back() = 1;
      --box.sizes.back();
    }
    (*checkpoint)->ReadBox(tensor.name, box, values.data()).IgnoreError();
  }
}

void Run(Bytes input) {
  InputReader reader(input);
  switch (reader.Byte()) {
    case 's':
      return ReadSafetensors(reader.Rest());
    case 'j':
      return ReadSideFiles(TextOf(reader.Rest()));
    default:
      return ReadFolder(reader);
  }
}

}  // namespace

Target CheckpointTarget() { return {.name = "checkpoint", .run = Run}; }

}  // namespace braid::fuzz
