//! The manifests and the image, as an operator meets them: on a real API server, over older installs, unpacked.

mod cluster;
mod fresh;
mod generated;
mod image;
mod upgrade;
