//! Data sets: images in, captures out, captures back in.
