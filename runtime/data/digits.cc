// Drawn digits, for machines without data: each digit is a few strokes of a pen, moved, turned,
// sheared and wobbled at random, on noisy paper. Every number comes from (seed, sample), so a node
// draws the samples that it reads, when it reads them, and all nodes agree.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <mutex>
#include <numbers>
#include <utility>
#include <vector>

#include "runtime/base/philox.h"
#include "runtime/base/status.h"
#include "runtime/data/image_dataset.h"
#include "runtime/data/kinds.h"

namespace braid {
namespace {

constexpr int kSide = 28;
constexpr int kPixels = kSide * kSide;
constexpr int64_t kMaxDigits = int64_t{1} << 24;

struct Point {
  double x, y;  // in the unit square, y downwards
};

// An arc of an ellipse about (x, y), or a line from (x, y) by (dx, dy): rx = dx, ry = dy.
struct Stroke {
  bool is_arc;
  double x, y, rx, ry;
  double from = 0, to = 0;  // degrees, clockwise from the right
};

constexpr Stroke Arc(double x, double y, double rx, double ry, double from, double to) {
  return {true, x, y, rx, ry, from, to};
}
constexpr Stroke Line(double x0, double y0, double x1, double y1) {
  return {false, x0, y0, x1 - x0, y1 - y0};
}

std::vector<Stroke> StrokesOf(int digit) {
  switch (digit) {
    case 0:
      return {Arc(.5, .5, .28, .4, 0, 360)};
    case 1:
      return {Line(.35, .25, .52, .1), Line(.52, .1, .52, .9)};
    case 2:
      return {Arc(.5, .32, .25, .22, 190, 400), Line(.69, .46, .25, .9), Line(.25, .9, .77, .9)};
    case 3:
      return {Arc(.47, .3, .24, .2, 200, 450), Arc(.47, .7, .27, .2, 270, 520)};
    case 4:
      return {Line(.6, .1, .22, .62), Line(.22, .62, .8, .62), Line(.62, .3, .62, .92)};
    case 5:
      return {Line(.72, .1, .32, .1), Line(.32, .1, .3, .48), Arc(.48, .65, .26, .24, 225, 500)};
    case 6:
      return {Arc(.5, .67, .24, .23, 0, 360), Line(.65, .1, .42, .28), Line(.42, .28, .28, .5),
              Line(.28, .5, .26, .67)};
    case 7:
      return {Line(.24, .12, .76, .12), Line(.76, .12, .42, .9)};
    case 8:
      return {Arc(.5, .3, .2, .2, 0, 360), Arc(.5, .7, .25, .21, 0, 360)};
    default:
      return {Arc(.5, .33, .23, .23, 0, 360), Line(.73, .33, .7, .6), Line(.7, .6, .6, .9)};
  }
}

std::vector<Point> PointsOf(const Stroke& stroke) {
  if (!stroke.is_arc) return {{stroke.x, stroke.y}, {stroke.x + stroke.rx, stroke.y + stroke.ry}};
  constexpr double kDegreesPerPiece = 24;
  const int pieces = static_cast<int>(std::ceil((stroke.to - stroke.from) / kDegreesPerPiece));
  std::vector<Point> points;
  for (int i = 0; i <= pieces; ++i) {
    const double degrees = stroke.from + (stroke.to - stroke.from) * i / pieces;
    const double angle = degrees * std::numbers::pi / 180;
    points.push_back(
        {stroke.x + stroke.rx * std::cos(angle), stroke.y + stroke.ry * std::sin(angle)});
  }
  return points;
}

// The random numbers of one sample: words 0.. shape it, words from kNoiseWord on are its noise.
class SampleRandom {
 public:
  static constexpr uint64_t kNoiseWord = 1024;
  SampleRandom(uint64_t seed, int64_t sample)
      : key_(MakeRandomKey(seed, "braid.drawn_digits", sample)) {}
  double Between(double low, double high) { return low + (high - low) * UniformAt(key_, next_++); }
  void FillNoise(std::span<float> out) const {
    FillNormal(key_, kNoiseWord, out.size(), out.data());
  }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

// Lowers each pixel's squared distance to the pen's path, near the segment a-b.
void DrawSegment(Point a, Point b, double reach, std::span<float> squared_distances) {
  const auto first = [&](double low) { return std::max(0, static_cast<int>(low - reach)); };
  const auto last = [&](double high) {
    return std::min(kSide - 1, static_cast<int>(high + reach + 1));
  };
  const double dx = b.x - a.x, dy = b.y - a.y;
  const double scale = 1.0 / std::max(dx * dx + dy * dy, 1e-12);
  for (int row = first(std::min(a.y, b.y)); row <= last(std::max(a.y, b.y)); ++row) {
    for (int column = first(std::min(a.x, b.x)); column <= last(std::max(a.x, b.x)); ++column) {
      const double px = column + 0.5 - a.x, py = row + 0.5 - a.y;
      const double along = std::clamp((px * dx + py * dy) * scale, 0.0, 1.0);
      const double ex = px - along * dx, ey = py - along * dy;
      float& nearest = squared_distances[static_cast<size_t>(row * kSide + column)];
      nearest = std::min(nearest, static_cast<float>(ex * ex + ey * ey));
    }
  }
}

uint8_t DrawDigit(uint64_t seed, int64_t sample, std::span<uint8_t> pixels) {
  SampleRandom random(seed, sample);
  const int digit = static_cast<int>(random.Between(0, 10));
  const double angle = random.Between(-0.26, 0.26);
  const double shear = random.Between(-0.25, 0.25);
  const double width = random.Between(15, 21), height = random.Between(17, 22);  // pixels
  const double center_x = kSide / 2.0 + random.Between(-2.5, 2.5);
  const double center_y = kSide / 2.0 + random.Between(-2.5, 2.5);
  const double pen = random.Between(0.7, 1.5);  // half its width, in pixels
  const double ink = random.Between(0.75, 1.0);
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const auto place = [&](Point p) {
    constexpr double kWobble = 0.018;
    const double x = p.x - 0.5 + random.Between(-kWobble, kWobble);
    const double y = p.y - 0.5 + random.Between(-kWobble, kWobble);
    const double u = (x + shear * y) * width, v = y * height;
    return Point{center_x + cosine * u - sine * v, center_y + sine * u + cosine * v};
  };

  std::array<float, kPixels> squared_distances;
  squared_distances.fill(1e6f);
  for (const Stroke& stroke : StrokesOf(digit)) {
    const std::vector<Point> points = PointsOf(stroke);
    Point from = place(points[0]);
    for (size_t i = 1; i < points.size(); ++i) {
      const Point to = place(points[i]);
      DrawSegment(from, to, pen + 1, squared_distances);
      from = to;
    }
  }
  std::array<float, kPixels> noise;
  random.FillNoise(noise);
  for (int i = 0; i < kPixels; ++i) {
    // The pen's edge is a pixel wide.
    const double cover = std::clamp(pen + 0.5 - std::sqrt(squared_distances[i]), 0.0, 1.0);
    const double value = ink * cover + 0.06 * noise[i];
    pixels[static_cast<size_t>(i)] =
        static_cast<uint8_t>(std::lround(255 * std::clamp(value, 0.0, 1.0)));
  }
  return static_cast<uint8_t>(digit);
}

// Draws a block of samples when one of them is first read, and keeps it.
class DigitDataset final : public Dataset {
 public:
  explicit DigitDataset(const DigitsOptions& options)
      : options_(options),
        blocks_(static_cast<size_t>((options.count + kDigitsAtOnce - 1) / kDigitsAtOnce)) {}

  // Once all have been read.
  int64_t memory_bytes() const override { return options_.count * (kPixels + 1); }
  int64_t num_samples() const override { return options_.count; }
  const std::vector<DatasetField>& fields() const override { return fields_; }
  uint64_t fingerprint() const override { return 0; }  // drawn

  absl::Status Read(std::span<const int64_t> samples, int field, DType dtype,
                    void* out) const override {
    BRAID_RETURN_IF_ERROR(CheckRead(*this, samples, field));
    const int64_t bytes = fields_[static_cast<size_t>(field)].shape.num_elements() *
                          static_cast<int64_t>(SizeOf(dtype));
    auto* next = static_cast<std::byte*>(out);
    for (int64_t sample : samples) {
      const int64_t in_block = sample % kDigitsAtOnce;
      BRAID_RETURN_IF_ERROR(
          BlockAt(sample / kDigitsAtOnce).Read({&in_block, 1}, field, dtype, next));
      next += bytes;
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kDigitsAtOnce = 64;
  struct Block {
    std::once_flag drawn;
    std::unique_ptr<const ImageDataset> images;
  };

  const ImageDataset& BlockAt(int64_t block) const {
    Block& found = blocks_[static_cast<size_t>(block)];
    std::call_once(found.drawn, [&] {
      const int64_t first = block * kDigitsAtOnce;
      const auto count = static_cast<size_t>(std::min(kDigitsAtOnce, options_.count - first));
      std::vector<uint8_t> pixels(count * kPixels), labels(count);
      for (size_t i = 0; i < count; ++i) {
        labels[i] = DrawDigit(options_.seed, options_.first + first + static_cast<int64_t>(i),
                              std::span(pixels).subspan(i * kPixels, kPixels));
      }
      found.images =
          std::make_unique<const ImageDataset>(std::move(pixels), std::move(labels), kPixels);
    });
    return *found.images;
  }

  DigitsOptions options_;
  std::vector<DatasetField> fields_ = ImageDataset::FieldsOf(kPixels);
  mutable std::vector<Block> blocks_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> OpenDigits(const DatasetSpec& spec) {
  SpecReader params(spec);
  DigitsOptions options;
  const SampleRange range = params.TakeDrawnRange({options.first, options.count}, kMaxDigits);
  options.first = range.first;
  options.count = range.count;
  options.seed = params.TakeUnsigned("seed", options.seed);
  BRAID_RETURN_IF_ERROR(params.Finish());
  return std::make_shared<const DigitDataset>(options);
}

}  // namespace braid
