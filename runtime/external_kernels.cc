#include "runtime/external_kernels.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint_saver.h"
#include "runtime/data/sampler.h"
#include "runtime/device/box.h"
#include "runtime/files/checkpoint.h"
#include "runtime/files/checkpoint_part.h"
#include "runtime/files/file.h"
#include "runtime/files/tensor_box.h"
#include "runtime/kernels/check_spec.h"

namespace braid {
namespace {

// Times the steps that a job may have it stays far within 64 bits.
constexpr int64_t kMaxBatch = int64_t{1} << 30;

// In a checkpoint's file; with a tensor's bytes it stays far within 64 bits.
constexpr int64_t kMaxPosition = int64_t{1} << 60;

// Positions of an epoch of a reader, see ReadOptions::last: whole batches, unless it wraps around.
int64_t EpochLength(const KernelSpec& spec, const Dataset& dataset) {
  const int64_t samples = dataset.num_samples();
  if (!spec.attrs.Has("last")) return samples;
  const int64_t batch = spec.attrs.Int("batch");
  const int64_t padding = spec.attrs.String("last") == "pad" ? batch - 1 : 0;
  return (samples + padding) / batch * batch;
}

// Rows [first, first + rows) of every batch of a dataset: the part that this device holds.
class ReadKernel final : public Kernel {
 public:
  ReadKernel(const KernelSpec& spec, std::shared_ptr<const Dataset> dataset)
      : dataset_(std::move(dataset)),
        sampler_(dataset_->num_samples(), {.shuffle = spec.attrs.Bool("shuffle"),
                                           .seed = spec.seed,
                                           .name = spec.attrs.String("key"),
                                           .epoch_length = EpochLength(spec, *dataset_)}),
        batch_(spec.attrs.Int("batch")),
        outputs_(spec.outputs) {
    for (int64_t field : spec.attrs.Ints("fields")) fields_.push_back(static_cast<int>(field));
  }

  absl::Status Run(const KernelRun& run) override {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const OperandSpec& output = outputs_[i];
      const int64_t rows = output.shape()[0];
      if (rows == 0) continue;
      const int64_t first =
          run.step * batch_ + output.region.offset[0] +
          (output.micro_batch_axis == 0 ? run.micro_batch * output.micro_batch_stride : 0);
      if (first != first_ || rows != static_cast<int64_t>(samples_.size())) {
        samples_.resize(rows);
        sampler_.SamplesAt(first, samples_);
        first_ = first;
      }
      BRAID_RETURN_IF_ERROR(dataset_->Read(samples_, fields_[i], output.dtype, run.outputs[i]));
    }
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<const Dataset> dataset_;  // shared with the node's other readers
  Sampler sampler_;
  int64_t batch_;
  std::vector<OperandSpec> outputs_;
  std::vector<int> fields_;
  int64_t first_ = -1;
  std::vector<int64_t> samples_;
};

// How far apart in the whole tensor, in elements, the parts of neighbouring micro-batches lie.
int64_t ElementsPerMicroBatch(const OperandSpec& operand) {
  if (operand.micro_batch_axis < 0) return 0;
  int64_t elements = operand.micro_batch_stride;
  for (int axis = operand.micro_batch_axis + 1; axis < operand.logical.rank(); ++axis) {
    elements *= operand.logical[axis];
  }
  return elements;
}

class InputKernel final : public Kernel {
 public:
  InputKernel(const KernelSpec& spec, const HostIo* host)
      : name_(spec.name),
        output_(spec.outputs[0]),
        host_(host),
        runs_(RunsOf(Region::Whole(output_.logical), output_.region, output_.region)),
        shift_(ElementsPerMicroBatch(output_)) {}

  absl::Status Run(const KernelRun& run) override {
    const Array* fed = host_ == nullptr ? nullptr : host_->Fed(name_);
    if (fed == nullptr) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "input '%s' was not fed; give it in Run({.feeds = {{\"%s\", array}}})", name_, name_));
    }
    if (fed->dtype() != output_.dtype || fed->shape() != output_.logical) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "input '%s' was fed %s%s; the job takes %s%s", name_, ToString(fed->dtype()),
          fed->shape().ToString(), ToString(output_.dtype), output_.logical.ToString()));
    }
    const auto element = static_cast<int64_t>(SizeOf(output_.dtype));
    CopyRuns(runs_, SizeOf(output_.dtype), fed->bytes() + run.micro_batch * shift_ * element,
             run.outputs[0]);
    return absl::OkStatus();
  }

 private:
  std::string name_;
  OperandSpec output_;
  const HostIo* host_;
  BoxRuns runs_;  // of the first micro-batch
  int64_t shift_;
};

class FetchKernel final : public Kernel {
 public:
  FetchKernel(const KernelSpec& spec, HostIo* host)
      : name_(spec.attrs.String("name")),
        input_(spec.inputs[0]),
        host_(host),
        runs_(RunsOf(input_.region, Region::Whole(input_.logical), input_.region)),
        shift_(ElementsPerMicroBatch(input_)) {
    if (input_.micro_batch_axis >= 0 && input_.micro_batch_stride > 0) {
      pieces_ = input_.logical[input_.micro_batch_axis] / input_.micro_batch_stride;
    }
  }

  absl::Status Run(const KernelRun& run) override {
    return host_->Fetched(name_, run.step,
                          {.dtype = input_.dtype,
                           .shape = &input_.logical,
                           .runs = &runs_,
                           .shift = run.micro_batch * shift_,
                           .data = run.inputs[0],
                           .is_last = run.micro_batch + 1 == pieces_});
  }

 private:
  std::string name_;
  OperandSpec input_;
  HostIo* host_;
  BoxRuns runs_;  // of the first micro-batch
  int64_t shift_;
  int64_t pieces_ = 1;
};

// What is read comes to an output, or overwrites the variable that is the only input.
const OperandSpec& ReadOperandOf(const KernelSpec& spec) {
  return spec.outputs.empty() ? spec.inputs[0] : spec.outputs[0];
}
void* ReadMemoryOf(const KernelSpec& spec, const KernelRun& run) {
  return spec.outputs.empty() ? run.inputs[0] : run.outputs[0];
}
TensorBox ReadBoxOf(const KernelSpec& spec) {
  const Region& region = ReadOperandOf(spec).region;
  return {region.offset, region.size.dims()};
}

// This device's box of a checkpoint's tensor.
class ReadCheckpointKernel final : public Kernel {
 public:
  ReadCheckpointKernel(const KernelSpec& spec, std::shared_ptr<const CheckpointReader> reader)
      : spec_(spec), box_(ReadBoxOf(spec)), reader_(std::move(reader)) {}

  absl::Status Run(const KernelRun& run) override {
    return reader_->ReadBox(spec_.attrs.String("tensor"), box_, ReadMemoryOf(spec_, run));
  }

 private:
  const KernelSpec spec_;
  TensorBox box_;
  std::shared_ptr<const CheckpointReader> reader_;  // the job's
};

// This device's box of a tensor whose elements stand one after another in a file.
class ReadFileKernel final : public Kernel {
 public:
  ReadFileKernel(const KernelSpec& spec, std::shared_ptr<const InputFile> file)
      : spec_(spec),
        file_(std::move(file)),
        tensor_{spec.name, ReadOperandOf(spec).dtype, ReadOperandOf(spec).logical},
        offset_(spec.attrs.Int("offset")),
        box_(ReadBoxOf(spec)) {}

  absl::Status Run(const KernelRun& run) override {
    auto* out = static_cast<std::byte*>(ReadMemoryOf(spec_, run));
    const int64_t tensor_end = offset_ + tensor_.num_bytes();
    std::vector<std::byte> window;  // of the file, for short runs
    int64_t begin = 0, end = 0;
    const TensorInFile in = {.path = file_->path(), .tensor = tensor_, .offset = offset_};
    return ForEachRun(in, box_, [&](int64_t position, size_t bytes) -> absl::Status {
      std::byte* const to = std::exchange(out, out + bytes);
      if (bytes >= kWindowBytes) return file_->ReadAt(position, to, bytes);
      if (position + static_cast<int64_t>(bytes) > end) {
        begin = position;
        end = std::min(tensor_end, position + static_cast<int64_t>(kWindowBytes));
        window.resize(kWindowBytes);
        BRAID_RETURN_IF_ERROR(
            file_->ReadAt(begin, window.data(), static_cast<size_t>(end - begin)));
      }
      std::memcpy(to, window.data() + (position - begin), bytes);
      return absl::OkStatus();
    });
  }

 private:
  static constexpr size_t kWindowBytes = 256 << 10;

  const KernelSpec spec_;
  std::shared_ptr<const InputFile> file_;  // the job's
  StoredTensor tensor_;
  int64_t offset_;
  TensorBox box_;
};

// A device's box of a tensor to a checkpoint's file. Devices that hold the same each write about as
// much of it.
class WriteCheckpointKernel final : public Kernel {
 public:
  WriteCheckpointKernel(const KernelSpec& spec, std::shared_ptr<CheckpointPart> part)
      : file_(spec.attrs.String("file")),
        position_(spec.attrs.Int("position")),
        element_(static_cast<int64_t>(SizeOf(spec.inputs[0].dtype))),
        part_(std::move(part)) {
    const OperandSpec& input = spec.inputs[0];
    runs_ = RunsOf(input.region, Region::Whole(input.logical), input.region);
    const int64_t bytes = static_cast<int64_t>(runs_.from.size()) * runs_.run * element_;
    const int64_t units = (bytes + kShareBytes - 1) / kShareBytes;
    begin_ = std::min(bytes, units * spec.replica / spec.replicas * kShareBytes);
    end_ = std::min(bytes, units * (spec.replica + 1) / spec.replicas * kShareBytes);
  }

  absl::Status Run(const KernelRun& run) override {
    const auto* const data = static_cast<const std::byte*>(run.inputs[0]);
    BlockChecksums written;
    const int64_t run_bytes = runs_.run * element_;
    for (int64_t next = begin_; next < end_;) {
      const auto i = static_cast<size_t>(next / run_bytes);
      const int64_t within = next % run_bytes;
      const int64_t bytes = std::min(run_bytes - within, end_ - next);
      BRAID_RETURN_IF_ERROR(part_->Write(file_, position_ + runs_.to[i] * element_ + within,
                                         data + runs_.from[i] * element_ + within,
                                         static_cast<size_t>(bytes), written));
      next += bytes;
    }
    return part_->End(file_, written);
  }

 private:
  static constexpr int64_t kShareBytes = 1 << 20;  // a share is a multiple of it

  const std::string file_;
  const int64_t position_, element_;
  BoxRuns runs_;
  int64_t begin_ = 0, end_ = 0;  // what it writes, in bytes of all runs one after another
  const std::shared_ptr<CheckpointPart> part_;  // the job's
};

// Of what this device holds of each input.
class ReplicaChecksumsKernel final : public Kernel {
 public:
  explicit ReplicaChecksumsKernel(const KernelSpec& spec) {
    for (const OperandSpec& input : spec.inputs) {
      bytes_.push_back(static_cast<size_t>(input.num_elements()) * SizeOf(input.dtype));
    }
  }

  absl::Status Run(const KernelRun& run) override {
    auto* const sums = static_cast<int64_t*>(run.outputs[0]);
    for (size_t i = 0; i < bytes_.size(); ++i) sums[i] = Crc32c(run.inputs[i], bytes_[i]);
    return absl::OkStatus();
  }

 private:
  std::vector<size_t> bytes_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeReplicaChecksums(const KernelSpec& spec) {
  BRAID_RETURN_IF_ERROR(CheckKernelForm(
      {.inputs = spec.inputs.size(), .outputs = 1, .like = {{"devices", int64_t{0}}}}, spec));
  const OperandSpec& output = spec.outputs[0];
  if (output.dtype != DType::kI64 ||
      output.num_elements() != static_cast<int64_t>(spec.inputs.size())) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s '%s': %d inputs on this device, whose part of the output is %s%s; one row of i64 with "
        "a column for each was expected",
        spec.op, spec.name, spec.inputs.size(), std::string(ToString(output.dtype)),
        output.shape().ToString()));
  }
  return std::make_unique<ReplicaChecksumsKernel>(spec);
}

// Each output is some rows of the batch, whole.
absl::Status CheckRead(const KernelSpec& spec) {
  Attrs like = {{"dataset", ""},
                {"fields", std::vector<int64_t>()},
                {"shuffle", false},
                {"key", ""},
                {"batch", int64_t{1}}};
  if (spec.attrs.Has("fingerprint")) like.Set("fingerprint", int64_t{0});
  if (spec.attrs.Has("last")) like.Set("last", "");
  BRAID_RETURN_IF_ERROR(CheckKernelForm({.outputs = spec.outputs.size(), .like = like}, spec));
  const int64_t batch = spec.attrs.Int("batch");
  bool is_right =
      batch >= 1 && batch <= kMaxBatch && spec.attrs.Ints("fields").size() == spec.outputs.size();
  for (const OperandSpec& output : spec.outputs) {
    is_right = is_right && output.logical.rank() > 0 && output.logical[0] == batch &&
               output.micro_batch_axis <= 0;
    for (int axis = 1; axis < output.logical.rank(); ++axis) {
      is_right = is_right && output.shape()[axis] == output.logical[axis];
    }
  }
  if (is_right) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s '%s': %d outputs are no whole rows of the fields of a batch (%s)",
                      spec.op, spec.name, spec.outputs.size(), spec.attrs.ToString()));
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeRead(const KernelSpec& spec, DatasetCache* datasets) {
  BRAID_RETURN_IF_ERROR(CheckRead(spec));
  BRAID_ASSIGN_OR_RETURN(const DatasetSpec dataset,
                         DatasetSpec::Parse(spec.attrs.String("dataset")));
  BRAID_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> opened, datasets->Open(dataset));
  if (opened->num_samples() < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s '%s': the dataset has no samples", spec.op, spec.name));
  }
  const std::vector<int64_t>& fields = spec.attrs.Ints("fields");
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    if (fields[i] < 0 || fields[i] >= static_cast<int64_t>(opened->fields().size())) {
      return absl::InvalidArgumentError(
          absl::StrFormat("field %d of this node's copy of the data, which has %d; put the same "
                          "files on every node",
                          fields[i], opened->fields().size()));
    }
    // The job was recorded against the master's copy of the data.
    const DatasetField& field = opened->fields()[fields[i]];
    const std::vector<int64_t>& dims = spec.outputs[i].logical.dims();
    const Shape sample(std::vector<int64_t>(dims.begin() + 1, dims.end()));
    if (field.shape != sample) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "field '%s' of this node's copy of the data has shape %s, the master's has %s; put the "
          "same files on every node",
          field.name, field.shape.ToString(), sample.ToString()));
    }
  }
  const bool is_compared = spec.attrs.Has("fingerprint");
  if (is_compared &&
      static_cast<uint64_t>(spec.attrs.Int("fingerprint")) != opened->fingerprint()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "this node's copy of the data '%s' is another than the master's: it has %d samples and the "
        "fingerprint %x, the master's has the fingerprint %x; put the same files on every node",
        spec.attrs.String("dataset"), opened->num_samples(), opened->fingerprint(),
        static_cast<uint64_t>(spec.attrs.Int("fingerprint"))));
  }
  return std::make_unique<ReadKernel>(spec, std::move(opened));
}

// What a job reads from, by path: each is opened once on a node, however many variables and
// devices it has.
using Checkpoints = std::map<std::string, std::shared_ptr<const CheckpointReader>>;

absl::StatusOr<std::shared_ptr<const CheckpointReader>> OpenCheckpoint(const std::string& path,
                                                                       Checkpoints& opened) {
  if (const auto found = opened.find(path); found != opened.end()) return found->second;
  BRAID_ASSIGN_OR_RETURN(std::shared_ptr<const CheckpointReader> reader,
                         CheckpointReader::Open(path));
  return opened[path] = std::move(reader);
}

absl::Status CheckReadForm(Attrs like, const KernelSpec& spec) {
  const bool overwrites = absl::EndsWith(spec.op, "_into");
  return CheckKernelForm({.inputs = overwrites ? size_t{1} : size_t{0},
                          .outputs = overwrites ? size_t{0} : size_t{1},
                          .like = std::move(like)},
                         spec);
}

// All that it will read is checked here, before any node begins: a checkpoint that is damaged
// changes no variable.
absl::StatusOr<std::unique_ptr<Kernel>> MakeReadCheckpoint(const KernelSpec& spec,
                                                           Checkpoints& opened) {
  BRAID_RETURN_IF_ERROR(
      CheckReadForm({{"directory", ""}, {"tensor", ""}, {"identity", int64_t{0}}}, spec));
  BRAID_ASSIGN_OR_RETURN(std::shared_ptr<const CheckpointReader> reader,
                         OpenCheckpoint(spec.attrs.String("directory"), opened));
  if (reader->identity() != spec.attrs.Int("identity")) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "this node's '%s' is another checkpoint than the master's: the checksum of its %s is %08x, "
        "the master's is %08x; put the same files on every node",
        reader->path(), kChecksumsFile, reader->identity(), spec.attrs.Int("identity")));
  }
  const std::string& tensor = spec.attrs.String("tensor");
  BRAID_ASSIGN_OR_RETURN(const StoredTensor info, reader->Info(tensor));
  const OperandSpec& variable = ReadOperandOf(spec);
  if (info.dtype != variable.dtype || info.shape != variable.logical) {
    return absl::FailedPreconditionError(
        absl::StrFormat("tensor '%s' of %s is %s%s, the variable is %s%s", info.name,
                        reader->path(), std::string(ToString(info.dtype)), info.shape.ToString(),
                        std::string(ToString(variable.dtype)), variable.logical.ToString()));
  }
  BRAID_RETURN_IF_ERROR(reader->Verify(tensor, ReadBoxOf(spec)));
  return std::make_unique<ReadCheckpointKernel>(spec, std::move(reader));
}

using Files = std::map<std::string, std::shared_ptr<const InputFile>>;

absl::StatusOr<std::unique_ptr<Kernel>> MakeReadFile(const KernelSpec& spec, Files& opened) {
  BRAID_RETURN_IF_ERROR(CheckReadForm({{"path", ""}, {"offset", int64_t{0}}}, spec));
  const std::string& path = spec.attrs.String("path");
  std::shared_ptr<const InputFile>& file = opened[path];
  if (file == nullptr) {
    BRAID_ASSIGN_OR_RETURN(InputFile made, InputFile::Open(path));
    file = std::make_shared<const InputFile>(std::move(made));
  }
  const int64_t offset = spec.attrs.Int("offset");
  const OperandSpec& variable = ReadOperandOf(spec);
  const int64_t bytes =
      variable.logical.num_elements() * static_cast<int64_t>(SizeOf(variable.dtype));
  if (offset < 0 || offset > kMaxPosition || bytes > file->size() - offset) {
    return absl::OutOfRangeError(
        absl::StrFormat("%s '%s' reads %d bytes of '%s' from byte %d on; it has %d", spec.op,
                        spec.name, bytes, path, offset, file->size()));
  }
  return std::make_unique<ReadFileKernel>(spec, file);
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeWriteCheckpoint(const KernelSpec& spec,
                                                            const ExternalContext& context,
                                                            std::shared_ptr<CheckpointPart>& part) {
  BRAID_RETURN_IF_ERROR(CheckKernelForm(
      {.inputs = 1,
       .like = {{"directory", ""}, {"save", int64_t{0}}, {"file", ""}, {"position", int64_t{0}}}},
      spec));
  const std::string& file = spec.attrs.String("file");
  const int64_t position = spec.attrs.Int("position");
  if (position < 0 || position > kMaxPosition || file.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s '%s' writes to '%s' from byte %d on; a file's plain name and a position of 0 to %d "
        "were expected",
        spec.op, spec.name, file, position, kMaxPosition));
  }
  if (part == nullptr) {
    BRAID_ASSIGN_OR_RETURN(
        part, CheckpointPart::Open({.directory = spec.attrs.String("directory"),
                                    .save = spec.attrs.Int("save"),
                                    .name = PartName(context.node),
                                    .on_written = [saver = context.saver](auto written) {
                                      saver->Finish(std::move(written));
                                    }}));
  }
  BRAID_RETURN_IF_ERROR(part->Expect(file));
  return std::make_unique<WriteCheckpointKernel>(spec, part);
}

}  // namespace

absl::Status RegisterExternalKernels(const ExternalContext& context, KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register(
      "read",
      [datasets = context.datasets](const KernelSpec& spec) { return MakeRead(spec, datasets); }));
  BRAID_RETURN_IF_ERROR(registry.Register(
      "input",
      [host = context.host](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        BRAID_RETURN_IF_ERROR(CheckKernelForm({.outputs = 1}, spec));
        return std::make_unique<InputKernel>(spec, host);
      }));
  // Pieces are joined by name. Shared by the copies of this function.
  const auto fetched = std::make_shared<std::set<std::string>>();
  BRAID_RETURN_IF_ERROR(registry.Register(
      "fetch",
      [host = context.host,
       fetched](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        BRAID_RETURN_IF_ERROR(CheckKernelForm({.inputs = 1, .like = {{"name", ""}}}, spec));
        if (!fetched->insert(spec.attrs.String("name")).second) {
          return absl::AlreadyExistsError(
              absl::StrFormat("'%s' is fetched twice", spec.attrs.String("name")));
        }
        return std::make_unique<FetchKernel>(spec, host);
      }));
  const auto checkpoints = std::make_shared<Checkpoints>();
  const auto files = std::make_shared<Files>();
  for (const char* form : {"", "_into"}) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        absl::StrCat("read_checkpoint", form),
        [checkpoints](const KernelSpec& spec) { return MakeReadCheckpoint(spec, *checkpoints); }));
    BRAID_RETURN_IF_ERROR(
        registry.Register(absl::StrCat("read_file", form),
                          [files](const KernelSpec& spec) { return MakeReadFile(spec, *files); }));
  }
  BRAID_RETURN_IF_ERROR(registry.Register("replica_checksums", MakeReplicaChecksums));
  // A job writes one part of one checkpoint.
  const auto part = std::make_shared<std::shared_ptr<CheckpointPart>>();
  return registry.Register("write_checkpoint", [part, context](const KernelSpec& spec) {
    return MakeWriteCheckpoint(spec, context, *part);
  });
}

}  // namespace braid
