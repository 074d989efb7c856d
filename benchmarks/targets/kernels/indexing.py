"""Gathers and scatters: embeddings, graphs, caches, one-hot encodings and masks."""

import torch
import torch.nn.functional as F


# fx: weight=f32[100003, 64], ids=i64[4096, 20]
def embedding_sum(weight, ids):
    return F.embedding(ids, weight).sum(dim=1)


# fx: tokens=bf16[50257, 768], positions=bf16[1024, 768], ids=i64[8, 1024]
def token_and_position(tokens, positions, ids):
    position = torch.arange(ids.size(1), device=ids.device)
    return F.embedding(ids, tokens) + F.embedding(position, positions)


# fx: x=f32[1000, 50], index=i64[257]
def gather_rows(x, index):
    return x[index]


# fx: x=f32[10007, 64], edges=i64[2, 80021], weight=f32[80021]
def graph_messages(x, edges, weight):
    src, dst = edges[0], edges[1]
    messages = x[src] * weight.unsqueeze(-1)
    return torch.zeros_like(x).index_add_(0, dst, messages)


# fx: x=f32[2708, 16], src=i64[10556], dst=i64[10556]
def graph_mean(x, src, dst):
    total = torch.zeros_like(x).scatter_add_(0, dst.unsqueeze(-1).expand(-1, x.size(1)), x[src])
    degree = torch.zeros(x.size(0), device=x.device).scatter_add_(0, dst, torch.ones_like(dst, dtype=x.dtype))
    return total / degree.clamp(min=1).unsqueeze(-1)


# fx: score=f32[80021, 8], index=i64[80021], nodes=10007
def segment_softmax(score, index, nodes):
    index = index.unsqueeze(-1).expand_as(score)
    top = torch.full((nodes, score.size(1)), float("-inf"), device=score.device)
    top = top.scatter_reduce(0, index, score.detach(), "amax")
    e = torch.exp(score - top.gather(0, index))
    total = torch.zeros(nodes, score.size(1), device=score.device).scatter_add(0, index, e)
    return e / (total.gather(0, index) + 1e-16)


# fx: cache=bf16[8, 8, 4096, 128], x=bf16[8, 8, 1, 128], position=i64[1]
@torch.no_grad()
def write_cache(cache, x, position):
    cache[:, :, position] = x
    return cache


# fx: cache=bf16[64, 8, 1024, 128], x=bf16[64, 8, 128], position=i64[64]
@torch.no_grad()
def write_cache_of_batch(cache, x, position):
    cache[torch.arange(cache.size(0), device=cache.device), :, position] = x
    return cache


# fx: x=f32[32, 300, 40], mask=b8[32, 300]
def masked_mean(x, mask):
    x = torch.where(mask.unsqueeze(-1), x, torch.zeros_like(x))
    return x.sum(1) / mask.sum(1).clamp(min=1).unsqueeze(-1)


# fx: labels=i64[4, 251, 251], classes=21
def one_hot_channels(labels, classes):
    return (labels.unsqueeze(1) == torch.arange(classes, device=labels.device).view(1, -1, 1, 1)).float()


# fx: q=f32[256, 18], action=i64[256], next_q=f32[256, 18], reward=f32[256], done=f32[256]
def q_learning(q, action, next_q, reward, done, gamma=0.99):
    value = q.gather(1, action.unsqueeze(1)).squeeze(1)
    target = reward + gamma * (1 - done) * next_q.max(1).values.detach()
    return F.smooth_l1_loss(value, target)


# fx: features=f32[8, 64, 4096], centers=f32[8, 64, 1024], neighbors=i64[8, 1024, 16]
def neighbor_features(features, centers, neighbors):
    b, c, _ = features.shape
    index = neighbors.reshape(b, 1, -1).expand(-1, c, -1)
    near = features.gather(2, index).view(b, c, *neighbors.shape[1:])
    return torch.cat([near - centers.unsqueeze(-1), near], dim=1).amax(-1)


# fx: x=bf16[64, 196, 1024], noise=f32[64, 196]
def random_masking(x, noise, keep=49):
    order = torch.argsort(noise, dim=1)[:, :keep]
    return torch.gather(x, 1, order.unsqueeze(-1).expand(-1, -1, x.size(-1)))


# fx: out=bf16[16384, 2048], weights=bf16[16384], token=i64[16384], tokens=8192
def combine_experts(out, weights, token, tokens):
    y = torch.zeros(tokens, out.size(1), dtype=out.dtype, device=out.device)
    return y.index_add(0, token, out * weights.unsqueeze(-1))


# fx: logits=f32[16, 32003], k=50
def keep_top(logits, k):
    lowest = torch.topk(logits, k).values[..., -1, None]
    return logits.masked_fill(logits < lowest, float("-inf")).softmax(-1)
