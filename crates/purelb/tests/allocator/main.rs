//! The allocator as a cluster sees it: real daemons on an API server in memory, judged by what the objects say.

mod bgp;
mod cluster;
mod external;
mod forgotten;
mod handover;
mod lifecycle;
mod line;
mod odd;
mod outage;
mod paused;
mod statuses;
mod without_ip_mode;
