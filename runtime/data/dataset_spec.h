// Which dataset, as a value: a kind and parameters. It travels in a plan as one line of text, and
// every node opens its own copy from it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace braid {

struct DatasetSpec {
  std::string kind;
  std::map<std::string, std::string> params;

  // "mnist?count=9000&files=%2Fdata%2Ftrain": names and values are percent-encoded.
  std::string Serialize() const;
  static absl::StatusOr<DatasetSpec> Parse(std::string_view text);

  friend bool operator==(const DatasetSpec&, const DatasetSpec&) = default;
};

// Samples [first, first + count) of a file; count -1 means up to its end.
struct SampleRange {
  int64_t first = 0;
  int64_t count = -1;
};

// IDX images and labels as MNIST's: `files`-images-idx3-ubyte and `files`-labels-idx1-ubyte, each
// plain or .gz. Fields: image f32 [rows * columns] in [0, 1]; label i32 [].
DatasetSpec Mnist(std::string_view files, const SampleRange& range = {});

// Drawn digits, made here: strokes under random affine changes, with noise. Same fields as MNIST's,
// 28 x 28. Sample i depends on the seed and i only.
struct DigitsOptions {
  int64_t first = 0;
  int64_t count = 10000;
  uint64_t seed = 1;
};
DatasetSpec DrawnDigits(const DigitsOptions& options = {});

// Drawn coloured images of any size, each of one of several classes of waves, made here. Fields:
// image f32 [channels, side, side], numbers about 0; label i32 []. Sample i depends on the seed,
// the options and i only.
struct PatternsOptions {
  int64_t first = 0;
  int64_t count = 10000;
  uint64_t seed = 1;
  int64_t channels = 3;
  int64_t side = 32;
  int64_t classes = 10;
};
DatasetSpec DrawnPatterns(const PatternsOptions& options = {});

// A text file as characters. Fields: input i32 [context]; target i32 [context], the character that
// follows each.
enum class TextWindows {
  kStrided,  // sample i starts at character i * context
  kEvery,    // sample i starts at character i
};
enum class TextAlphabet {
  kDistinct,  // the sorted distinct bytes of the whole file, numbered from 0
  kBytes,     // 256 bytes, as they are
};
struct TextOptions {
  int64_t context = 64;
  TextWindows windows = TextWindows::kStrided;
  TextAlphabet alphabet = TextAlphabet::kDistinct;
  // The part of the file that is read, as fractions of its length: {.end = 0.9} to train and
  // {.begin = 0.9} for what is held out.
  double begin = 0.0;
  double end = 1.0;
};
DatasetSpec TextFile(std::string_view path, const TextOptions& options = {});

// .npy files, one a field: (field name, path). The first axis counts the samples and must be equal.
DatasetSpec NpyFiles(const std::vector<std::pair<std::string, std::string>>& fields,
                     const SampleRange& range = {});

// Takes the parameters of a spec by name and type; the first wrong, missing or unknown one is the
// error that Finish() returns.
class SpecReader {
 public:
  explicit SpecReader(const DatasetSpec& spec) : spec_(spec), left_(spec.params) {}
  std::string TakeString(const std::string& name);
  int64_t TakeInteger(const std::string& name, int64_t missing);
  uint64_t TakeUnsigned(const std::string& name, uint64_t missing);
  double TakeNumber(const std::string& name, double missing);
  // The index of the value in `choices`; the first is taken if it is missing.
  int TakeChoice(const std::string& name, const std::vector<std::string>& choices);
  SampleRange TakeRange();
  // Of samples that are drawn, not read from a file: both ends known, `limit` of them at most.
  SampleRange TakeDrawnRange(const SampleRange& missing, int64_t limit);
  absl::Status Finish();

 private:
  void Fail(const std::string& name, const std::string& value, const std::string& expected);
  const DatasetSpec& spec_;
  std::map<std::string, std::string> left_;
  absl::Status status_;
};

}  // namespace braid
