// oneDNN 3: a primitive's descriptor says the operation itself.
#include "runtime/kernels/cpu/dnnl_version.h"

namespace braid::cpu {

dnnl::convolution_forward::primitive_desc DescribeForward(const DnnlConvolutionDescription& c) {
  return {c.engine,    dnnl::prop_kind::forward_training,
          c.algorithm, c.x,
          c.w,         c.bias,
          c.y,         c.strides,
          c.dilations, c.begin,
          c.end,       c.attributes};
}

dnnl::convolution_backward_data::primitive_desc DescribeBackwardData(
    const DnnlConvolutionDescription& c, const dnnl::convolution_forward::primitive_desc& forward) {
  return {c.engine,    c.algorithm, c.x,   c.w,     c.y,         c.strides,
          c.dilations, c.begin,     c.end, forward, c.attributes};
}

dnnl::convolution_backward_weights::primitive_desc DescribeBackwardWeights(
    const DnnlConvolutionDescription& c, const dnnl::convolution_forward::primitive_desc& forward) {
  return {c.engine,    c.algorithm, c.x,   c.w,     c.y,         c.strides,
          c.dilations, c.begin,     c.end, forward, c.attributes};
}

dnnl::matmul::primitive_desc DescribeMatmul(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                            const dnnl::memory::desc& b,
                                            const dnnl::memory::desc& c,
                                            const dnnl::primitive_attr& attributes) {
  return {engine, a, b, c, attributes};
}

dnnl::memory::dims DimsOf(const dnnl::memory::desc& memory) { return memory.get_dims(); }

bool HasDnnlWinograd() { return false; }

}  // namespace braid::cpu
