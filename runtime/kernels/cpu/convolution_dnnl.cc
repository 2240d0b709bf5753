// Convolution by oneDNN, in the layouts that it prefers. Where these are not the operands' own, as
// they mostly are if these come in blocks of channels, images are reordered a few at a time: their
// copies stay in the cache, and the memory that a kernel keeps does not grow with the batch.
// Weights are reordered once a run, or once and for all while nobody writes to them.
#include <glog/logging.h>
#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/kernels/cpu/convolution.h"
#include "runtime/kernels/cpu/dnnl_call.h"
#include "runtime/kernels/cpu/dnnl_version.h"
#include "runtime/kernels/cpu/integer_products.h"
#include "runtime/kernels/cpu/weight_blocks.h"

namespace braid::cpu {
namespace {

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;

// Of the images that one call takes, x and y together.
constexpr int64_t kChunkBytes = 2 << 20;

// The largest number of images that divides the batch and keeps each thread's share within bounds.
int64_t ImagesAtOnce(const ConvolutionShape& shape) {
  const auto bytes = static_cast<int64_t>(SizeOf(shape.dtype));
  const int64_t image = (shape.x_elements() + shape.y_elements()) * bytes;
  const int64_t limit = std::max<int64_t>(1, kChunkBytes / image) * shape.threads;
  for (int64_t images = std::min(limit, shape.batch); images > 1; --images) {
    if (shape.batch % images == 0) return images;
  }
  return 1;
}

memory::desc Blocked(const memory::dims& dims, memory::data_type type, int64_t channel_block) {
  if (channel_block == compiler::kWholeBlock) {
    // Channels first among the axes, and last in memory.
    memory::dims strides(dims.size(), 1);
    int64_t step = dims[1];
    for (size_t i = dims.size() - 1; i > 1; --i) {
      strides[i] = step;
      step *= dims[i];
    }
    strides[0] = step;
    return memory::desc(dims, type, strides);
  }
  using Tag = memory::format_tag;
  const bool is_wide = channel_block == compiler::kWideBlock;
  const Tag tags[] = {is_wide ? Tag::nCw16c : Tag::nCw8c, is_wide ? Tag::nChw16c : Tag::nChw8c,
                      is_wide ? Tag::nCdhw16c : Tag::nCdhw8c};
  return memory::desc(dims, type, tags[dims.size() - 3]);
}

memory::desc Any(const memory::dims& dims, memory::data_type type) {
  return memory::desc(dims, type, memory::format_tag::any);
}

dnnl::primitive_attr UserScratch() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// Copies one memory into another of its own layout and type, or adds it to what is there: weights
// by code of ours, the rest by oneDNN's.
class Reorder {
 public:
  Reorder() = default;
  // Throws dnnl::error if there is no such primitive.
  Reorder(const memory::desc& from, const memory::desc& to, const dnnl::engine& engine,
          bool adds = false) {
    dnnl::primitive_attr attributes = UserScratch();
    if (adds) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    } else {
      to_blocks_ = WeightBlocks::Of(from, to);
      from_blocks_ = WeightBlocks::Of(to, from);
    }
    description_ = dnnl::reorder::primitive_desc(engine, from, engine, to, attributes);
  }

  int64_t own_bytes() const {
    return static_cast<int64_t>(description_.scratchpad_desc().get_size());
  }
  void Allocate(const memory& from, const memory& to, const dnnl::engine& engine) {
    from_ = from;
    to_ = to;
    call_ = DnnlCall(dnnl::reorder(description_),
                     {{DNNL_ARG_FROM, from},
                      {DNNL_ARG_TO, to},
                      {DNNL_ARG_SCRATCHPAD, memory(description_.scratchpad_desc(), engine)}});
  }

  void Run(const dnnl::stream& stream) const {
    if (!to_blocks_ && !from_blocks_) return call_.Run(stream);
    const auto* from = static_cast<const float*>(from_.get_data_handle());
    auto* to = static_cast<float*>(to_.get_data_handle());
    const int threads = omp_get_max_threads();  // as the kernel has set it
    if (to_blocks_) return to_blocks_->Block(from, to, threads);
    from_blocks_->Unblock(from, to, threads);
  }

 private:
  std::optional<WeightBlocks> to_blocks_, from_blocks_;
  memory from_, to_;
  dnnl::reorder::primitive_desc description_;
  DnnlCall call_;
};

// An operand as it lies in the tensor, and as the primitive wants it. Memory of its own and a
// reorder only where the two differ, and only from Allocate on.
class Operand {
 public:
  Operand() = default;
  Operand(const memory::desc& plain, const memory::desc& wanted, const dnnl::engine& engine,
          bool is_result)
      : plain_(plain, engine, nullptr),
        wanted_(wanted),
        has_copy_(plain != wanted),
        is_result_(is_result) {
    if (has_copy_) {
      reorder_ = is_result ? Reorder(wanted, plain, engine) : Reorder(plain, wanted, engine);
    }
  }

  bool has_copy() const { return has_copy_; }
  int64_t own_bytes() const {
    if (!has_copy_) return 0;
    return static_cast<int64_t>(wanted_.get_size()) + reorder_.own_bytes();
  }
  void Allocate(const dnnl::engine& engine) {
    if (!has_copy_) return;
    own_ = memory(wanted_, engine);
    reorder_.Allocate(is_result_ ? *own_ : plain_, is_result_ ? plain_ : *own_, engine);
  }

  // What the primitive's arguments hold.
  const memory& in_primitive() const { return own_ ? *own_ : plain_; }

  void Point(const void* data) { plain_.set_data_handle(const_cast<void*>(data)); }
  void Load(const dnnl::stream& stream, const void* data) {
    Point(data);
    if (own_) reorder_.Run(stream);
    is_loaded_ = true;
  }
  // As Load of data that is the same as the last time.
  void LoadAgain(const dnnl::stream& stream, const void* data) {
    if (!own_ || !is_loaded_) return Load(stream, data);
    Point(data);
  }
  void Store(const dnnl::stream& stream) const {
    if (own_) reorder_.Run(stream);
  }

 private:
  memory plain_;
  memory::desc wanted_;
  bool has_copy_ = false, is_result_ = false, is_loaded_ = false;
  std::optional<memory> own_;
  Reorder reorder_;
};

// What the primitive takes for images that come in blocks: these, or what oneDNN likes best.
enum class BlocksInCall : uint8_t { kAsTheyLie, kAny };

// Only oneDNN's description of the primitive, which is small, says which layouts and how much
// scratch memory it wants.
class DnnlConvolution final : public Convolution {
 public:
  // Throws dnnl::error if there is no such primitive.
  DnnlConvolution(const ConvolutionShape& shape, int64_t images_at_once, BlocksInCall blocks,
                  dnnl::algorithm algorithm = dnnl::algorithm::convolution_direct)
      : shape_(shape),
        images_(images_at_once),
        blocks_(blocks),
        algorithm_(algorithm),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {
    for (const WindowAxis& axis : shape.axes) {
      strides_.push_back(axis.stride);
      dilations_.push_back(axis.dilation - 1);
      begin_.push_back(axis.pad_begin);
      end_.push_back(axis.pad_end);
    }
    const DnnlThreads scope(shape.threads);
    sides_ = DescribeSides();
    switch (shape.side) {
      case ConvolutionSide::kOutput:
        ChooseOutput();
        break;
      case ConvolutionSide::kInput:
        ChooseInput();
        break;
      case ConvolutionSide::kWeights:
        ChooseWeights();
        break;
    }
    own_bytes_ += x_.own_bytes() + w_.own_bytes() + y_.own_bytes();
  }

  // Not oneDNN's reference code, and of bytes code that is exact.
  bool is_fast() const { return is_fast_; }
  bool reorders_images() const { return x_.has_copy() || y_.has_copy(); }

  KernelMemory memory() const override { return {.own = own_bytes_, .shared = scratch_bytes_}; }
  void Allocate() override {
    const DnnlThreads scope(shape_.threads);
    for (Operand* operand : {&x_, &w_, &y_}) operand->Allocate(engine_);
    if (shape_.work == nullptr) shape_.work = std::make_shared<WorkMemory>();
    const absl::Status reserved = shape_.work->Reserve(scratch_bytes_);
    CHECK(reserved.ok()) << "the kernels' work memory: " << reserved.message();
    make_();
    make_ = nullptr;
  }

  void Run(const Operands& operands) override {
    omp_set_num_threads(shape_.threads);  // of this thread only
    if (scratch_bytes_ > 0) scratch_.set_data_handle(shape_.work->data());
    const auto bytes_of = [&](ConvolutionSide side) {
      const bool is_wide = shape_.wide_result && shape_.side == side;
      return static_cast<int64_t>(SizeOf(is_wide ? DType::kF32 : shape_.dtype));
    };
    const int64_t x_step = images_ * shape_.x_elements() * bytes_of(ConvolutionSide::kInput);
    const int64_t y_step = images_ * shape_.y_elements() * bytes_of(ConvolutionSide::kOutput);
    const int64_t chunks = shape_.batch / images_;
    const auto* a = static_cast<const char*>(operands.first);
    const auto* b = static_cast<const char*>(operands.second);
    auto* c = static_cast<char*>(operands.result);
    switch (shape_.side) {
      case ConvolutionSide::kOutput:
        if (shape_.has_bias) bias_.set_data_handle(const_cast<void*>(operands.bias));
        LoadWeights(operands);
        for (int64_t i = 0; i < chunks; ++i) {
          x_.Load(stream_, a + i * x_step);
          y_.Point(c + i * y_step);
          call_.Run(stream_);
          y_.Store(stream_);
        }
        break;
      case ConvolutionSide::kInput:
        LoadWeights(operands);
        for (int64_t i = 0; i < chunks; ++i) {
          y_.Load(stream_, a + i * y_step);
          x_.Point(c + i * x_step);
          call_.Run(stream_);
          x_.Store(stream_);
        }
        break;
      case ConvolutionSide::kWeights:
        if (chunks == 1) w_.Point(c);
        for (int64_t i = 0; i < chunks; ++i) {
          x_.Load(stream_, a + i * x_step);
          y_.Load(stream_, b + i * y_step);
          call_.Run(stream_);
          if (chunks > 1) (i == 0 ? start_ : add_).Run(stream_);
        }
        if (chunks > 1) {
          plain_w_.set_data_handle(c);
          store_.Run(stream_);
        } else {
          w_.Store(stream_);
        }
        break;
    }
  }

 private:
  // The three sides as they lie in the operands, and as the primitive may choose them to.
  struct Sides {
    dnnl::memory::data_type type;  // of what is multiplied
    dnnl::memory::dims x, w;
    dnnl::memory::desc plain_x, plain_w, plain_y;
    dnnl::memory::desc any_x, any_w, any_y, bias;
  };

  void LoadWeights(const Operands& operands) {
    if (operands.has_same_second) return w_.LoadAgain(stream_, operands.second);
    w_.Load(stream_, operands.second);
  }

  // Whether the weights' gradient is a sum over several calls.
  bool Adds() const { return shape_.side == ConvolutionSide::kWeights && images_ < shape_.batch; }

  Sides DescribeSides() const {
    const ConvolutionShape& shape = shape_;
    using Type = dnnl::memory::data_type;
    const bool is_of_bytes = shape.dtype == DType::kU8;
    Type type = shape.dtype == DType::kBF16 ? Type::bf16 : Type::f32;
    Type result = shape.wide_result ? Type::f32 : type;
    if (is_of_bytes) {
      type = Type::u8;
      result = Type::s32;
    }
    const Type x_type = shape.side == ConvolutionSide::kInput ? result : type;
    const Type y_type = shape.side == ConvolutionSide::kOutput ? result : type;
    Type w_type = shape.side == ConvolutionSide::kWeights ? result : type;
    if (is_of_bytes) w_type = Type::s8;
    dnnl::memory::dims x = {images_, shape.groups * shape.in},
                       y = {images_, shape.groups * shape.out};
    dnnl::memory::dims w = {shape.out, shape.in};
    if (shape.groups > 1) w.insert(w.begin(), shape.groups);
    for (size_t i = 0; i < shape.axes.size(); ++i) {
      x.push_back(shape.space[i]);
      y.push_back(shape.windows[i]);
      w.push_back(shape.axes[i].kernel);
    }
    const auto in_tensor = [&](const dnnl::memory::dims& dims, dnnl::memory::data_type of,
                               bool is_blocked) {
      return is_blocked ? Blocked(dims, of, shape.channel_block) : DenseDesc(dims, of);
    };
    const auto in_call = [&](const dnnl::memory::dims& dims, dnnl::memory::data_type of,
                             bool is_blocked) {
      const bool keeps = is_blocked && blocks_ == BlocksInCall::kAsTheyLie;
      return keeps ? Blocked(dims, of, shape.channel_block) : Any(dims, of);
    };
    return {.type = type,
            .x = x,
            .w = w,
            .plain_x = in_tensor(x, x_type, shape.x_is_blocked),
            .plain_w = DenseDesc(w, w_type),
            .plain_y = in_tensor(y, y_type, shape.y_is_blocked),
            .any_x = in_call(x, x_type, shape.x_is_blocked),
            // Addends of the weights' gradient are summed in f32.
            .any_w = Any(w, Adds() ? dnnl::memory::data_type::f32 : w_type),
            .any_y = in_call(y, y_type, shape.y_is_blocked),
            .bias = shape.has_bias ? DenseDesc({y[1]}, y_type) : dnnl::memory::desc()};
  }

  void ChooseOutput() {
    const auto description =
        DescribeForward(Describe(sides_.any_x, sides_.any_w, sides_.bias, sides_.any_y));
    x_ = Operand(sides_.plain_x, description.src_desc(), engine_, /*is_result=*/false);
    w_ = Operand(sides_.plain_w, description.weights_desc(), engine_, /*is_result=*/false);
    y_ = Operand(sides_.plain_y, description.dst_desc(), engine_, /*is_result=*/true);
    Choose<dnnl::convolution_forward>(description, [this] {
      Arguments arguments = {{DNNL_ARG_SRC, x_.in_primitive()},
                             {DNNL_ARG_WEIGHTS, w_.in_primitive()},
                             {DNNL_ARG_DST, y_.in_primitive()}};
      if (shape_.has_bias) {
        bias_ = dnnl::memory(sides_.bias, engine_, nullptr);
        arguments[DNNL_ARG_BIAS] = bias_;
      }
      return arguments;
    });
  }

  void ChooseInput() {
    const auto description = DescribeBackwardData(
        Describe(sides_.any_x, sides_.any_w, dnnl::memory::desc(), sides_.any_y),
        DescribeForward(Describe(Any(sides_.x, sides_.type), sides_.any_w, dnnl::memory::desc(),
                                 sides_.any_y)));
    x_ = Operand(sides_.plain_x, description.diff_src_desc(), engine_, /*is_result=*/true);
    w_ = Operand(sides_.plain_w, description.weights_desc(), engine_, /*is_result=*/false);
    y_ = Operand(sides_.plain_y, description.diff_dst_desc(), engine_, /*is_result=*/false);
    Choose<dnnl::convolution_backward_data>(description, [this]() -> Arguments {
      return {{DNNL_ARG_DIFF_SRC, x_.in_primitive()},
              {DNNL_ARG_WEIGHTS, w_.in_primitive()},
              {DNNL_ARG_DIFF_DST, y_.in_primitive()}};
    });
  }

  void ChooseWeights() {
    const auto description = DescribeBackwardWeights(
        Describe(sides_.any_x, sides_.any_w, dnnl::memory::desc(), sides_.any_y),
        DescribeForward(Describe(sides_.any_x, Any(sides_.w, sides_.type), dnnl::memory::desc(),
                                 sides_.any_y)));
    x_ = Operand(sides_.plain_x, description.src_desc(), engine_, /*is_result=*/false);
    y_ = Operand(sides_.plain_y, description.diff_dst_desc(), engine_, /*is_result=*/false);
    w_of_call_ = description.diff_weights_desc();
    if (Adds()) {
      start_ = Reorder(w_of_call_, w_of_call_, engine_);
      add_ = Reorder(w_of_call_, w_of_call_, engine_, /*adds=*/true);
      store_ = Reorder(w_of_call_, sides_.plain_w, engine_);
      own_bytes_ = 2 * static_cast<int64_t>(w_of_call_.get_size()) + start_.own_bytes() +
                   add_.own_bytes() + store_.own_bytes();
    } else {
      w_ = Operand(sides_.plain_w, w_of_call_, engine_, /*is_result=*/true);
    }
    Choose<dnnl::convolution_backward_weights>(description, [this]() -> Arguments {
      return {{DNNL_ARG_SRC, x_.in_primitive()},
              {DNNL_ARG_DIFF_WEIGHTS, Adds() ? AllocateSum() : w_.in_primitive()},
              {DNNL_ARG_DIFF_DST, y_.in_primitive()}};
    });
  }

  // What a call writes: an addend of the sum.
  dnnl::memory AllocateSum() {
    const dnnl::memory part(w_of_call_, engine_), sum(w_of_call_, engine_);
    plain_w_ = dnnl::memory(sides_.plain_w, engine_, nullptr);
    start_.Allocate(part, sum, engine_);
    add_.Allocate(part, sum, engine_);
    store_.Allocate(sum, plain_w_, engine_);
    return part;
  }

  DnnlConvolutionDescription Describe(const dnnl::memory::desc& x, const dnnl::memory::desc& w,
                                      const dnnl::memory::desc& bias,
                                      const dnnl::memory::desc& y) const {
    return {.engine = engine_,
            .algorithm = algorithm_,
            .x = x,
            .w = w,
            .bias = bias,
            .y = y,
            .strides = strides_,
            .dilations = dilations_,
            .begin = begin_,
            .end = end_,
            .attributes = UserScratch()};
  }

  // `arguments`, but for the scratch memory, are there when the primitive is made.
  template <class Primitive, class Description>
  void Choose(const Description& description, std::function<Arguments()> arguments) {
    const std::string implementation = description.impl_info_str();
    is_fast_ = !implementation.starts_with("ref");
    if (shape_.dtype == DType::kU8) {
      const int64_t terms = shape_.w_elements() / (shape_.groups * shape_.out);
      is_fast_ = IsExactForBytes(implementation, terms);
    }
    VLOG(1) << "oneDNN convolution by " << implementation << ", " << images_ << " of "
            << shape_.batch << " images at once";
    scratch_ = dnnl::memory(description.scratchpad_desc(), engine_, nullptr);
    scratch_bytes_ = static_cast<int64_t>(description.scratchpad_desc().get_size());
    make_ = [this, description, arguments = std::move(arguments)] {
      Arguments all = arguments();
      all[DNNL_ARG_SCRATCHPAD] = scratch_;
      call_ = DnnlCall(Primitive(description), std::move(all));
    };
  }

  ConvolutionShape shape_;
  int64_t images_;
  BlocksInCall blocks_;
  dnnl::algorithm algorithm_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory::dims strides_, dilations_, begin_, end_;
  Sides sides_;
  Operand x_, w_, y_;
  dnnl::memory::desc w_of_call_;  // where the weights' gradient is computed
  dnnl::memory bias_, scratch_;
  std::function<void()> make_;  // the primitive
  DnnlCall call_;
  bool is_fast_ = false;
  int64_t own_bytes_ = 0, scratch_bytes_ = 0;
  // Where the weights' gradient is a sum over several calls: the first addend, the others, and the
  // sum's way into the tensor.
  Reorder start_, add_, store_;
  dnnl::memory plain_w_;
};

// Null if `choose` throws.
template <class Choose>
std::unique_ptr<Convolution> NullIfThrown(Choose choose) {
  try {
    return choose();
  } catch (const dnnl::error& error) {
    VLOG(1) << "no oneDNN convolution: " << error.what();
    return nullptr;
  }
}

std::unique_ptr<Convolution> ChooseDirect(const ConvolutionShape& shape, BlocksInCall blocks) {
  return NullIfThrown([&] {
    std::unique_ptr<DnnlConvolution> convolution;
    // All images at once if they lie as the primitive wants them.
    const bool may_fit = shape.x_is_blocked || shape.y_is_blocked;
    if (may_fit) convolution = std::make_unique<DnnlConvolution>(shape, shape.batch, blocks);
    if (convolution == nullptr || convolution->reorders_images()) {
      convolution.reset();
      convolution = std::make_unique<DnnlConvolution>(shape, ImagesAtOnce(shape), blocks);
    }
    if (!convolution->is_fast()) convolution.reset();
    return convolution;
  });
}

}  // namespace

std::unique_ptr<Convolution> ChooseDnnlConvolution(const ConvolutionShape& shape) {
  // Where the CPU has vectors for wide blocks, oneDNN would reorder images to these.
  if (shape.dtype == DType::kF32 && shape.channel_block != compiler::kWideBlock) {
    if (auto convolution = ChooseDirect(shape, BlocksInCall::kAsTheyLie)) return convolution;
  }
  return ChooseDirect(shape, BlocksInCall::kAny);
}

std::unique_ptr<Convolution> ChooseByteConvolution(const ConvolutionShape& shape) {
  return ChooseDirect(shape, BlocksInCall::kAsTheyLie);
}

bool HasWinograd() { return HasDnnlWinograd(); }

std::unique_ptr<Convolution> ChooseWinogradConvolution(const ConvolutionShape& shape) {
  if (!HasWinograd()) return nullptr;
  if (shape.dtype != DType::kF32 || !shape.x_is_blocked || !shape.y_is_blocked) return nullptr;
  return NullIfThrown([&] {
    auto convolution = std::make_unique<DnnlConvolution>(shape, shape.batch, BlocksInCall::kAny,
                                                         dnnl::algorithm::convolution_winograd);
    if (convolution->reorders_images() || !convolution->is_fast()) convolution.reset();
    return convolution;
  });
}

}  // namespace braid::cpu
