#include "runtime/data/text_dataset.h"

#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/array.h"
#include "runtime/base/status.h"
#include "runtime/data/kinds.h"
#include "runtime/files/file.h"

namespace braid {

TextVocabulary::TextVocabulary(std::string characters) : characters_(std::move(characters)) {
  numbers_.fill(-1);
  for (size_t i = 0; i < characters_.size(); ++i) {
    numbers_[static_cast<uint8_t>(characters_[i])] = static_cast<int16_t>(i);
  }
}

TextVocabulary TextVocabulary::Distinct(std::string_view text) {
  std::array<bool, 256> seen{};
  for (char c : text) seen[static_cast<uint8_t>(c)] = true;
  std::string characters;
  for (int byte = 0; byte < 256; ++byte) {
    if (seen[byte]) characters.push_back(static_cast<char>(byte));
  }
  return TextVocabulary(std::move(characters));
}

TextVocabulary TextVocabulary::AllBytes() {
  std::string characters;
  for (int byte = 0; byte < 256; ++byte) characters.push_back(static_cast<char>(byte));
  return TextVocabulary(std::move(characters));
}

absl::StatusOr<std::vector<int32_t>> TextVocabulary::Encode(std::string_view text) const {
  std::vector<int32_t> out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const int number = numbers_[static_cast<uint8_t>(text[i])];
    if (number < 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "character '%s' at position %d does not occur in the text of this vocabulary of %d",
          absl::CHexEscape(std::string(1, text[i])), i, size()));
    }
    out.push_back(number);
  }
  return out;
}

absl::StatusOr<std::string> TextVocabulary::Decode(std::span<const int32_t> tokens) const {
  std::string out;
  out.reserve(tokens.size());
  for (int32_t token : tokens) {
    if (token < 0 || token >= size()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%d is no character of this vocabulary of %d", token, size()));
    }
    out.push_back(characters_[static_cast<size_t>(token)]);
  }
  return out;
}

TextDataset::TextDataset(std::vector<uint8_t> tokens, TextVocabulary vocabulary, int64_t context,
                         int64_t stride)
    : tokens_(std::move(tokens)),
      vocabulary_(std::move(vocabulary)),
      context_(context),
      stride_(stride),
      num_samples_((static_cast<int64_t>(tokens_.size()) - 1 - context) / stride + 1),
      fields_(
          {{"input", DType::kI32, Shape({context})}, {"target", DType::kI32, Shape({context})}}),
      // Tokens are numbers within the vocabulary: other characters may have the same.
      fingerprint_(
          AddToFingerprint(AddToFingerprint(0, std::as_bytes(std::span(tokens_))),
                           std::as_bytes(std::span<const char>(vocabulary_.characters_)))) {}

absl::StatusOr<std::shared_ptr<const TextDataset>> TextDataset::Open(const DatasetSpec& spec) {
  SpecReader params(spec);
  const std::string path = params.TakeString("path");
  const int64_t context = params.TakeInteger("context", TextOptions{}.context);
  const int windows = params.TakeChoice("windows", {"strided", "every"});
  const int alphabet = params.TakeChoice("alphabet", {"distinct", "bytes"});
  const double begin = params.TakeNumber("begin", 0.0);
  const double end = params.TakeNumber("end", 1.0);
  BRAID_RETURN_IF_ERROR(params.Finish());
  if (context < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("text '%s': context is %d, expected 1 or more", path, context));
  }
  if (!(begin >= 0.0 && begin < end && end <= 1.0)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "text '%s': the part from %g to %g was asked for, expected 0 <= begin < end <= 1", path,
        begin, end));
  }
  BRAID_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, int64_t{1} << 36));
  // Rounded alike for every part, so that one part's end is the next one's beginning.
  const auto position = [&](double fraction) {
    return static_cast<size_t>(std::floor(fraction * static_cast<double>(text.size())));
  };
  const std::string_view part =
      std::string_view(text).substr(position(begin), position(end) - position(begin));
  if (static_cast<int64_t>(part.size()) <= context) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "text '%s' is too short: the part from %g to %g has %d of its %d characters, a sample of "
        "context %d takes one more",
        path, begin, end, part.size(), text.size(), context));
  }
  TextVocabulary vocabulary =
      alphabet == 0 ? TextVocabulary::Distinct(text) : TextVocabulary::AllBytes();
  std::vector<uint8_t> tokens(part.size());
  for (size_t i = 0; i < part.size(); ++i) {
    tokens[i] = static_cast<uint8_t>(vocabulary.numbers_[static_cast<uint8_t>(part[i])]);
  }
  return std::shared_ptr<const TextDataset>(new TextDataset(
      std::move(tokens), std::move(vocabulary), context, windows == 0 ? context : 1));
}

absl::Status TextDataset::Read(std::span<const int64_t> samples, int field, DType dtype,
                               void* out) const {
  BRAID_RETURN_IF_ERROR(CheckRead(*this, samples, field));
  auto* next = static_cast<std::byte*>(out);
  for (int64_t sample : samples) {
    const uint8_t* window = tokens_.data() + sample * stride_ + field;
    ConvertElements(DType::kU8, window, dtype, next, context_);
    next += static_cast<size_t>(context_) * SizeOf(dtype);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenText(const DatasetSpec& spec) {
  return TextDataset::Open(spec);
}

}  // namespace braid
