// Labelled grey images in memory, a byte a pixel: what MNIST files and drawn digits become.
#pragma once

#include <vector>

#include "runtime/data/dataset.h"

namespace braid {

class ImageDataset final : public Dataset {
 public:
  // `pixels` holds labels.size() images of `pixels_per_image` bytes.
  ImageDataset(std::vector<uint8_t> pixels, std::vector<uint8_t> labels, int64_t pixels_per_image);

  // Image f32 [pixels_per_image], label i32 [].
  static std::vector<DatasetField> FieldsOf(int64_t pixels_per_image);

  int64_t memory_bytes() const override {
    return static_cast<int64_t>(pixels_.size() + labels_.size());
  }
  int64_t num_samples() const override { return static_cast<int64_t>(labels_.size()); }
  const std::vector<DatasetField>& fields() const override { return fields_; }
  uint64_t fingerprint() const override { return fingerprint_; }
  // Field 0, the image: pixel / 255 as f32, f64, bf16 or f16, or the byte itself as u8.
  // Field 1, the label.
  absl::Status Read(std::span<const int64_t> samples, int field, DType dtype,
                    void* out) const override;

 private:
  std::vector<uint8_t> pixels_;
  std::vector<uint8_t> labels_;
  int64_t pixels_per_image_;
  std::vector<DatasetField> fields_;
  uint64_t fingerprint_;
};

}  // namespace braid
