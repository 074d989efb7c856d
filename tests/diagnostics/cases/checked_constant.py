# targets: load
import argparse

import torch


def load(x: torch.Tensor, folder: str):
    if not folder:
        raise ValueError("no folder")
       #^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[error]: no folder.
    return x.relu()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="")
    load(torch.ones(3), "")
