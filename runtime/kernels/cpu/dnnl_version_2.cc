// oneDNN 2: an operation's descriptor, from which a primitive's is made.
#include "runtime/kernels/cpu/dnnl_version.h"

namespace braid::cpu {

dnnl::convolution_forward::primitive_desc DescribeForward(const DnnlConvolutionDescription& c) {
  return {dnnl::convolution_forward::desc(dnnl::prop_kind::forward_training, c.algorithm, c.x, c.w,
                                          c.bias, c.y, c.strides, c.dilations, c.begin, c.end),
          c.attributes, c.engine};
}

dnnl::convolution_backward_data::primitive_desc DescribeBackwardData(
    const DnnlConvolutionDescription& c, const dnnl::convolution_forward::primitive_desc& forward) {
  return {dnnl::convolution_backward_data::desc(c.algorithm, c.x, c.w, c.y, c.strides, c.dilations,
                                                c.begin, c.end),
          c.attributes, c.engine, forward};
}

dnnl::convolution_backward_weights::primitive_desc DescribeBackwardWeights(
    const DnnlConvolutionDescription& c, const dnnl::convolution_forward::primitive_desc& forward) {
  return {dnnl::convolution_backward_weights::desc(c.algorithm, c.x, c.w, c.y, c.strides,
                                                   c.dilations, c.begin, c.end),
          c.attributes, c.engine, forward};
}

dnnl::matmul::primitive_desc DescribeMatmul(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                            const dnnl::memory::desc& b,
                                            const dnnl::memory::desc& c,
                                            const dnnl::primitive_attr& attributes) {
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
}

dnnl::memory::dims DimsOf(const dnnl::memory::desc& memory) { return memory.dims(); }

// A level contains those below as bits; ONEDNN_MAX_CPU_ISA may hold it down.
bool HasDnnlWinograd() {
  constexpr auto kLevel = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kLevel) == kLevel;
}

}  // namespace braid::cpu
