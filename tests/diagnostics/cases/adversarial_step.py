# targets: Critic, adversarial.step
import torch
import torch.nn as nn


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        return self.body(x)


def adversarial(data):
    generator, critic = nn.Linear(2, 4), Critic()
    of_generator = torch.optim.Adam(generator.parameters())
    of_critic = torch.optim.Adam(critic.parameters())
    for real in data:
        fake = generator(torch.randn(len(real), 2))
        judged = critic(fake)
        critic_loss = judged.mean() - critic(real).mean()
        of_critic.zero_grad()
        critic_loss.backward(retain_graph=True)
        of_critic.step()
        of_generator.zero_grad()
        generator_loss = -judged.mean()
        generator_loss.backward()
       #^^^^^^^^^^^^^^^^^^^^^^^^^ error[error]:
       #  backward needs `critic.body.2.weight` as the forward pass read it, but `of_critic.step()` in line 24 has
       #  changed it in place since. Call `backward()` before what changes the value, or compute the forward pass
       #  again.
       #  line 31: also reached from __main__
        of_generator.step()


if __name__ == "__main__":
    adversarial([torch.randn(8, 4)])
