// Drawn patterns: coloured images for machines without data, of any size and number of classes. A
// class is a direction, a wavelength and a colour; an image is that class's wave somewhere along
// its way, brighter or darker, under another class's fainter one and noise. Every number comes from
// (seed, sample), and images are drawn when they are read.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/array.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"
#include "runtime/data/kinds.h"

namespace braid {
namespace {

constexpr int64_t kMaxPatterns = int64_t{1} << 40, kMaxClasses = 1 << 20;
constexpr int64_t kMaxPixels = 1 << 26;  // of one image, all channels
constexpr float kNoise = 0.15f;          // half its range
constexpr double kOther = 0.4;           // how bright the other class's wave is

class PatternDataset final : public Dataset {
 public:
  explicit PatternDataset(const PatternsOptions& options)
      : options_(options),
        fields_({{"image", DType::kF32, Shape({options.channels, options.side, options.side})},
                 {"label", DType::kI32, Shape{}}}),
        sines_(options.classes * options.side),
        cosines_(options.classes * options.side) {
    for (int64_t label = 0; label < options.classes; ++label) {
      const double turns = TurnsOf(label) * std::cos(AngleOf(label)) * TurnsPerPixel();
      for (int64_t x = 0; x < options.side; ++x) {
        const double angle = turns * static_cast<double>(x);
        sines_[label * options.side + x] = static_cast<float>(std::sin(angle));
        cosines_[label * options.side + x] = static_cast<float>(std::cos(angle));
      }
    }
  }

  int64_t num_samples() const override { return options_.count; }
  const std::vector<DatasetField>& fields() const override { return fields_; }
  uint64_t fingerprint() const override { return 0; }  // drawn

  absl::Status Read(std::span<const int64_t> samples, int field, DType dtype,
                    void* out) const override {
    BRAID_RETURN_IF_ERROR(CheckRead(*this, samples, field));
    if (field == 0 && !IsFloating(dtype)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("patterns are numbers about 0: read them as f32, f64, bf16 or f16, not "
                          "as %s",
                          ToString(dtype)));
    }
    auto* next = static_cast<std::byte*>(out);
    for (int64_t sample : samples) {
      const RandomKey key =
          MakeRandomKey(options_.seed, "braid.drawn_patterns", options_.first + sample);
      const int32_t label = ClassAt(key, 0);
      if (field == 1) {
        ConvertElements(DType::kI32, &label, dtype, next, 1);
        next += SizeOf(dtype);
      } else {
        Draw(key, label, dtype, next);
        next += fields_[0].shape.num_elements() * SizeOf(dtype);
      }
    }
    return absl::OkStatus();
  }

 private:
  // Words of a sample's stream: its class, the other one, then two for each wave; then its noise.
  static constexpr uint64_t kWaveWord = 2, kNoiseWord = 64;
  static constexpr int64_t kPiece = 256;  // of a row, drawn at once

  int32_t ClassAt(const RandomKey& key, uint64_t word) const {
    const double drawn = UniformDoubleAt(key, word) * static_cast<double>(options_.classes);
    return static_cast<int32_t>(
        std::min<int64_t>(static_cast<int64_t>(drawn), options_.classes - 1));
  }

  // Directions go once around the half circle; wavelengths repeat every third class.
  double AngleOf(int64_t label) const {
    return std::numbers::pi * static_cast<double>(label) / static_cast<double>(options_.classes);
  }
  static double TurnsOf(int64_t label) { return 2.0 + static_cast<double>(label % 3); }
  double TurnsPerPixel() const { return 2 * std::numbers::pi / static_cast<double>(options_.side); }

  // How much of a class's wave a channel shows: colours go around their circle five times as fast
  // as directions.
  double ColourOf(int64_t label, int64_t channel) const {
    const double turn = 5 * static_cast<double>(label) / static_cast<double>(options_.classes) +
                        static_cast<double>(channel) / static_cast<double>(options_.channels);
    return 0.6 + 0.4 * std::cos(2 * std::numbers::pi * turn);
  }

  // A class's wave over a row: of_sine * sine + of_cosine * cosine of the column's angle.
  struct RowWave {
    const float *sine, *cosine;
    float of_sine, of_cosine;
  };

  void Draw(const RandomKey& key, int32_t label, DType dtype, std::byte* out) const {
    const int64_t side = options_.side;
    const int32_t labels[] = {label, ClassAt(key, 1)};
    std::array<double, 2> phases, heights;
    for (uint64_t w = 0; w < 2; ++w) {
      phases[w] = 2 * std::numbers::pi * UniformDoubleAt(key, kWaveWord + 2 * w);
      heights[w] = 0.5 + 0.5 * UniformDoubleAt(key, kWaveWord + 2 * w + 1);
    }
    heights[1] *= kOther;
    uint64_t word = kNoiseWord;
    for (int64_t c = 0; c < options_.channels; ++c) {
      for (int64_t y = 0; y < side; ++y) {
        std::array<RowWave, 2> waves;
        for (int w = 0; w < 2; ++w) {
          // sin(a + b) = sin(a) cos(b) + cos(a) sin(b), with b constant along a row.
          const double turns = TurnsOf(labels[w]) * std::sin(AngleOf(labels[w])) * TurnsPerPixel();
          const double b = turns * static_cast<double>(y) + phases[w];
          const double height = heights[w] * ColourOf(labels[w], c);
          waves[w] = {sines_.data() + labels[w] * side, cosines_.data() + labels[w] * side,
                      static_cast<float>(height * std::cos(b)),
                      static_cast<float>(height * std::sin(b))};
        }
        for (int64_t x = 0; x < side; x += kPiece) {
          const int64_t n = std::min(kPiece, side - x);
          DrawPiece(key, word, waves, {x, n}, dtype, out);
          word += static_cast<uint64_t>(n);
          out += n * static_cast<int64_t>(SizeOf(dtype));
        }
      }
    }
  }

  struct Columns {
    int64_t first, count;
  };
  static void DrawPiece(const RandomKey& key, uint64_t word, const std::array<RowWave, 2>& waves,
                        Columns columns, DType dtype, std::byte* out) {
    std::array<float, kPiece> piece;
    FillUniform(key, word, static_cast<size_t>(columns.count), piece.data());
    for (int64_t i = 0; i < columns.count; ++i) {
      float value = kNoise * (2 * piece[i] - 1);
      for (const RowWave& wave : waves) {
        value += wave.of_sine * wave.sine[columns.first + i] +
                 wave.of_cosine * wave.cosine[columns.first + i];
      }
      piece[i] = value;
    }
    ConvertElements(DType::kF32, piece.data(), dtype, out, columns.count);
  }

  PatternsOptions options_;
  std::vector<DatasetField> fields_;
  std::vector<float> sines_, cosines_;  // [classes, side]
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> OpenPatterns(const DatasetSpec& spec) {
  SpecReader params(spec);
  PatternsOptions options;
  const SampleRange range = params.TakeDrawnRange({options.first, options.count}, kMaxPatterns);
  options.first = range.first;
  options.count = range.count;
  options.seed = params.TakeUnsigned("seed", options.seed);
  options.channels = params.TakeInteger("channels", options.channels);
  options.side = params.TakeInteger("side", options.side);
  options.classes = params.TakeInteger("classes", options.classes);
  BRAID_RETURN_IF_ERROR(params.Finish());
  const auto fits = [](int64_t value, int64_t limit) { return value >= 1 && value <= limit; };
  if (!fits(options.side, kMaxPixels) || !fits(options.channels, kMaxPixels) ||
      !fits(options.classes, kMaxClasses) ||
      options.side > kMaxPixels / options.side / options.channels ||
      options.side > kMaxPixels / options.classes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "drawn patterns: %d classes of %d channels of %d x %d were asked for; expected 1 to %d "
        "classes, and 1 to %d numbers an image and columns of all classes",
        options.classes, options.channels, options.side, options.side, kMaxClasses, kMaxPixels));
  }
  return std::make_shared<const PatternDataset>(options);
}

}  // namespace braid
