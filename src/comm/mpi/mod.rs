//! MPI: ranks are processes, started by `mpirun`, and values go through the system's library.
//
// Lives here: the library, loaded at run time, one path and one thread for all calls of it, and exchanges of
// two ranks. Never here: algorithms for collectives of more ranks, which are MPI's own.

mod calls;
mod checks;
mod comm;
mod engine;
mod library;
mod open;
mod pair;
mod path;
mod progress;

pub use open::Mpi;
