#include "runtime/data/image_dataset.h"

#include <glog/logging.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/array.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

template <typename T>
void Scale(const uint8_t* pixels, int64_t n, T* out) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, double>) {
      out[i] = pixels[i] / 255.0;
    } else {
      out[i] = static_cast<T>(static_cast<float>(pixels[i]) / 255.0f);
    }
  }
}

}  // namespace

ImageDataset::ImageDataset(std::vector<uint8_t> pixels, std::vector<uint8_t> labels,
                           int64_t pixels_per_image)
    : pixels_(std::move(pixels)),
      labels_(std::move(labels)),
      pixels_per_image_(pixels_per_image),
      fields_(FieldsOf(pixels_per_image)),
      fingerprint_(AddToFingerprint(AddToFingerprint(0, std::as_bytes(std::span(pixels_))),
                                    std::as_bytes(std::span(labels_)))) {
  CHECK_EQ(pixels_.size(), labels_.size() * static_cast<size_t>(pixels_per_image));
}

std::vector<DatasetField> ImageDataset::FieldsOf(int64_t pixels_per_image) {
  return {{"image", DType::kF32, Shape({pixels_per_image})}, {"label", DType::kI32, Shape{}}};
}

absl::Status ImageDataset::Read(std::span<const int64_t> samples, int field, DType dtype,
                                void* out) const {
  BRAID_RETURN_IF_ERROR(CheckRead(*this, samples, field));
  auto* next = static_cast<std::byte*>(out);
  if (field == 1) {
    for (int64_t sample : samples) {
      ConvertElements(DType::kU8, &labels_[sample], dtype, next, 1);
      next += SizeOf(dtype);
    }
    return absl::OkStatus();
  }
  if (!IsFloating(dtype) && dtype != DType::kU8) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "images are numbers in [0, 1]: read them as f32, f64, bf16 or f16 (or as the bytes 0..255: "
        "u8), not as %s",
        ToString(dtype)));
  }
  for (int64_t sample : samples) {
    const uint8_t* pixels = pixels_.data() + sample * pixels_per_image_;
    VisitDType(dtype, [&]<typename T>(std::type_identity<T>) {
      if constexpr (std::is_same_v<T, uint8_t>) {
        std::memcpy(next, pixels, static_cast<size_t>(pixels_per_image_));
      } else if constexpr (!std::is_integral_v<T>) {
        Scale(pixels, pixels_per_image_, reinterpret_cast<T*>(next));
      }
    });
    next += static_cast<size_t>(pixels_per_image_) * SizeOf(dtype);
  }
  return absl::OkStatus();
}

}  // namespace braid
