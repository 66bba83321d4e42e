//! Trees over a real log: contents, garbage collection, crashes, formats.

mod contents;
mod crash;
mod damage;
mod format;
mod garbage;
mod world;
