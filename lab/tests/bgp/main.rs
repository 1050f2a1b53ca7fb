//! The BGP speaker against real routers, seen from the routers: their sessions, and the routes in their kernels.

mod ecmp;
mod families;
mod sessions;
mod site;
