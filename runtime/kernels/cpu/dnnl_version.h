// What oneDNN's major versions have or spell differently, in one place: how a primitive is
// described before it is made, and the algorithms that were dropped. CMake chooses
// dnnl_version_2.cc or dnnl_version_3.cc.
#pragma once

#include <dnnl.hpp>

namespace braid::cpu {

// A convolution, or the gradient by one of its operands: the side that is computed has the type of
// the result. `bias` is empty where there is none.
struct DnnlConvolutionDescription {
  dnnl::engine engine;
  dnnl::algorithm algorithm = dnnl::algorithm::convolution_direct;
  dnnl::memory::desc x, w, bias, y;
  dnnl::memory::dims strides, dilations, begin, end;  // a dilation of 0: neighbouring pixels
  dnnl::primitive_attr attributes;
};

// Each throws dnnl::error if there is no such primitive.
dnnl::convolution_forward::primitive_desc DescribeForward(
    const DnnlConvolutionDescription& convolution);
// A gradient refers to the description of its forward pass.
dnnl::convolution_backward_data::primitive_desc DescribeBackwardData(
    const DnnlConvolutionDescription& convolution,
    const dnnl::convolution_forward::primitive_desc& forward);
dnnl::convolution_backward_weights::primitive_desc DescribeBackwardWeights(
    const DnnlConvolutionDescription& convolution,
    const dnnl::convolution_forward::primitive_desc& forward);

// c = a b.
dnnl::matmul::primitive_desc DescribeMatmul(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                            const dnnl::memory::desc& b,
                                            const dnnl::memory::desc& c,
                                            const dnnl::primitive_attr& attributes);

dnnl::memory::dims DimsOf(const dnnl::memory::desc& memory);

// Whether convolution_winograd exists, which version 2 has for AVX-512 and version 3 does not have.
bool HasDnnlWinograd();

}  // namespace braid::cpu
