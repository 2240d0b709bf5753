"""Models of torch, torchvision and transformers with few weights, exported by torch: by tracing the
program (`_script`) or the graph of torch.export (`_dynamo`)."""

import contextlib
import functools
import io
import pathlib
import tempfile

import onnx

NEEDS = ("torch", "torchvision", "transformers", "onnxscript")
OPSET = 18
ONLY_TRACED = ("mixtral",)  # the tokens that its experts get are no graph of torch.export


def export(module, inputs, dynamo, opset=OPSET, open_axes=0, keeps_parameters=False):
    """With `open_axes` the file leaves so many leading sizes of each input open; if it
    `keeps_parameters`, batch normalization stays beside the convolution before it."""
    import torch

    # The exporters do not know the fused layer.
    torch.backends.mha.set_fastpath_enabled(False)
    module.eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    options = {}
    if keeps_parameters:
        options = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    if open_axes and dynamo:
        axes = {axis: torch.export.Dim.DYNAMIC for axis in range(open_axes)}
        options["dynamic_shapes"] = tuple(axes for _ in inputs)
    elif open_axes:
        names = [f"x{i}" for i in range(len(inputs))]
        axes = {axis: f"size{axis}" for axis in range(open_axes)}
        options = {"input_names": names, "dynamic_axes": {name: axes for name in names}}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = str(pathlib.Path(folder) / "model.onnx")
        torch.onnx.export(
            module, tuple(inputs), path, dynamo=dynamo, opset_version=opset, verbose=False,
            **options
        )
        return onnx.load(path), [each.detach().numpy() for each in inputs]


def spread_statistics(module):
    """Fresh batch normalization is next to the identity; this is not."""
    import torch

    for each in module.modules():
        if isinstance(each, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.normal_(each.running_mean, std=0.1)
            torch.nn.init.uniform_(each.running_var, 0.5, 1.5)
    return module


def vision(make, size=64, batch=2):
    def run():
        import torch

        torch.manual_seed(0)
        return spread_statistics(make()), [torch.randn(batch, 3, size, size)]

    return run


def narrow_resnet(block, layers):
    """A ResNet with an eighth of the channels."""
    import torch
    from torchvision.models.resnet import ResNet

    class NarrowResNet(ResNet):
        def _make_layer(self, block, planes, *rest, **options):
            return super()._make_layer(block, planes // 8, *rest, **options)

    module = NarrowResNet(block, layers, num_classes=10)
    module.fc = torch.nn.Linear(64 * block.expansion, 10)
    return module


def vision_models():
    from torchvision import models
    from torchvision.models import convnext, densenet, mobilenetv3, regnet, resnet, swin_transformer
    from torchvision.models import segmentation, shufflenetv2, vision_transformer

    part, few = functools.partial, {"num_classes": 10}
    yield "resnet18", part(narrow_resnet, resnet.BasicBlock, [2, 2, 2, 2])
    yield "resnet50", part(narrow_resnet, resnet.Bottleneck, [3, 4, 6, 3])
    yield "mobilenet_v2", part(models.mobilenet_v2, width_mult=0.25, **few)
    settings, last = mobilenetv3._mobilenet_v3_conf("mobilenet_v3_small", width_mult=0.5)
    yield "mobilenet_v3_small", part(mobilenetv3.MobileNetV3, settings, last // 4, **few)
    yield "squeezenet", part(models.squeezenet1_1, **few)
    shuffle = part(shufflenetv2.ShuffleNetV2, [4, 8, 4], [8, 16, 32, 64, 128], **few)
    yield "shufflenet_v2", shuffle
    dense = part(densenet.DenseNet, 4, (6, 12, 24, 16), 8, num_classes=10)
    yield "densenet121", dense
    yield "efficientnet_b0", part(small_efficientnet)
    parameters = regnet.BlockParams.from_init_params(
        depth=8, w_0=16, w_a=8.0, w_m=2.0, group_width=8, se_ratio=0.25)
    yield "regnet_y", part(regnet.RegNet, parameters, num_classes=10, stem_width=16)
    blocks = [convnext.CNBlockConfig(8 * 2**i, 16 * 2**i if i < 3 else None, n)
              for i, n in enumerate((1, 1, 2, 1))]
    yield "convnext", part(convnext.ConvNeXt, blocks, num_classes=10)
    transformer = part(vision_transformer.VisionTransformer, image_size=64, patch_size=16,
                       num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=10)
    yield "vit", transformer
    swin = part(swin_transformer.SwinTransformer, patch_size=[4, 4], embed_dim=16, depths=[2, 2],
                num_heads=[2, 4], window_size=[4, 4], num_classes=10)
    yield "swin_t", swin
    yield "swin_v2_t", part(
        swin, block=swin_transformer.SwinTransformerBlockV2,
        downsample_layer=swin_transformer.PatchMergingV2)
    yield "lraspp", part(segmentation.lraspp_mobilenet_v3_large, weights=None,
                         weights_backbone=None, num_classes=3)


def small_efficientnet():
    from torchvision.models import efficientnet

    setting = part_of(efficientnet.MBConvConfig)
    blocks = [setting(1, 3, 1, 8, 8, 1), setting(6, 3, 2, 8, 12, 2), setting(6, 5, 2, 12, 20, 2)]
    return efficientnet.EfficientNet(blocks, 0.2, num_classes=10)


def part_of(kind):
    return functools.partial(kind, width_mult=1.0, depth_mult=1.0)


# ---- transformers -------------------------------------------------------------------------------

SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
GPT2 = dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64)
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)


def text_model(kind, head="", experts=None, encoder=False,
               attention="eager", **config):
    """transformers' classes `kind`Config and `kind`Model, or its encoder, on tokens and a mask."""

    def make():
        import torch
        import transformers

        torch.manual_seed(0)
        options = {"experts_implementation": experts} if experts else {}
        configuration = getattr(transformers, kind + "Config")(
            **config, attn_implementation=attention, **options)
        module = getattr(transformers, kind + (head or "Model"))(configuration)

        class Text(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = module

            def forward(self, ids, mask):
                options = {} if encoder else {"use_cache": False}
                return self.model(ids, attention_mask=mask, return_dict=True, **options)[0]

        ids = torch.randint(3, config["vocab_size"], (2, 9))
        masks = torch.ones_like(ids)
        masks[1, 6:] = 0
        return Text(), [ids, masks]

    return make


def feature_model(kind, head, shape, **config):
    """The same on floating features."""

    def make():
        import torch
        import transformers

        torch.manual_seed(0)
        configuration = getattr(transformers, kind + "Config")(
            **config, attn_implementation="eager")
        module = getattr(transformers, kind + head)(configuration)
        if kind == "Whisper":
            module = module.get_encoder()

        class Features(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = module

            def forward(self, x):
                return self.model(x, return_dict=True)[0]

        return Features(), [torch.randn(shape)]

    return make


def transformer_models():
    once = SMALL
    yield "bert", text_model("Bert", encoder=True, **once)
    yield "roberta", text_model("Roberta", encoder=True, **once, **TOKENS)
    yield "distilbert", text_model(
        "DistilBert", encoder=True, vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64,
        max_position_embeddings=64)
    yield "albert", text_model("Albert", encoder=True, embedding_size=16, **once, **TOKENS)
    yield "electra", text_model("Electra", encoder=True, embedding_size=16, **once)
    yield "deberta_v2", text_model("DebertaV2", encoder=True, **once)
    yield "gpt2", text_model("GPT2", "LMHeadModel", **GPT2, **TOKENS)
    yield "gpt_neox", text_model("GPTNeoX", "ForCausalLM", **once, **TOKENS)
    yield "opt", text_model("OPT", "ForCausalLM", vocab_size=99, hidden_size=32, ffn_dim=64,
                            num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32,
                            max_position_embeddings=64, **TOKENS)
    yield "llama", text_model("Llama", "ForCausalLM", **GROUPED, **TOKENS)
    yield "qwen2", text_model("Qwen2", "ForCausalLM", **GROUPED, **TOKENS)
    yield "qwen3", text_model("Qwen3", "ForCausalLM", head_dim=8, **GROUPED, **TOKENS)
    yield "mistral", text_model("Mistral", "ForCausalLM", sliding_window=4, **GROUPED, **TOKENS)
    yield "gemma", text_model("Gemma", "ForCausalLM", head_dim=8, **GROUPED, **TOKENS)
    yield "phi3", text_model("Phi3", "ForCausalLM", **GROUPED, **TOKENS)
    yield "bloom", text_model("Bloom", "ForCausalLM", vocab_size=99, hidden_size=32, n_layer=2,
                              n_head=4, **TOKENS)
    yield "mixtral", text_model("Mixtral", "ForCausalLM", experts="eager",
                                 num_local_experts=4, **GROUPED, **TOKENS)
    yield "t5_encoder", text_model("T5", "EncoderModel", encoder=True, vocab_size=99, d_model=32,
                                   d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    yield "clip_text", text_model("CLIPText", encoder=True, **once, **TOKENS)
    small = {k: v for k, v in SMALL.items() if k not in ("vocab_size", "max_position_embeddings")}
    image = dict(image_size=32, patch_size=8, **small)
    yield "vit_hf", feature_model("ViT", "Model", (2, 3, 32, 32), **image)
    yield "clip_vision", feature_model("CLIPVision", "Model", (2, 3, 32, 32), **image)
    yield "whisper_encoder", feature_model(
        "Whisper", "Model", (1, 16, 40), num_mel_bins=16, d_model=32, encoder_layers=2,
        encoder_attention_heads=4, encoder_ffn_dim=64, decoder_layers=1, decoder_attention_heads=4,
        decoder_ffn_dim=64, max_source_positions=20, max_target_positions=16, vocab_size=99,
        decoder_start_token_id=1, **TOKENS)
    yield "wav2vec2", feature_model(
        "Wav2Vec2", "Model", (1, 800), conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2),
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, num_feat_extract_layers=2,
        **{**small, **TOKENS})


# ---- torch itself -------------------------------------------------------------------------------


def recurrent(kind, **options):
    def make():
        import torch

        torch.manual_seed(0)

        class Recurrent(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = getattr(torch.nn, kind)(6, 8, batch_first=True, **options)
                self.last = torch.nn.Linear(16 if options.get("bidirectional") else 8, 3)

            def forward(self, x):
                return self.last(self.layers(x)[0])

        return Recurrent(), [torch.randn(2, 7, 6)]

    return make


def sequential(shape, *layers):
    def make():
        import torch

        torch.manual_seed(0)
        made = [getattr(torch.nn, name)(*arguments, **named) for name, arguments, named in layers]
        return spread_statistics(torch.nn.Sequential(*made)), [torch.randn(shape)]

    return make


def layer(name, *arguments, **named):
    return name, arguments, named


def encoder_layers():
    import torch

    torch.manual_seed(0)
    one = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
    return torch.nn.TransformerEncoder(one, 2, enable_nested_tensor=False), [torch.randn(2, 5, 16)]


def unet():
    import torch

    class Unet(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.down = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.middle = torch.nn.Conv2d(8, 8, 3, padding=1)
            self.norm = torch.nn.GroupNorm(2, 8)
            self.up = torch.nn.ConvTranspose2d(8, 8, 2, stride=2)
            self.last = torch.nn.Conv2d(11, 2, 1)

        def forward(self, x):
            h = torch.nn.functional.silu(self.norm(self.middle(self.down(x))))
            h = self.up(h)
            wide = torch.nn.functional.interpolate(h, scale_factor=2, mode="bilinear")
            h = torch.nn.functional.adaptive_avg_pool2d(wide, x.shape[-2:])
            return self.last(torch.cat([h, x], 1))

    torch.manual_seed(0)
    return Unet(), [torch.randn(1, 3, 16, 16)]


def torch_models():
    yield "lstm", recurrent("LSTM")
    yield "lstm_deep", recurrent("LSTM", num_layers=2, bidirectional=True)
    yield "gru", recurrent("GRU", num_layers=2)
    yield "rnn", recurrent("RNN")
    yield "conv1d", sequential(
        (2, 4, 32), layer("Conv1d", 4, 8, 5, padding=2), layer("BatchNorm1d", 8), layer("ELU"),
        layer("MaxPool1d", 2), layer("Flatten"), layer("Linear", 128, 5), layer("LogSoftmax", 1))
    yield "conv3d", sequential(
        (1, 2, 6, 8, 8), layer("Conv3d", 2, 4, 3, padding=1, bias=False), layer("BatchNorm3d", 4),
        layer("PReLU", 4), layer("AvgPool3d", 2), layer("Flatten"), layer("Linear", 192, 5))
    yield "convtranspose", sequential(
        (1, 4, 5, 5), layer("ConvTranspose2d", 4, 8, 3, stride=2, output_padding=1, padding=1),
        layer("InstanceNorm2d", 8, affine=True), layer("Hardswish"), layer("PixelShuffle", 2),
        layer("ReflectionPad2d", 1), layer("Conv2d", 2, 2, 3))
    yield "encoder", encoder_layers
    yield "unet", unet


def exported(make, dynamo, **options):
    def run():
        module, inputs = make()
        return export(module, inputs, dynamo, **options)

    return run


def trained(make, steps=20, rate=0.001):
    """What a module gives after SGD on the mean square of its first output; as in use, without
    dropout and with the statistics of batch normalization as they are."""

    def run():
        import torch

        module, inputs = make()
        # Of parameters that are equal, zeros for instance, the exporter makes one.
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 0.02 * torch.randn(parameter.shape)
        model, arrays = export(module, inputs, False, keeps_parameters=True)
        for parameter in module.parameters():
            parameter.requires_grad_(True)
        optimizer = torch.optim.SGD(module.parameters(), lr=rate)

        def first():
            made = module(*inputs)
            return made if isinstance(made, torch.Tensor) else made[0]

        for _ in range(steps):
            optimizer.zero_grad()
            first().square().mean().backward()
            optimizer.step()
        after = first().detach()
        if not after.isfinite().all():
            raise ValueError("torch's own numbers overflow in training")
        return model, arrays, after.numpy()

    return run


def models():
    made = {name: vision(make) for name, make in vision_models()}
    made |= dict(torch_models()) | dict(transformer_models())
    for name, make in made.items():
        yield f"{name}_script", exported(make, False)
        if name not in ONLY_TRACED:
            yield f"{name}_dynamo", exported(make, True)
    for name, make in made.items():
        if name not in ONLY_TRACED:
            yield f"{name}_trained", trained(make)
    for name, axes in (("resnet18", 1), ("swin_t", 1), ("lstm", 1), ("bert", 2), ("gpt2", 2),
                       ("llama", 2), ("mistral", 2), ("t5_encoder", 2)):
        yield f"{name}_open_script", exported(made[name], False, open_axes=axes)
        yield f"{name}_open_dynamo", exported(made[name], True, open_axes=axes)
    for name in ("mobilenet_v3_small", "unet", "gru", "bert", "llama"):
        for opset in (13, 15, 20):
            yield f"{name}_script{opset}", exported(made[name], False, opset=opset)
        for opset in (21, 23):
            yield f"{name}_dynamo{opset}", exported(made[name], True, opset=opset)
    for kind in ("Bert", "Llama", "GPT2"):
        config = {"Bert": SMALL, "Llama": GROUPED | TOKENS, "GPT2": GPT2 | TOKENS}[kind]
        make = text_model(kind, encoder=kind == "Bert", attention="sdpa", **config)
        yield f"{kind.lower()}_sdpa_script", exported(make, False)
        yield f"{kind.lower()}_sdpa_dynamo", exported(make, True)
        yield f"{kind.lower()}_sdpa_dynamo23", exported(make, True, opset=23)
