//! BGP against real routers, seen from the routers: their sessions, and the routes in their kernels.
//!
//! `sessions`, `families` and `ecmp` drive the speaker alone. The stories of the whole cluster run real agents against a
//! real API server, with BIRD, FRR and GoBGP as routers and clients behind them.

mod built_in;
mod clients;
mod configured;
mod ecmp;
mod families;
mod leaving;
mod mistakes;
mod order;
mod other_routers;
mod routes;
mod sessions;
mod site;
mod story;
