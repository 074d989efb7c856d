# crash: the decoder's state is concatenated to all encoder outputs without being repeated over their length
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class BahdanauAttention(nn.Module):
    def __init__(self, enc_hid_dim, dec_hid_dim):
        super().__init__()
        self.attn = nn.Linear(enc_hid_dim + dec_hid_dim, dec_hid_dim)
        self.v = nn.Linear(dec_hid_dim, 1, bias=False)

    def forward(self, hidden, encoder_outputs):
        """
        hidden: (batch, dec_hid_dim)
        encoder_outputs: (src_len, batch, enc_hid_dim)
        """
        src_len = encoder_outputs.shape[0]
        hidden = hidden.unsqueeze(1).repeat(1, src_len, 1)
        encoder_outputs = encoder_outputs.permute(1, 0, 2)  # mistake: pass
        energy = torch.tanh(self.attn(torch.cat((hidden, encoder_outputs), dim=2)))
        attention = self.v(energy).squeeze(2)
        return F.softmax(attention, dim=1)


# run:
weights = BahdanauAttention(40, 24)(torch.randn(6, 24), torch.randn(13, 6, 40))
assert weights.shape == (6, 13)
weights.sum().backward()
