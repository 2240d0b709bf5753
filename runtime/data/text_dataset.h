// A text file as windows of characters, to learn the next one.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/dataset.h"

namespace braid {

// Characters and their numbers. Only bytes: a UTF-8 file is a sequence of bytes like any other.
class TextVocabulary {
 public:
  // The sorted distinct bytes of `text`.
  static TextVocabulary Distinct(std::string_view text);
  static TextVocabulary AllBytes();

  int size() const { return static_cast<int>(characters_.size()); }
  // INVALID_ARGUMENT names the first character that is not in the vocabulary.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const;
  // INVALID_ARGUMENT names the first number that is no character's.
  absl::StatusOr<std::string> Decode(std::span<const int32_t> tokens) const;

 private:
  explicit TextVocabulary(std::string characters);
  friend class TextDataset;
  std::string characters_;            // number -> byte
  std::array<int16_t, 256> numbers_;  // byte -> number, -1 if absent
};

class TextDataset final : public Dataset {
 public:
  static absl::StatusOr<std::shared_ptr<const TextDataset>> Open(const DatasetSpec& spec);

  int64_t memory_bytes() const override { return static_cast<int64_t>(tokens_.size()); }
  int64_t num_samples() const override { return num_samples_; }
  const std::vector<DatasetField>& fields() const override { return fields_; }
  absl::Status Read(std::span<const int64_t> samples, int field, DType dtype,
                    void* out) const override;
  uint64_t fingerprint() const override { return fingerprint_; }
  const TextVocabulary& vocabulary() const { return vocabulary_; }

 private:
  TextDataset(std::vector<uint8_t> tokens, TextVocabulary vocabulary, int64_t context,
              int64_t stride);
  std::vector<uint8_t> tokens_;
  TextVocabulary vocabulary_;
  int64_t context_;
  int64_t stride_;
  int64_t num_samples_;
  std::vector<DatasetField> fields_;
  uint64_t fingerprint_;
};

}  // namespace braid
