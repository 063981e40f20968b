//! THE MACHINES: what streams run on. Knows no graph, no plan and no run: it is given programs, and resumes them.
//!
//! Lives here: [`host`], the device that is always there, and [`sim`], the one in virtual time. Never here: which node goes where, or what a program's steps mean.

pub(crate) mod host;
pub(crate) mod sim;
