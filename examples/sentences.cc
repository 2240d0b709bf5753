#include "examples/sentences.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

namespace examples {
namespace {

using braid::DType;

constexpr int64_t kWordsOfTopic = 8;
constexpr int64_t kMaxCount = int64_t{1} << 40, kMaxTime = 1 << 20, kMaxVocabulary = 1 << 30;

class SentencesDataset final : public braid::Dataset {
 public:
  explicit SentencesDataset(const SentencesOptions& options)
      : options_(options), fields_({{"tokens", DType::kI32, braid::Shape({options.time})}}) {}

  int64_t num_samples() const override { return options_.count; }
  const std::vector<braid::DatasetField>& fields() const override { return fields_; }
  uint64_t fingerprint() const override { return 0; }  // made here

  absl::Status Read(std::span<const int64_t> samples, int field, DType dtype,
                    void* out) const override {
    BRAID_RETURN_IF_ERROR(CheckRead(*this, samples, field));
    if (dtype != DType::kI32) {
      return absl::InvalidArgumentError(
          absl::StrFormat("sentences are tokens: read them as i32, not as %s", ToString(dtype)));
    }
    auto* token = static_cast<int32_t*>(out);
    for (int64_t sample : samples) {
      const braid::RandomKey key = braid::MakeRandomKey(
          options_.seed, braid::StableHash("examples.sentences"), options_.first + sample);
      for (uint64_t half = 0; half < 2; ++half) {
        const auto draw = [&](uint64_t word, int64_t below) {
          const uint64_t random = braid::Uint32At(key, 2 * half + word);
          return static_cast<int64_t>(random * static_cast<uint64_t>(below) >> 32);
        };
        const int64_t topic = draw(0, options_.vocabulary / kWordsOfTopic);
        const int64_t phase = draw(1, kWordsOfTopic);
        for (int64_t place = 0; place < options_.time / 2; ++place) {
          *token++ = static_cast<int32_t>(topic * kWordsOfTopic + (phase + place) % kWordsOfTopic);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  SentencesOptions options_;
  std::vector<braid::DatasetField> fields_;
};

absl::StatusOr<std::shared_ptr<const braid::Dataset>> OpenSentences(
    const braid::DatasetSpec& spec) {
  braid::SpecReader params(spec);
  SentencesOptions options;
  const braid::SampleRange range = params.TakeDrawnRange({options.first, options.count}, kMaxCount);
  options.first = range.first;
  options.count = range.count;
  options.seed = params.TakeUnsigned("seed", options.seed);
  options.time = params.TakeInteger("time", options.time);
  options.vocabulary = params.TakeInteger("vocabulary", options.vocabulary);
  BRAID_RETURN_IF_ERROR(params.Finish());
  if (options.time < 2 || options.time > kMaxTime || options.time % 2 != 0 ||
      options.vocabulary < kWordsOfTopic || options.vocabulary > kMaxVocabulary) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "sentences of %d tokens below %d were asked for; expected an even number from 2 to %d, and "
        "%d to %d",
        options.time, options.vocabulary, kMaxTime, kWordsOfTopic, kMaxVocabulary));
  }
  return std::make_shared<const SentencesDataset>(options);
}

}  // namespace

braid::DatasetSpec Sentences(const SentencesOptions& options) {
  return {"sentences",
          {{"first", absl::StrCat(options.first)},
           {"count", absl::StrCat(options.count)},
           {"seed", absl::StrCat(options.seed)},
           {"time", absl::StrCat(options.time)},
           {"vocabulary", absl::StrCat(options.vocabulary)}}};
}

braid::DatasetKinds KindsWithSentences() {
  braid::DatasetKinds kinds;
  CHECK(kinds.Register("sentences", OpenSentences).ok());
  return kinds;
}

}  // namespace examples
