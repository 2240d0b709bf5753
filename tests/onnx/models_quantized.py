"""Small models after ONNX Runtime's quantizers, and with narrow floats."""

import pathlib
import tempfile

import numpy as np
import onnx

import models_torch

NEEDS = models_torch.NEEDS + ("onnxruntime",)


class Samples:
    """Made-up inputs for the quantizers that measure ranges."""

    def __init__(self, model, inputs):
        rng = np.random.default_rng(3)
        infos = model.graph.input
        self.samples = iter([
            {info.name: rng.normal(size=value.shape).astype(value.dtype)
             if value.dtype == np.float32 else value for info, value in zip(infos, inputs)}
            for _ in range(8)])

    def get_next(self):
        return next(self.samples, None)

    def set_range(self, start_index, end_index):
        pass


def quantized(make, quantize):
    """`quantize` reads a model from a file and writes another."""

    def run():
        model, inputs = make()
        with tempfile.TemporaryDirectory() as folder:
            before, after = (str(pathlib.Path(folder) / name) for name in ("a.onnx", "b.onnx"))
            onnx.save(model, before)
            quantize(before, after, model, inputs)
            return onnx.load(after), inputs

    return run


def has_narrow_weights(weights):
    """Processors without VNNI add pairs of u8 by s8 in 16 bits: with weights of more than 7 bits the
    sums of ONNX Runtime overflow there, and are not what the model says."""
    return weights == "QInt8"


def static(layout, activations="QUInt8", weights="QInt8", per_channel=False):
    def quantize(before, after, model, inputs):
        from onnxruntime import quantization
        from onnxruntime.quantization import QuantFormat, QuantType

        quantization.quantize_static(
            before, after, Samples(model, inputs), quant_format=getattr(QuantFormat, layout),
            activation_type=getattr(QuantType, activations),
            weight_type=getattr(QuantType, weights), per_channel=per_channel,
            reduce_range=has_narrow_weights(weights))

    return quantize


def dynamic(weights):
    def quantize(before, after, model, inputs):
        from onnxruntime import quantization

        quantization.quantize_dynamic(
            before, after, weight_type=getattr(quantization.QuantType, weights),
            reduce_range=has_narrow_weights(weights))

    return quantize


def narrow(make, keep_io_types):
    def run():
        from onnxconverter_common import float16

        model, inputs = make()
        model = float16.convert_float_to_float16(model, keep_io_types=keep_io_types)
        if not keep_io_types:
            inputs = [each.astype(np.float16) if each.dtype == np.float32 else each
                      for each in inputs]
        return model, inputs

    return run


def models():
    layer = models_torch.layer
    perceptron = models_torch.exported(models_torch.sequential(
        (4, 16), layer("Linear", 16, 24), layer("ReLU"), layer("Linear", 24, 8), layer("Sigmoid")),
        False)
    network = models_torch.exported(models_torch.sequential(
        (2, 3, 16, 16), layer("Conv2d", 3, 8, 3, padding=1), layer("ReLU"), layer("MaxPool2d", 2),
        layer("Conv2d", 8, 8, 3, padding=1, groups=8), layer("ReLU"),
        layer("AdaptiveAvgPool2d", 1), layer("Flatten"), layer("Linear", 8, 5)), False)
    residual = dict(models_torch.vision_models())["resnet18"]
    residual = models_torch.exported(models_torch.vision(residual), False)
    text = dict(models_torch.transformer_models())
    bert = models_torch.exported(text["bert"], False)
    for name, make in (("mlp", perceptron), ("cnn", network), ("resnet18", residual)):
        yield f"{name}_qdq", quantized(make, static("QDQ"))
        yield f"{name}_qdq_signed", quantized(make, static("QDQ", "QInt8"))
        yield f"{name}_qoperator", quantized(make, static("QOperator"))
        yield f"{name}_dynamic", quantized(make, dynamic("QUInt8"))
    yield "cnn_qdq_channels", quantized(network, static("QDQ", "QInt8", per_channel=True))
    yield "cnn_qoperator_unsigned", quantized(network, static("QOperator", "QUInt8", "QUInt8"))
    yield "bert_dynamic", quantized(bert, dynamic("QInt8"))
    yield "bert_qdq", quantized(bert, static("QDQ"))
    lstm = models_torch.exported(models_torch.recurrent("LSTM"), False)
    yield "lstm_dynamic", quantized(lstm, dynamic("QInt8"))
    yield "mlp_f16", narrow(perceptron, False)
    yield "cnn_f16_inside", narrow(network, True)
    yield "bert_f16", narrow(bert, True)
