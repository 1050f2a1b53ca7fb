//! BGP against real routers, seen from the routers: their sessions, and the routes in their kernels.
//!
//! `sessions`, `silence`, `collisions`, `options`, `families` and `ecmp` drive the speaker alone. The stories of the whole
//! cluster run real agents against a real API server, with BIRD, FRR and GoBGP as routers and clients behind them.

mod built_in;
mod changes;
mod clients;
mod collisions;
mod configured;
mod ecmp;
mod families;
mod leaving;
mod mistakes;
mod options;
mod order;
mod other_routers;
mod resets;
mod routes;
mod sessions;
mod silence;
mod site;
mod story;
