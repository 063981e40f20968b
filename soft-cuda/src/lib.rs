#![doc = include_str!("../README.md")]
#![allow(non_snake_case, reason = "the exported functions are spelt as CUDA spells them")]

mod api;
mod client;
mod code;
mod driver;
mod wire;

pub use client::{Client, Device, Launch, LoadError, Violation};
pub use code::Code;
pub use wire::{Counters, HostFunctions, Param, ParamKind, Seen, ViolationKind, Which};
