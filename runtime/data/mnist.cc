// MNIST's pair of IDX files as a dataset.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/data/idx.h"
#include "runtime/data/image_dataset.h"
#include "runtime/data/kinds.h"

namespace braid {
namespace {

// As the original site named them, and as some copies do.
std::vector<std::string> Candidates(const std::string& files, const std::string& what) {
  return {files + "-" + what + "-ubyte", files + "-" + what + "-ubyte.gz",
          files + "-" + what.substr(0, what.find('-')) + "." + what.substr(what.find('-') + 1) +
              "-ubyte"};
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> OpenMnist(const DatasetSpec& spec) {
  SpecReader params(spec);
  const std::string files = params.TakeString("files");
  const SampleRange range = params.TakeRange();
  BRAID_RETURN_IF_ERROR(params.Finish());
  BRAID_ASSIGN_OR_RETURN(IdxFile images, ReadIdx(Candidates(files, "images-idx3"), 3));
  BRAID_ASSIGN_OR_RETURN(IdxFile labels, ReadIdx(Candidates(files, "labels-idx1"), 1));
  const int64_t total = images.dims[0];
  if (total != labels.dims[0]) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' holds %d images but '%s' holds %d labels: they do not belong together", images.path,
        total, labels.path, labels.dims[0]));
  }
  const int64_t count = range.count == -1 ? std::max<int64_t>(total - range.first, 0) : range.count;
  if (count == 0 || range.first > total || count > total - range.first) {
    return absl::OutOfRangeError(
        absl::StrFormat("'%s' holds %d images; samples from %d, %d of them, were asked for",
                        images.path, total, range.first, count));
  }
  const int64_t pixels = images.dims[1] * images.dims[2];
  const auto part = [&](const std::vector<uint8_t>& values, int64_t width) {
    const auto begin = values.begin() + range.first * width;
    return std::vector<uint8_t>(begin, begin + count * width);
  };
  return std::make_shared<const ImageDataset>(part(images.values, pixels), part(labels.values, 1),
                                              pixels);
}

}  // namespace braid
