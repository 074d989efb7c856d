"""The stages of the pipeline besides AOTAutograd's graphs: what each pass of the compiler made of a target."""
