//! MPI: ranks are processes, started by `mpirun`, and values go through the system's library.
//
// Lives here: the library, loaded at run time, and one path and one thread for all calls of it. Never here:
// an algorithm for collectives, which are MPI's own.

mod calls;
mod checks;
mod comm;
mod engine;
mod library;
mod open;
mod path;
mod progress;

pub use open::Mpi;
