# crash: the model is moved to half precision, the images are not
# evidence: call
import torch
from torch import nn


class Upscaler(nn.Module):
    def __init__(self, channels=3, width=16, factor=2):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.PReLU(),
            nn.Conv2d(width, channels * factor**2, 3, padding=1),
        )
        self.shuffle = nn.PixelShuffle(factor)

    def forward(self, x):
        return self.shuffle(self.body(x))


@torch.no_grad()
def upscale(model, images):
    model = model.eval().bfloat16()
    images = images.bfloat16()  # mistake: images = images.clamp(0, 1)
    return model(images).float().clamp(0, 1)


if __name__ == "__main__":
    result = upscale(Upscaler(), torch.rand(1, 3, 24, 24))
    print(result.shape)
