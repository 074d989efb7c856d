"""Operations that run otherwise on fake tensors: recurrent layers, what asks for lengths, grouped products."""
