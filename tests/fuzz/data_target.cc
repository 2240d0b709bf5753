// Data sets as users bring them: IDX files plain and packed, .npy files, text, and the line that
// says which data set it is.
#include <glog/logging.h>

#include <string>
#include <vector>

#include "runtime/array.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/data/dataset_spec.h"
#include "runtime/data/idx.h"
#include "tests/fuzz/input_reader.h"
#include "tests/runtime/temp_dir.h"

namespace braid::fuzz {
namespace {

// The first and the last sample of every field.
void ReadSome(const DatasetSpec& spec) {
  const auto dataset = DatasetKinds().Open(spec);
  if (!dataset.ok() || (*dataset)->num_samples() == 0) return;
  const std::vector<int64_t> samples = {0, (*dataset)->num_samples() - 1};
  for (size_t field = 0; field < (*dataset)->fields().size(); ++field) {
    const DatasetField& info = (*dataset)->fields()[field];
    const int64_t elements = info.shape.num_elements();
    CHECK(elements >= 0);
    std::vector<std::byte> values(static_cast<size_t>(elements) * SizeOf(info.dtype) * 2);
    (*dataset)->Read(samples, static_cast<int>(field), info.dtype, values.data()).IgnoreError();
  }
}

void ReadArray(Bytes bytes) {
  const TempDir folder;
  const std::string path = folder / "a.npy";
  PutFile(path, TextOf(bytes));
  if (const auto array = Array::ReadNpy(path); array.ok()) {
    CHECK(array->num_bytes() <= bytes.size());
    const std::string again = folder / "b.npy";
    if (array->WriteNpy(again).ok()) CHECK(Array::ReadNpy(again)->shape() == array->shape());
  }
  ReadSome(NpyFiles({{"x", path}}));
}

void ReadImages(InputReader reader, std::string_view ending) {
  const TempDir folder;
  PutFile(folder / ("t-images-idx3-ubyte" + std::string(ending)), TextOf(reader.Piece()));
  PutFile(folder / ("t-labels-idx1-ubyte" + std::string(ending)), TextOf(reader.Piece()));
  ReadSome(Mnist(folder / "t"));
}

void ReadText(InputReader reader) {
  TextOptions options;
  options.context = reader.Byte();
  options.windows = reader.Byte() % 2 == 0 ? TextWindows::kStrided : TextWindows::kEvery;
  options.alphabet = reader.Byte() % 2 == 0 ? TextAlphabet::kDistinct : TextAlphabet::kBytes;
  options.begin = reader.Byte() / 255.0;
  options.end = reader.Byte() / 255.0;
  const TempDir folder;
  PutFile(folder / "text", TextOf(reader.Rest()));
  ReadSome(TextFile(folder / "text", options));
}

void ReadSpec(const std::string& text) {
  const auto spec = DatasetSpec::Parse(text);
  if (!spec.ok()) return;
  CHECK(*DatasetSpec::Parse(spec->Serialize()) == *spec) << text;
  // Of the kinds, the one that needs no file.
  if (spec->kind == "digits") ReadSome(*spec);
}

void Run(Bytes input) {
  InputReader reader(input);
  switch (reader.Byte()) {
    case 'n':
      return ReadArray(reader.Rest());
    case 'i':
      return ReadImages(reader, "");
    case 'z':
      return ReadImages(reader, ".gz");
    case 't':
      return ReadText(reader);
    default:
      return ReadSpec(TextOf(reader.Rest()));
  }
}

}  // namespace

Target DataTarget() { return {.name = "data", .run = Run}; }

}  // namespace braid::fuzz
